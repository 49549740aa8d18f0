"""A rate that pays less than a watt a board in one tick still raises, and never faster than it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds

_AFTER_START_SECONDS = 8
"""Nothing is raised before the leases of an earlier leader have ended."""


def row(watts_a_board: float, parents: Sequence[int], nodes: Sequence[int]) -> Topology:
    """A row whose domains may raise so many watts a second for each board below them."""
    topology = make_topology(parents=parents, nodes=nodes, oversubscription=1.3)
    load = initial_state(topology, SETTINGS).load
    boards = load.sum_gpus(np.ones(topology.n_gpus)) * load.gpu_factor
    tree = replace(topology.tree, max_raise_watts_per_second=watts_a_board * boards)
    return replace(topology, tree=tree)


def raised_watts(topology: Topology, ticks_a_second: int, for_seconds: int) -> np.ndarray:
    """What each idle board's cap rose by, (n_gpus,): all that is commanded is held at once."""
    state = initial_state(topology, SETTINGS)
    held, begun = topology.guaranteed_watts, np.zeros(topology.n_gpus)
    for number in range((_AFTER_START_SECONDS + for_seconds) * ticks_a_second):
        now_ns = seconds(number / ticks_a_second)
        if number == _AFTER_START_SECONDS * ticks_a_second:
            begun = held
        observed = make_observations(
            topology,
            now_ns,
            gpu_limit_watts=held,
            gpu_confirmed_sequence=state.commitments.node_sequence[topology.node_of_gpu],
        )
        state, commands, _ = step(Tick(topology, observed, SETTINGS, now_ns), state)
        held = commands.cap_watts
    return held - begun


@pytest.mark.parametrize(
    ("ticks_a_second", "watts_a_board"),
    [(1, 0.3), (1, 0.07), (20, 4.0), (20, 0.3)],
)
@pytest.mark.parametrize(
    ("parents", "nodes"), [((-1,), (0, 0)), ((-1, 0, 0), (1, 1, 2)), ((-1, 0, 1), (2, 2, 0))]
)
def test_boards_rise_at_half_the_rate_at_least_and_never_faster(
    ticks_a_second: int, watts_a_board: float, parents: tuple[int, ...], nodes: tuple[int, ...]
) -> None:
    """Boards take whole watts: of a part of one nobody rose, for ever."""
    lasting = 60 if ticks_a_second == 1 else 10
    topology = row(watts_a_board, parents, nodes)
    rise = raised_watts(topology, ticks_a_second, lasting).mean()
    assert 0.5 * watts_a_board * lasting - 1.0 <= rise <= watts_a_board * lasting + 1.0
