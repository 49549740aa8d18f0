"""A rate that pays less than a watt a board in one tick still raises, and never faster than it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.step import carry_over, initial_state, step
from controller.tick_values import Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.examples import examples
from wattpack.power.domain_tree import FloatArray

_AFTER_START_SECONDS = 8
"""Nothing is raised before the leases of an earlier leader have ended."""


def row(watts_a_board: float, parents: Sequence[int], nodes: Sequence[int]) -> Topology:
    """A row whose domains may raise so many watts a second for each board below them."""
    topology = make_topology(parents=parents, nodes=nodes, oversubscription=1.3)
    load = initial_state(topology, SETTINGS).load
    boards = load.sum_gpus(np.ones(topology.n_gpus)) * load.gpu_factor
    tree = replace(topology.tree, max_raise_watts_per_second=watts_a_board * boards)
    return replace(topology, tree=tree)


def held_watts(topology: Topology, ticks_at: Sequence[float]) -> FloatArray:
    """Caps of idle boards after each tick, (n_ticks, n_gpus): what is commanded is held at once.

    Args:
        topology: What hangs where.
        ticks_at: Seconds after the start, from which on ticks of a second let raises begin.
    """
    state, held = initial_state(topology, SETTINGS), topology.guaranteed_watts
    after = []
    for at in (*range(-_AFTER_START_SECONDS, 0), *ticks_at):
        now_ns = seconds(_AFTER_START_SECONDS + at)
        observed = make_observations(
            topology,
            now_ns,
            gpu_limit_watts=held,
            gpu_confirmed_sequence=state.commitments.node_sequence[topology.node_of_gpu],
        )
        state, commands, _ = step(Tick(topology, observed, SETTINGS, now_ns), state)
        held = commands.cap_watts
        after.append(held)
    return np.array(after[_AFTER_START_SECONDS:])


def raised_watts(topology: Topology, ticks_a_second: int, for_seconds: int) -> FloatArray:
    """What each idle board's cap rose by, (n_gpus,), in ticks of one length."""
    held = held_watts(topology, np.arange(for_seconds * ticks_a_second) / ticks_a_second)
    return np.asarray(held[-1] - topology.guaranteed_watts)


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


def beyond_the_rate(topology: Topology, ticks_at: Sequence[float]) -> float:
    """The most by which any domain rose faster than its rate over any ticks, in watts a board."""
    load = initial_state(topology, SETTINGS).load
    boards = load.sum_gpus(np.ones(topology.n_gpus)) * load.gpu_factor
    held = np.array([load.sum_gpus(caps) for caps in held_watts(topology, ticks_at)])
    paid = np.outer(ticks_at, topology.tree.max_raise_watts_per_second)
    ahead = (held * load.gpu_factor - paid) / boards
    return float((ahead - np.minimum.accumulate(ahead)).max())


def test_a_tick_that_was_paid_for_is_not_paid_for_once_more() -> None:
    """Long ticks pay by their time; short ones around full seconds gave a watt for it, too."""
    topology = row(1.1, (-1, 0, 0), (1, 1, 2))
    ticks_at = [second + part for second in range(12) for part in (0.02, 0.98)]
    assert beyond_the_rate(topology, ticks_at) <= 1.0
    rise = held_watts(topology, ticks_at)[-1] - topology.guaranteed_watts
    assert rise.min() >= 0.5 * 1.1 * ticks_at[-1] - 1.0


@examples(60, derandomize=True)
@given(
    watts_a_board=st.floats(0.05, 25.0),
    lengths=st.lists(
        st.sampled_from([0.005, 0.04, 0.05, 0.2, 0.25, 0.5, 0.95, 0.96, 1.0, 2.5]),
        min_size=5,
        max_size=30,
    ),
    begins=st.floats(0.0, 0.99),
)
@example(watts_a_board=1.1, lengths=[0.96, 0.04] * 12, begins=0.02)
@example(watts_a_board=3.0, lengths=[0.4, 0.1] * 12, begins=0.0)
def test_no_ticks_of_any_lengths_raise_faster_than_the_rate_and_a_watt_a_board(
    watts_a_board: float, lengths: list[float], begins: float
) -> None:
    topology = row(watts_a_board, (-1, 0, 1), (2, 2, 0))
    assert beyond_the_rate(topology, begins + np.cumsum([0.0, *lengths])) <= 1.0 + 1e-6


def test_a_changed_membership_pays_for_no_time_twice() -> None:
    topology = row(1.1, (-1,), (0, 0))
    state = replace(initial_state(topology, SETTINGS), saved_raise_seconds=np.array([0.25]))
    grown = row(1.1, (-1,), (0, 0, 0))
    assert carry_over(state, topology, grown).saved_raise_seconds.tolist() == [0.25]
