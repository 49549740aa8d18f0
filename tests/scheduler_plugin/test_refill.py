"""Boards are found from sizes alone, and boards with a rest are filled anew."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_plugin.documents.snapshot import Pod, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.packing.board_fillings import dearest, dearest_filling
from scheduler_plugin.packing.greedy_orders import incumbent
from scheduler_plugin.packing.problem import compile_problem, placed_counts
from scheduler_plugin.packing.refill import refilled
from scheduler_plugin.room.board_packing import packed
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import GIB, bound, node, snapshot


def never(_: object) -> bool:
    return False


def share(uid: str, gpu_milli: int, cores: int = 1) -> Pod:
    return Pod(uid=uid, gpu_milli=gpu_milli, milli_cpu=1000 * cores, memory_bytes=GIB)


def fits_somehow(parts: list[int], left: list[int]) -> bool:
    """Every order of the parts, each board filled until the next part is too large for it."""
    for order in set(permutations(parts)):
        boards = list(left)
        for part in order:
            while boards and boards[0] < part:
                boards.pop(0)
            if not boards:
                break
            boards[0] -= part
        else:
            return True
    return False


@given(
    st.lists(st.sampled_from((110, 190, 250, 320, 470, 500, 650, 810, 1000)), max_size=6),
    st.lists(st.sampled_from((-(2**40), 0, 190, 500, 810, 1000)), min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_boards_are_found_whenever_there_is_a_way(parts: list[int], left: list[int]) -> None:
    parts.sort(reverse=True)
    found = packed(parts, left)
    assert (found is not None) == fits_somehow(parts, left)
    rests = list(left)
    for part, board in zip(parts, found or (), strict=False):
        rests[board] -= part
    assert all(rest >= min(0, before) for rest, before in zip(rests, left, strict=True))


def test_a_way_that_best_fit_misses_is_found() -> None:
    # It puts 470 beside 500; then 320, 250 and 250 leave 180, too little for 210.
    assert packed([500, 470, 320, 250, 250, 210], [1000, 1000]) is not None


def test_sixteen_parts_that_fill_eight_boards_are_found() -> None:
    parts = [810] * 3 + [650, 550, 470, 470, 470, 460, 370, 370, 320, 230, 220, 220]
    assert packed(parts, [1000] * 8) is not None


@given(
    st.dictionaries(st.integers(150, 1000), st.floats(-1, 3), min_size=1, max_size=5),
    st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_the_dearest_filling_is_worth_what_is_said(prices: dict[int, float], left: int) -> None:
    sizes, values = list(prices), np.array(list(prices.values()))

    def best(rest: int) -> float:
        return (
            max(
                (values[i] + best(rest - size) for i, size in enumerate(sizes) if size <= rest),
                default=0.0,
            )
            if any(values[i] > 0 for i, size in enumerate(sizes) if size <= rest)
            else 0.0
        )

    counts = dearest_filling(values, sizes, left)
    assert np.dot(counts, sizes) <= left
    assert np.dot(counts, values) == pytest.approx(dearest(values, sizes)[left], abs=1e-6)
    assert dearest(values, sizes)[left] >= best(left) - 1e-9


def large_first() -> Snapshot:
    """One share of 0.81 on each board leaves 0.19 that only a few want."""
    large = [share(f"l{i}", 810) for i in range(4)]
    halves = [share(f"s{i}", 500) for i in range(8)]
    return snapshot(node("a", 2), node("b", 2), *large, *halves)


def test_boards_with_a_rest_are_filled_anew() -> None:
    problem = compile_problem(large_first())
    large = next(c for c, milli in enumerate(problem.gpu_milli) if milli == 810)
    halves = 1 - large
    start = {(large, 0): 2, (large, 1): 2}
    better = refilled(problem, start, never)
    assert better == {(halves, 0): 4, (halves, 1): 4}
    assert refilled(problem, better, never) == better
    assert refilled(problem, start, lambda _: True) == start


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    sizes = st.sampled_from((0, 160, 250, 320, 470, 500, 650, 810, 1000, 2000))
    pods = [
        share(f"p{i:02d}", draw(sizes), draw(st.sampled_from((1, 6, 20, 40))))
        for i in range(draw(st.integers(1, 24)))
    ]
    running = [
        bound(f"r{i}", f"n{i}", 0, gpu_milli=draw(sizes), milli_cpu=1000)
        for i in range(draw(st.integers(0, 2)))
    ]
    return snapshot(
        *(node(f"n{i}", draw(st.sampled_from((2, 4)))) for i in range(3)), *pods, *running
    )


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_what_is_filled_anew_holds_and_is_never_less(of: Snapshot) -> None:
    problem = compile_problem(of)
    found = incumbent(problem, never)
    placed = placed_counts(problem, found)
    assert (np.array(placed) <= problem.counts).all()
    made = plan(of, deadline_seconds=0.0)
    assert not made.refusals
    assert not complaints(of, made, digest=of.digest())
