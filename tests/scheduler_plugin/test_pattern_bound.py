"""The pattern bound against every placement of small problems, and against measured figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from benchmarks._openb_trace import MILLI_PER_GPU, Kind, Node, openb_nodes, sample, shipped_trace
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.objective import placed_by_stage
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.solver.bounds import cumulative_bounds, tightened
from scheduler_plugin.solver.improving import improve_all
from scheduler_plugin.solver.pattern_bound import Asked, Room, pattern_bound
from scheduler_plugin.solver.search import Search, SearchSettings, cumulative
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import node, pod, snapshot
from tests.scheduler_plugin.test_planner_moves import clusters

Pod = tuple[int, int, int]
"""CPU, whole boards, share of one."""


def asked(pods: list[Pod], values: list[int]) -> Asked:
    cpu, boards, share = np.array(pods, dtype=np.int64).reshape(-1, 3).T
    ones = np.ones(len(pods), dtype=np.int64)
    return Asked(cpu[:, None], boards, share, ones, np.array(values, dtype=np.int64))


def best(pods: list[Pod], values: list[int], nodes: list[tuple[int, tuple[int, ...]]]) -> int:
    """The most value of any placement, by trying all of them."""
    if not pods:
        return 0
    (cpu, boards, share), rest = pods[0], (pods[1:], values[1:])
    found = best(*rest, nodes)
    for i, (cpu_left, left) in enumerate(nodes):
        if cpu > cpu_left:
            continue
        for taken in {_taken(left, boards, share, first) for first in range(max(1, len(left)))}:
            if taken is not None:
                now = [*nodes[:i], (cpu_left - cpu, taken), *nodes[i + 1 :]]
                found = max(found, values[0] + best(*rest, now))
    return found


def _taken(left: tuple[int, ...], boards: int, share: int, first: int) -> tuple[int, ...] | None:
    """What is left of the boards with a share on one of them, or with whole ones gone."""
    if share:
        fits = first < len(left) and left[first] >= share
        return (*left[:first], left[first] - share, *left[first + 1 :]) if fits else None
    after = list(left)
    for _ in range(boards):
        if MILLI_PER_GPU not in after:
            return None
        after[after.index(MILLI_PER_GPU)] = 0
    return tuple(after)


KINDS = st.one_of(
    st.tuples(st.integers(1, 5), st.integers(0, 2), st.just(0)),
    st.tuples(st.integers(1, 5), st.just(0), st.sampled_from([200, 350, 500, 700])),
)
NODES = st.tuples(
    st.integers(2, 9),
    st.lists(st.sampled_from([1000, 1000, 650, 300]), max_size=2).map(tuple),
)


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(KINDS, st.integers(1, 9)), min_size=1, max_size=5),
    st.lists(NODES, min_size=1, max_size=3),
    st.booleans(),
)
def test_no_placement_is_above_it(
    pods: list[tuple[Pod, int]], nodes: list[tuple[int, tuple[int, ...]]], ends_at_once: bool
) -> None:
    kinds, values = [kind for kind, _ in pods], [value for _, value in pods]
    boards = np.zeros((len(nodes), 2), dtype=np.int64)
    for i, (_, left) in enumerate(nodes):
        boards[i, : len(left)] = left
    room = Room(
        np.array([[cpu] for cpu, _ in nodes], dtype=np.int64),
        boards,
        np.ones((len(kinds), len(nodes)), dtype=np.bool_),
    )
    told = pattern_bound(asked(kinds, values), room, lambda: ends_at_once)
    assert told >= best(kinds, values, nodes) - 1e-6


def test_shares_that_do_not_fit_together_leave_the_rest_of_a_board() -> None:
    """Two boards' worth of shares of 0.7, and of each board only one of them."""
    room = Room(np.array([[99]]), np.full((1, 2), 1000), np.ones((4, 1), dtype=np.bool_))
    pods = [(1, 0, 700)] * 4
    assert pattern_bound(asked(pods, [700] * 4), room, lambda: False) == pytest.approx(1400)


