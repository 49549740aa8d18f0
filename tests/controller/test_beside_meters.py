"""I7 where some domains have a meter and others none: what a meter shows is drawn somewhere below.

One rack's servers begin to work beside their boards: CPUs read data, fans stand at full speed. The
meters that there are show it within their delay; domains without one must not wait until shares
of declared worsts are learned again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.controller.builders import SWITCHBOARD_THERMAL, make_topology
from tests.controller.metered_row import MeteredRow, bursts

BEGINS = 90
SEEN_SECONDS = 6


def house(metered: tuple[int, ...], *, ratings: Sequence[float], seed: int = 1) -> MeteredRow:
    """A row over two racks of four servers; their hosts step from 0.5 to the declared 1.5 kW."""
    topology = make_topology(
        parents=(-1, 0, 0),
        nodes=(1, 1, 1, 1, 2, 2, 2, 2),
        priority=[0, 0, 10, 10] * 8,
        floor_watts=250.0,
        limits=(100.0, 700.0),
        ratings=ratings,
        curve=SWITCHBOARD_THERMAL,
    )
    rng = np.random.default_rng(seed)
    demand = bursts(topology.n_gpus, rng, 380.0, 420.0)
    return MeteredRow(topology, demand, rng, metered=metered, host_per_gpu=0.0)


def burst(plant: MeteredRow, until: int = BEGINS + 60) -> dict[str, np.ndarray]:
    """Estimates over the truth from when meters can have shown the step, and load ratios."""
    estimates, loads, felt = [], [], []
    for second, decisions in plant.run(until):
        plant.host_base = 500.0 if second < BEGINS else 1500.0
        if second >= BEGINS + SEEN_SECONDS:
            true = np.array(plant.true_watts())
            estimates.append(decisions.draw_watts / true)
            loads.append(true / np.array(plant.house.ratings))
            felt.append(decisions.heat)
    return {"estimates": np.array(estimates), "loads": np.array(loads), "felt": np.array(felt)}


def test_the_parent_of_metered_children_is_held_at_what_they_show() -> None:
    # 18 kW, 26 kW once hosts work: the racks bear it, the row has 23.5 kW.
    plant = house((1, 2), ratings=(23_500.0, 40_000.0, 40_000.0))
    found = burst(plant)
    assert found["estimates"][:, 0].min() > 0.985
    settled = found["loads"][15:, 0]
    assert settled.max() < 1.0
    assert settled.mean() > 0.93


@pytest.mark.parametrize("metered", [(0, 1), (0,)])
def test_a_rack_without_a_meter_draws_what_the_rows_meter_shows_beyond_the_others(
    metered: tuple[int, ...],
) -> None:
    plant = house(metered, ratings=(80_000.0, 40_000.0, 11_800.0))
    found = burst(plant)
    assert found["estimates"][:, 2].min() > 0.97
    assert found["loads"][15:, 2].max() < 1.0
    assert plant.heat[2] - found["felt"][-1, 2] < 0.05


def test_what_one_rack_shows_is_drawn_at_the_row_beside_a_rack_without_a_meter() -> None:
    plant = house((1,), ratings=(80_000.0, 40_000.0, 40_000.0))
    assert burst(plant)["estimates"][:, 0].min() > 0.985
