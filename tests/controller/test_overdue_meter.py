"""A meter that falls silent bounds what cannot be read for some seconds only (I7)."""

from __future__ import annotations

import numpy as np
import pytest

from controller.estimate import NodeDraw, bounds_of
from controller.tick_values import Decisions
from tests.controller.builders import make_topology
from tests.controller.metered_row import MeteredRow
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree

FROZEN, SILENT = 100, 130


def frozen_row(seed: int, dies: bool) -> tuple[list[float], list[Decisions], MeteredRow]:
    """Readings and counters freeze, then the meter falls silent as boards go to full power.

    Returns:
        From that second on: load over rating, decisions; and the row.
    """
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * 8,
        priority=[0, 10] * 16,
        oversubscription=1.3,
        floor_watts=250.0,
    )

    def demand(second: int) -> FloatArray:
        return np.full(topology.n_gpus, 700.0 if second >= SILENT else 470.0)

    plant = MeteredRow(topology, demand, np.random.default_rng(seed), metered=(0,), host_base=900.0)
    plant.frozen_from = FROZEN
    plant.meters_until = SILENT - 1 if dies else plant.meters_until
    loads, seen = [], []
    for second, decisions in plant.run(180):
        if second >= SILENT:
            loads.append(plant.true_watts()[0] / plant.house.ratings[0])
            seen.append(decisions)
    return loads, seen, plant


@pytest.mark.parametrize("seed", [1, 2])
def test_full_power_behind_a_silent_meter_and_frozen_boards_is_held_within_seconds(
    seed: int,
) -> None:
    loads, seen, plant = frozen_row(seed, dies=True)
    assert max(loads) > 1.05, "the step is one that matters"
    assert sum(load > 1.0 for load in loads) <= 8
    assert plant.heat[0] - float(seen[-1].heat[0]) < 0.05, "and its heat is known"


def test_a_meter_that_goes_on_bounds_frozen_boards_as_before() -> None:
    loads, seen, plant = frozen_row(1, dies=False)
    estimates = [decisions.draw_watts[0] / plant.house.ratings[0] for decisions in seen]
    settled = slice(20, None)
    assert max(np.array(estimates[settled]) - np.array(loads[settled])) < 0.1


@pytest.mark.parametrize(
    ("age_seconds", "hidden_that_counts"),
    [(2.0, 0.0), (5.0, 0.0), (6.0, 0.5), (7.0, 1.0), (9.0, 1.0)],
)
def test_an_overdue_reading_bounds_less_and_less(
    age_seconds: float, hidden_that_counts: float
) -> None:
    topology = make_topology(priority=[0] * 8, parents=(-1,), nodes=(0, 0))
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    meter, hidden = 10_000.0, 4_000.0
    sums = (14_000.0, 8_000.0, 8_000.0, hidden, 0.0)
    nodes = NodeDraw(*(np.array([watts]) for watts in sums))
    told = bounds_of(
        load, nodes, nodes.most_watts, np.array([meter]), np.array([age_seconds])
    ).upper_watts[0]
    expected = meter * (1.08 + 0.001 * age_seconds) + hidden_that_counts * hidden
    assert told == pytest.approx(expected)
