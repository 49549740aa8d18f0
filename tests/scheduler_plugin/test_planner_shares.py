"""Shares of a board in whole plans: each on one board, whatever the order and whoever moves."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import Pod, PodState, Snapshot, parse_snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.room.board_shares import BoardShares
from scheduler_plugin.room.board_states import packed
from scheduler_plugin.room.pod_demand import Demand
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.chains import let_in
from scheduler_plugin.solver.search import SearchSettings
from scheduler_plugin.solver.steps import changes
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import domain, node, pod, snapshot
from wattpack.errors import InputError

SIZES = (250, 300, 400, 500, 600, 700, 1000, 2000)


def share(uid: str, milli: int, **other: Any) -> Pod:
    return pod(uid, gpu_milli=milli, milli_cpu=100, memory_bytes=0, **other)


def running(uid: str, milli: int, on: str = "a", **other: Any) -> Pod:
    return share(uid, milli, state=PodState.BOUND, node=on, **other)


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Up to three nodes of up to three boards; who runs says where, or does not, and may move."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    parts: list[Any] = [domain("row", draw(st.sampled_from([1_500, 100_000])))]
    parts += [node(f"n{i}", size, domain="row") for i, size in enumerate(sizes)]
    for number, size in enumerate(sizes):
        left = [1000] * size
        for i in range(draw(st.integers(0, 3))):
            milli = draw(st.sampled_from(SIZES[:-1]))
            able = [board for board in range(size) if left[board] >= milli]
            if able:
                at = draw(st.sampled_from(able))
                left[at] -= milli
                cost = draw(st.sampled_from([None, 10, 60]))
                told = (at,) if draw(st.booleans()) else ()
                parts.append(
                    running(
                        f"r{number}{i}", milli, f"n{number}", gpu_boards=told, move_seconds=cost
                    )
                )
    for i in range(draw(st.integers(1, 7))):
        tier = draw(st.sampled_from([0, 0, 10]))
        parts.append(share(f"p{i}", draw(st.sampled_from(SIZES)), priority=tier))
    return snapshot(*parts)


@examples(120)
@given(crowded(), st.booleans())
def test_every_plan_keeps_each_share_on_one_board(s: Snapshot, moves: bool) -> None:
    made = plan(s, deadline_seconds=0.1, settings=SearchSettings(moves=moves))
    assert made.refusals == ()
    assert complaints(s, made) == ()
    for tier in made.tiers:
        assert tier.cumulative_value <= tier.bound_value
    if not moves and len(made.pending) == 1 and not any(r.gpu_milli > 999 for r in s.pods):
        assert not fits_somewhere(s, made, made.pending[0].uid)


def fits_somewhere(s: Snapshot, made: Plan, uid: str) -> bool:
    """Whether a board has room for a share beside what the plan says; watts are left out."""
    if s.domains[0].limit_watts < 100_000 or any(
        p.state is PodState.BOUND and not p.gpu_boards for p in s.pods
    ):
        return False
    pods = {p.uid: p for p in s.pods}
    used: dict[tuple[str, int], int] = {}
    for who, where, boards in [
        *((p.uid, p.node, p.gpu_boards) for p in s.pods if p.node),
        *((p.uid, p.node, p.boards) for p in made.placements),
    ]:
        for board in boards:
            used[where, board] = used.get((where, board), 0) + pods[who].gpu_milli
    return any(
        used.get((n.name, board), 0) + pods[uid].gpu_milli <= 1000
        for n in s.nodes
        for board in range(n.gpu_milli // 1000)
    )


def judged(s: Snapshot, uid: str, on: str, *boards: int) -> str:
    watts = -(-next(p.gpu_milli for p in s.pods if p.uid == uid) * 700 // 1000)
    placement = Placement(uid=uid, node=on, watts=watts, boards=boards)
    answer = Plan(snapshot_digest=s.digest(), method="greedy", placements=(placement,))
    return " ".join(complaints(s, answer))


def test_the_checker_counts_each_board() -> None:
    s = snapshot(node("a", 2), running("x", 600, gpu_boards=(1,)), share("p", 500))
    assert judged(s, "p", "a", 0) == ""
    assert "1100 milli of board 1" in judged(s, "p", "a", 1)
    assert "there is no board 2" in judged(s, "p", "a", 2)
    assert "boards () for 500" in judged(s, "p", "a")
    assert "boards (0, 1) for 500" in judged(s, "p", "a", 0, 1)


def test_a_whole_board_is_not_given_where_a_share_runs() -> None:
    s = snapshot(node("a", 2), running("x", 100, gpu_boards=(0,)), pod("p", 1), pod("q", 1))
    made = plan(s)
    assert [p.boards for p in made.placements] == [(1,)]
    assert len(made.pending) == 1


def test_who_does_not_say_where_he_runs_is_on_the_fullest_board_that_has_it() -> None:
    told = running("x", 600, gpu_boards=(1,))
    s = snapshot(node("a", 2), told, running("y", 300), pod("p", 1))
    (placed,) = plan(s).placements
    assert placed.boards == (0,)
    s = snapshot(node("a", 2), told, running("y", 500), pod("p", 1))
    assert plan(s).placements == ()


def test_a_share_draws_its_part_of_the_watts_rounded_up() -> None:
    s = snapshot(domain("d", 234), node("a", 1, domain="d"), share("p", 333), share("q", 333))
    made = plan(s)
    assert [p.watts for p in made.placements] == [234]
    assert [p.reason for p in made.pending] == ["PowerDomainFull"]


def test_a_share_without_a_board_says_so() -> None:
    there = [running(f"x{i}", 600, gpu_boards=(i,)) for i in (0, 1)]
    s = snapshot(node("a", 2), *there, share("p", 500))
    (waits,) = plan(s).pending
    assert waits.reason == "InsufficientGpus"
    assert (
        "needs 0.5 of one GPU on one node; the only eligible node has at most 0.4 free"
        in waits.message
    )
    (waits,) = plan(snapshot(node("a", 0), share("p", 500))).pending
    assert waits.reason == "LargerThanAnyNode"


@examples(200)
@given(
    st.lists(st.sampled_from([100, 200, 250, 300, 400, 500, 600, 700, 1000]), max_size=6),
    st.lists(st.sampled_from([1000, 1000, 700, 500, 300, 0]), min_size=1, max_size=3),
)
def test_an_arrangement_is_found_exactly_where_there_is_one(
    parts: list[int], left: list[int]
) -> None:
    def holds(chosen: tuple[int, ...]) -> bool:
        sums = [0] * len(left)
        for part, board in zip(parts, chosen, strict=True):
            sums[board] += part
        return all(used <= has for used, has in zip(sums, left, strict=True))

    parts.sort(reverse=True)
    found = packed(parts, left)
    ways = itertools.product(range(len(left)), repeat=len(parts))
    assert (found is not None) == any(map(holds, ways))
    assert found is None or holds(tuple(found))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"gpu_milli": 1_001}, "pods.0.gpu_milli"),
        ({"gpu_milli": -1}, "pods.0.gpu_milli"),
        ({"gpu_milli": 2**60}, "pods.0.gpu_milli"),
        ({"gpu_milli": 0.5}, "pods.0.gpu_milli"),
        ({"gpu_boards": [2]}, "pods.gpu_boards"),
        ({"gpu_boards": [-1]}, "pods.0.gpu_boards.0"),
        ({"gpu_boards": [1000]}, "pods.0.gpu_boards.0"),
        ({"gpu_boards": [0, 1]}, "pods.0.gpu_boards"),
        ({"gpu_boards": [1, 1], "gpu_milli": 2000}, "pods.0.gpu_boards"),
        ({"state": "pending", "node": "", "gpu_boards": [0]}, "pods.0.gpu_boards"),
    ],
)
def test_a_share_or_board_that_cannot_be_is_refused(changes: dict[str, Any], field: str) -> None:
    document = json.loads(snapshot(node("a", 2), running("x", 500)).model_dump_json())
    document["pods"][0] |= changes
    with pytest.raises(InputError) as refusal:
        parse_snapshot(json.dumps(document))
    assert refusal.value.field == field


def test_a_running_share_leaves_its_own_board() -> None:
    """Two halves on two boards: a move of one frees a board; the other stays where it is."""
    halves = [running(f"x{i}", 500, gpu_boards=(i,), move_seconds=10) for i in (0, 1)]
    s = snapshot(node("a", 2), node("b", 1), *halves, running("y", 500, on="b"), pod("p", 1))
    made = plan(s, deadline_seconds=0.3, settings=SearchSettings(moves=True))
    assert complaints(s, made) == ()
    assert {(p.uid, p.node) for p in made.placements} == {("p", "a")}
    (mover,) = {step.uid for step in made.steps} - {"p"}
    assert made.placements[0].boards == (int(mover[1]),)
    assert [step.boards for step in made.steps if step.uid == mover] == [(), (0,)]


def most_placed(s: Snapshot) -> tuple[int, ...]:
    """The best values by tier over every way to put waiting pods on boards, one by one."""
    boards = {(n.name, b): 1000 for n in s.nodes for b in range(n.gpu_milli // 1000)}
    for one in s.pods:
        for board in one.gpu_boards:
            boards[one.node, board] -= one.gpu_milli
    waiting = [p for p in s.pods if not p.node]
    tiers = sorted({p.priority for p in waiting}, reverse=True)

    def best(i: int) -> tuple[int, ...]:
        if i == len(waiting):
            return (0,) * len(tiers)
        one, found = waiting[i], best(i + 1)
        for board, left in boards.items():
            if left >= one.gpu_milli:
                boards[board] -= one.gpu_milli
                rest = best(i + 1)
                boards[board] += one.gpu_milli
                with_it = zip(tiers, rest, strict=True)
                found = max(
                    found, tuple(v + one.gpu_milli * (t == one.priority) for t, v in with_it)
                )
        return found

    return best(0)


@examples(60)
@given(
    st.lists(st.integers(1, 2), min_size=1, max_size=2),
    st.lists(st.sampled_from(SIZES[:-1]), max_size=2),
    st.lists(st.tuples(st.sampled_from(SIZES[:-1]), st.sampled_from([0, 0, 5])), max_size=5),
)
def test_small_problems_are_solved_as_trying_all_ways_does(
    nodes: list[int], there: list[int], waiting: list[tuple[int, int]]
) -> None:
    s = snapshot(
        *(node(f"n{i}", boards) for i, boards in enumerate(nodes)),
        *(running(f"r{i}", m, f"n{i}", gpu_boards=(0,)) for i, m in enumerate(there[: len(nodes)])),
        *(share(f"p{i}", milli, priority=tier) for i, (milli, tier) in enumerate(waiting)),
    )
    made = plan(s, deadline_seconds=2.0)
    assert made.refusals == ()
    assert tuple(tier.placed_value for tier in made.tiers) == most_placed(s)


def test_a_chain_frees_a_board_and_a_share_of_one() -> None:
    """The cheap pod that leaves a full board is not on the one where there would be room."""
    full = [running("f", 700, gpu_boards=(0,)), running("g", 300, gpu_boards=(0,), move_seconds=1)]
    there = [*full, running("x", 600, gpu_boards=(1,), move_seconds=50)]
    elsewhere = [node("b", 1), running("y", 300, on="b")]
    for waiting, mover in ((share("p", 900), "x"), (pod("p", 1), "x"), (share("p", 450), "x")):
        problem = compile_problem(snapshot(node("a", 2), *there, *elsewhere, waiting), moves=True)
        packing = Packing(problem, problem.start)
        assert let_in(packing, next(c for c, k in enumerate(problem.classes) if "p" in k.uids))
        moved = changes(problem, packing.assignment).arrivals
        assert {one.uid for one in moved} == {"p", mover}


def test_a_running_pod_comes_back_to_the_board_that_it_left() -> None:
    half = Demand((0, 0, 0, 1), share_milli=500, runs_as=0)
    boards = BoardShares(np.array([[1000, 1000]]), {(0, half): ((0,), (1,))})
    for _ in range(2):
        boards.put(half, 0)
    boards.take(half, 0, (0,))
    other = boards.copy()
    boards.put(half, 0)
    assert sorted(boards.held(half, 0)) == [(0,), (1,)]
    assert boards.states_of(0) == [500, 500]
    assert other.states_of(0) == [1000, 500]
    boards.take(half, 0, (7,))
    assert sorted(boards.states_of(0)) == [500, 1000]