def openb_bound(name: str, load: float) -> float:
    """Percent of openb's boards, all tasks that arrive within the load of seed 42's order."""
    trace, nodes = shipped_trace(name), openb_nodes()
    milli = np.array([kind.gpu_milli for kind in trace.kinds])
    boards = sum(one.boards for one in nodes) * MILLI_PER_GPU
    arrivals = sample(trace, 42, nodes).arrivals
    arrivals = arrivals[np.cumsum(milli[arrivals]) <= load * boards]
    is_whole = np.array([kind.board_milli == MILLI_PER_GPU for kind in trace.kinds])
    whole = np.array([kind.boards for kind in trace.kinds]) * is_whole
    wanted = Asked(
        np.array([[kind.milli_cpu, kind.memory_mib] for kind in trace.kinds]),
        whole,
        np.array([kind.board_milli for kind in trace.kinds]) * (whole == 0),
        np.bincount(arrivals, minlength=len(trace.kinds)),
        milli,
    )
    offered = Room(
        np.array([[one.milli_cpu, one.memory_mib] for one in nodes]),
        (np.arange(8) < np.array([[one.boards] for one in nodes])) * MILLI_PER_GPU,
        np.array([[_may(kind, one) for one in nodes] for kind in trace.kinds]),
    )
    return 100 * pattern_bound(wanted, offered, lambda: False) / boards


def _may(kind: Kind, one: Node) -> bool:
    return not kind.boards or (one.boards > 0 and (not kind.models or one.model in kind.models))


@pytest.mark.parametrize(
    ("name", "load", "percent"),
    [("default", 1.0, 96.90), ("gpushare100", 1.3, 91.59)],
)
def test_openb_cannot_be_allocated_beyond_what_was_measured(
    name: str, load: float, percent: float
) -> None:
    """Measured once by an own program on another sample of the same lists."""
    assert openb_bound(name, load) == pytest.approx(percent, abs=0.1)


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_a_stage_s_bound_is_tightened_but_never_below_a_placement(s: Snapshot) -> None:
    problem = compile_problem(s, moves=True)
    loose = cumulative_bounds(problem)
    tight = tightened(problem, loose, lambda: False)
    assert all(t <= b for t, b in zip(tight, loose, strict=True))
    reached = cumulative(placed_by_stage(problem, problem.start))
    assert all(r <= t for r, t in zip(reached, tight, strict=True))


def two_columns() -> Snapshot:
    """A node, three pods that ask for much CPU and three for much memory."""
    gib = 2**30
    parts = [node("a", 0, milli_cpu=6000, memory_bytes=6 * gib)]
    parts += [pod(f"p{i}", 0, milli_cpu=2000, memory_bytes=gib // 2) for i in range(3)]
    parts += [pod(f"q{i}", 0, milli_cpu=500, memory_bytes=2 * gib) for i in range(3)]
    return snapshot(*parts)


def test_cpu_and_memory_together_say_more_than_each_alone() -> None:
    """Either column by itself lets five of six in, both together 4.8."""
    problem = compile_problem(two_columns())
    loose = cumulative_bounds(problem)
    assert loose == (0, 5 * MILLI_PER_GPU)
    assert tightened(problem, loose, lambda: False) == (0, 4 * MILLI_PER_GPU)


def test_what_reaches_it_needs_no_solver() -> None:
    """Where nothing runs yet, too: 4 of 6 pods, where single columns allow 5."""
    problem = compile_problem(two_columns())
    search = Search(problem, 1.0, 0, SearchSettings(), 0)
    search.packing.become({(c, 0): 2 for c in range(len(problem.classes))})
    improve_all(search)
    assert search.rounds == 0
    assert search.stage_bounds() == (0, 4 * MILLI_PER_GPU)
