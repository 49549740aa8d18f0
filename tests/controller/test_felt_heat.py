"""Heat that a late meter puts right: not below what it was before the time that it speaks of."""

from __future__ import annotations

import numpy as np
import pytest

from controller.breaker_heat import advance_heat
from controller.felt_heat import Felt, FeltMemory, feel_heat, nothing_felt
from tests.controller.builders import SWITCHBOARD_THERMAL, make_topology
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree
from wattpack.units import NS_PER_SECOND

TOPOLOGY = make_topology(
    parents=(-1,), nodes=(0,), ratings=[10_000.0], curve=SWITCHBOARD_THERMAL, guaranteed_watts=200.0
)
LOAD = LoadTree(TOPOLOGY.tree, TOPOLOGY.domain_of_node, TOPOLOGY.node_of_gpu)
LATE_SECONDS = 2


class Row:
    """One breaker: what it bears, and what the controller counts while nobody can be heard."""

    def __init__(self) -> None:
        self.truth: FloatArray = np.zeros(1)
        self.heat: FloatArray = np.zeros(1)
        self.memory: FeltMemory = nothing_felt(1)
        self.second = 0
        self.drawn: list[float] = []

    def bear(self, true: float, counted: float, seconds: int, meter: bool = False) -> None:
        """So many seconds at shares of the rating; with ``meter`` each is told two later."""
        for _ in range(seconds):
            begin = self.second * NS_PER_SECOND
            self.second += 1
            self.drawn.append(true)
            told = self.drawn[-1 - LATE_SECONDS] if meter else np.nan
            stamp_ns = begin - LATE_SECONDS * NS_PER_SECOND + NS_PER_SECOND // 2
            self.truth = advance_heat(LOAD, self.truth, true * LOAD.rating_watts, 1.0)
            felt = Felt(
                counted * LOAD.rating_watts,
                told * LOAD.rating_watts,
                np.array([stamp_ns if meter else -1]),
                np.array([meter]),
            )
            span_ns = (begin, begin + NS_PER_SECOND)
            self.heat, self.memory = feel_heat(LOAD, self.memory, self.heat, felt, span_ns)


@pytest.mark.parametrize("counted", [1.1, 1.3, 1.5])
@pytest.mark.parametrize("idle_seconds", [10, 40, 100, 300])
def test_a_meter_that_comes_back_hides_nothing_of_what_was_before_it(
    counted: float, idle_seconds: int
) -> None:
    """What was counted beyond a trip is cut off, and may not be taken off what is left."""
    row = Row()
    row.bear(0.9, 0.9, 3)
    row.bear(0.9, 0.9, 57, meter=True)
    row.bear(1.1, counted, 40)
    row.bear(0.5, counted, idle_seconds)
    row.bear(0.5, 0.5, 20, meter=True)
    assert row.truth[0] > 0.05
    assert row.heat[0] >= 0.9 * row.truth[0]


def test_what_a_meter_denies_of_its_own_seconds_goes() -> None:
    row = Row()
    row.bear(0.9, 0.9, 3)
    row.bear(0.9, 0.9, 57, meter=True)
    row.bear(0.5, 1.3, 2, meter=True)
    counted = float(row.heat[0])
    assert counted > 0.05
    row.bear(0.5, 0.5, 5, meter=True)
    # Half a second lies between the reading's stamp and the end of its tick.
    assert row.heat[0] < 0.3 * counted
