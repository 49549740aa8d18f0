"""One or two moves that let a waiting pod in: each kind of chain, and nothing when none holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given

from scheduler_plugin.documents.snapshot import Pod, Snapshot
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.objective import disruption, placed_values
from scheduler_plugin.packing.problem import Problem, compile_problem
from scheduler_plugin.solver.chains import goes_home, let_in, let_stay
from scheduler_plugin.solver.exchanges import swap_in
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from tests.scheduler_plugin.test_planner_moves import FEW, clusters


def runs(uid: str, on: str, gpus: int = 1, **other: Any) -> Pod:
    return bound(uid, on, gpus, **({"move_seconds": 60} | other))


def asked(s: Snapshot, uid: str = "p") -> tuple[Problem, Packing, int]:
    problem = compile_problem(s, moves=True)
    waiting = next(c for c, k in enumerate(problem.classes) if uid in k.uids)
    return problem, Packing(problem, problem.start), waiting


def moves_of(problem: Problem, packing: Packing) -> list[tuple[str, str]]:
    """Which pods leave which node, by the name that their class runs under."""
    found = []
    for (c, n), count in problem.start.items():
        gone = count - packing.assignment.get((c, n), 0)
        uids = [one.uid for one in problem.classes[c].running if one.node == n]
        found += [(uid, problem.node_names[n]) for uid in uids[:gone]]
    return sorted(found)


TWINS = snapshot(
    node("n0", 4), node("n1", 4), runs("r", "n0", move_seconds=0), runs("s", "n1", move_seconds=0),
    pod("w", 4, priority=1), pod("v", 1),
)  # fmt: skip
"""Whole nodes for ``w``: two of a class have left for the other's node."""

CASES = {
    "one move": (
        [node("a"), node("b", 4), runs("x", "a", 2), pod("p", 8)],
        [("x", "a")],
    ),
    "the cheaper one": (
        [node("a"), node("b"), node("c", 2), runs("x", "a", 2, move_seconds=9),
         runs("y", "b", 2, move_seconds=5), pod("p", 8)],
        [("y", "b")],
    ),
    "one behind the other": (
        [node("a", 8), node("b", 6), node("c", 2), runs("x", "a", 4), runs("y", "b", 2),
         bound("z", "b", 2), pod("p", 8)],
        [("x", "a"), ("y", "b")],
    ),
    "two of one node": (
        [node("a"), node("b", 2), node("c", 4), runs("x", "a", 2), runs("y", "a", 3), pod("p", 8)],
        [("x", "a"), ("y", "a")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_chain_lets_it_in(case: str) -> None:
    parts, moved = CASES[case]
    problem, packing, waiting = asked(snapshot(*parts))
    assert not packing.capacity(waiting).any()
    assert let_in(packing, waiting)
    assert moves_of(problem, packing) == moved


@pytest.mark.parametrize(
    "parts",
    [
        [node("a"), node("b", 4), bound("x", "a", 2), pod("p", 8)],
        [node("a"), node("b", 1), runs("x", "a", 2), pod("p", 8)],
        [node("a"), node("b", 4), gang("g", 1, 2), runs("x", "a", 2, gpu_models=("A40",)),
         pod("p", 8)],
        [domain("d", 3_000, used=0), node("a", domain="d"), node("b", domain="d"),
         runs("x", "a", 2), runs("y", "b", 2), pod("p", 8)],
    ],
    ids=["may not move", "no room elsewhere", "may not go elsewhere", "no watts"],
)  # fmt: skip
def test_without_one_nothing_is_changed(parts: list[Any]) -> None:
    _, packing, waiting = asked(snapshot(*parts))
    before, free = dict(packing.assignment), packing.free.copy()
    assert not let_in(packing, waiting)
    assert packing.assignment == before
    assert (packing.free == free).all()


@FEW
@given(clusters())
def test_whoever_comes_in_nobody_is_lost_and_nothing_overflows(s: Snapshot) -> None:
    problem = compile_problem(s, moves=True)
    packing = Packing(problem, problem.start)
    for c in (c for c, k in enumerate(problem.classes) if k.uids):
        before = placed_values(problem, packing.assignment)
        came = let_in(packing, c)
        after = placed_values(problem, packing.assignment)
        worth = problem.classes[c].value if came else 0
        assert sum(after) - sum(before) == worth
        assert (packing.free >= 0).all()


def test_a_move_is_taken_back_once_its_own_place_is_free_again() -> None:
    problem, packing, _ = asked(snapshot(node("a"), node("b"), runs("x", "a", 2), pod("p", 1)))
    moved = next(c for c, k in enumerate(problem.classes) if k.running)
    packing.put(moved, 0, -1)
    packing.put(moved, 1, 1)
    assert (let_stay(packing), moves_of(problem, packing)) == (1, [])
    assert let_stay(packing) == 0


def test_a_move_whose_place_is_taken_stays() -> None:
    problem, packing, waiting = asked(snapshot(*CASES["one move"][0]))
    assert let_in(packing, waiting)
    assert (let_stay(packing), moves_of(problem, packing)) == (0, CASES["one move"][1])


SWAP = [node("a", 8), node("b", 7), runs("x", "a", 5), runs("y", "b", 4), pod("p", 4)]


def test_two_change_nodes_where_no_move_alone_would_do() -> None:
    problem, packing, waiting = asked(snapshot(*SWAP))
    assert not let_in(packing, waiting)
    assert swap_in(packing, waiting)
    assert moves_of(problem, packing) == [("x", "a"), ("y", "b")]
    assert (packing.free >= 0).all()


@pytest.mark.parametrize(("most", "comes"), [(5 * 60 + 4 * 60, True), (5 * 60 + 4 * 60 - 1, False)])
def test_a_swap_costs_no_more_than_it_may(most: int, comes: bool) -> None:
    _, packing, waiting = asked(snapshot(*SWAP))
    before = dict(packing.assignment)
    assert swap_in(packing, waiting, most_price=most) is comes
    assert (packing.assignment == before) is not comes


def test_who_left_comes_home_and_the_new_one_goes_elsewhere() -> None:
    problem, packing, waiting = asked(
        snapshot(node("a"), node("b"), runs("x", "a", 6), pod("p", 5))
    )
    moved = next(c for c, k in enumerate(problem.classes) if k.running)
    packing.put(moved, 0, -1)
    packing.put(moved, 1, 1)
    packing.put(waiting, 0, 1)
    assert goes_home(packing, moved, 0)
    assert packing.assignment == {(moved, 0): 1, (waiting, 1): 1}


@FEW
@given(clusters())
@example(TWINS)
def test_coming_home_costs_nobody_a_place_and_makes_moves_cheaper(s: Snapshot) -> None:
    problem = compile_problem(s, moves=True)
    packing = Packing(problem, problem.start)
    for c in (c for c, k in enumerate(problem.classes) if k.uids):
        while let_in(packing, c) or swap_in(packing, c):
            pass
    for c, source in problem.start:
        values = placed_values(problem, packing.assignment)
        cost = disruption(problem, packing.assignment)
        if packing.assignment.get((c, source), 0) < problem.start[c, source]:
            came = goes_home(packing, c, source)
            assert placed_values(problem, packing.assignment) == values
            assert (disruption(problem, packing.assignment) < cost) is came
            assert (packing.free >= 0).all()
