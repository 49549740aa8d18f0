"""A change of membership costs no memory of what stays; what was summed over others is let go."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from controller.carry_over import carry_over
from controller.coincidence import coincidence
from controller.tick_values import Topology
from tests.controller.builders import make_topology
from tests.controller.metered_row import MeteredRow, bursts

AFRESH = {"topology", "load", "calm_wants", "guaranteed"}
"""Follows from the topology, or is worked out in the next tick."""
TOLD_ANEW = {"node_sent_ns", "node_sequence", "node_caps_watts"}
"""Every node hears of its caps again: a new topology may hold another order of GPUs."""


def row(n_nodes: int = 6) -> Topology:
    return make_topology(
        parents=(-1, 0),
        nodes=(1,) * n_nodes,
        priority=[0, 0, 10, 10] * n_nodes,
        oversubscription=1.3,
        floor_watts=250.0,
    )


@pytest.fixture(scope="module")
def plant() -> MeteredRow:
    topology = row()
    rng = np.random.default_rng(5)
    demand = bursts(topology.n_gpus, rng, 500.0, 700.0)
    plant = MeteredRow(topology, demand, rng, metered=(0,), host_base=900.0)
    for _ in plant.run(60):
        pass
    return plant


def differing(one: Any, other: Any, where: str = "") -> list[str]:
    """Names of the fields in which two states differ."""
    if is_dataclass(one):
        names = [f.name for f in fields(one) if f.name not in AFRESH | TOLD_ANEW]
        return [
            name
            for field in names
            for name in differing(getattr(one, field), getattr(other, field), f"{where}.{field}")
        ]
    if isinstance(one, tuple) and one and isinstance(one[0], np.ndarray):
        same = len(one) == len(other)
        return [] if same and all(map(np.array_equal, one, other)) else [where]
    if isinstance(one, np.ndarray):
        return [] if np.array_equal(one, other, equal_nan=one.dtype.kind == "f") else [where]
    return [] if one == other else [where]


def test_pods_that_come_and_go_cost_no_memory_at_all(plant: MeteredRow) -> None:
    topology = plant.topology
    moved = carry_over(plant.state, topology, replace(topology, priority=topology.priority[::-1]))
    assert differing(plant.state, moved) == []
    assert differing(plant.state, replace(moved, heat=moved.heat + 0.1)) == [".heat"]


def test_what_of_the_draws_comes_together_is_of_the_same_boards_only(plant: MeteredRow) -> None:
    assert coincidence(plant.state.together)[0] < 1.0
    grown = carry_over(plant.state, plant.topology, row(7))
    assert coincidence(grown.together).tolist() == [1.0, 1.0]
    assert np.isnan(grown.together_now).all()
    assert (grown.changes.totals_watts == 0.0).all()
    assert np.isnan(grown.meters.read_watts).all()
    known = np.isfinite(plant.state.changes.gpu_watts)
    n = plant.topology.n_gpus
    assert np.array_equal(grown.changes.gpu_watts[:n][known], plant.state.changes.gpu_watts[known])
    assert np.array_equal(grown.felt.watts, plant.state.felt.watts)
