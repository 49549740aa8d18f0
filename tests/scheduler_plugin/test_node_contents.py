"""Other contents of whole nodes: as much is placed, fewer leave, against oracles of their own."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._priority_arms import snapshot_of
from benchmarks._priority_floor import least_leaving
from benchmarks._priority_instances import Combination, draw_case
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_orders import orders_of, pack
from scheduler_plugin.packing.objective import disruption, placed_by_stage, placed_values
from scheduler_plugin.packing.problem import Assignment, Problem, compile_problem
from scheduler_plugin.solve import SearchSettings, plan
from scheduler_plugin.solver.newcomers import MOST_PODS, best_sets
from scheduler_plugin.solver.node_contents import NodeContents, plain_classes
from tests.scheduler_plugin.placement_builders import (
    bound,
    domain,
    gang,
    node,
    pod,
    quota,
    snapshot,
)
from tests.scheduler_plugin.test_planner_moves import FEW, clusters

AMOUNTS = st.integers(1, 9)
ASKS = st.lists(
    st.tuples(AMOUNTS, AMOUNTS, st.integers(0, 2), st.integers(-2, 9)), min_size=1, max_size=4
)


@FEW
@given(ASKS, st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_for_any_room_the_sets_have_the_best_of_all(
    asks: list[tuple[int, int, int, int]], room: tuple[int, int]
) -> None:
    table = np.array(asks, dtype=np.int64)
    most = np.array([20, 20])
    sets = best_sets(table[:, :2], table[:, 2], table[:, 3].astype(np.float64), most, cells=21)
    fits = (sets.room <= room).all(axis=1)
    pods = [c for c, ask in enumerate(asks) for _ in range(ask[2])]
    best = 0
    for size in range(1, MOST_PODS + 1):
        for some in itertools.combinations(pods, size):
            if all(sum(asks[c][r] for c in some) <= room[r] for r in (0, 1)):
                best = max(best, sum(asks[c][3] for c in some))
    assert sets.worth[fits].max() == best
    for taken, worth, classes in zip(sets.room, sets.worth, sets.classes, strict=True):
        held = Counter(c for c in classes.tolist() if c >= 0)
        assert worth == sum(asks[c][3] * k for c, k in held.items())
        assert all(taken[r] == sum(asks[c][r] * k for c, k in held.items()) for r in (0, 1))
        assert all(k <= asks[c][2] for c, k in held.items())


def changed(problem: Problem, best: Assignment) -> Assignment:
    """With the contents that a call finds, until one finds none."""
    packing = Packing(problem, best)
    classes, nodes = sorted(plain_classes(problem)), range(len(problem.node_names))
    while classes:
        contents = NodeContents(packing, classes, nodes)
        if not contents.is_comparable:
            break
        contents.generate(lambda: False)
        found = contents.pick(1.0, 60.0, seed=0).assignment
        if found is None:
            break
        assert disruption(problem, found) < disruption(problem, packing.assignment)
        packing.become(found)
    assert not packing.states.is_overbooked()
    return dict(packing.assignment)


@pytest.mark.parametrize("seed", range(8))
def test_next_to_nobody_leaves_more_than_an_exact_model_lets(seed: int) -> None:
    case = draw_case(Combination(4, 4, 2, 0.95), seed, 0)
    problem = compile_problem(snapshot_of(case, case.start, movable=True), moves=True)
    scratch = pack(problem, orders_of(problem)[0][0]).assignment
    found = changed(problem, scratch)
    counts = placed_values(problem, found)
    assert counts >= placed_values(problem, scratch)
    placed = tuple(value // 1000 for value in counts)
    least = least_leaving(case, placed, 60.0)
    assert least.least == least.bound
    assert least.bound <= disruption(problem, found) <= least.bound + 1


@FEW
@given(clusters())
def test_all_that_was_placed_stays_placed(s: Snapshot) -> None:
    problem = compile_problem(s, moves=True)
    scratch = pack(problem, orders_of(problem)[0][0]).assignment
    found = changed(problem, scratch)
    before, after = placed_by_stage(problem, scratch), placed_by_stage(problem, found)
    assert all(more >= less for more, less in zip(after, before, strict=True))
    plain = plain_classes(problem)
    fixed = {key: count for key, count in scratch.items() if key[0] not in plain}
    assert fixed == {key: count for key, count in found.items() if key[0] not in plain}


PLAIN, HOST, PART = pod("plain"), pod("host", 0), pod("part", 0, gpu_milli=300)


@pytest.mark.parametrize(
    ("parts", "plain"),
    [
        ([node("n0"), PLAIN, HOST, gang("g", 2, 1)], {"plain", "host"}),
        ([domain("d", 9_000), node("n0", domain="d"), PLAIN, HOST], {"host"}),
        ([node("n0"), PLAIN, HOST, PART], {"host"}),
        ([node("n0"), pod("plain", quotas=("q",)), HOST, quota("q", pods=0)], {"host"}),
    ],
    ids=["gang", "power", "boards told apart", "quota"],
)
def test_what_more_than_room_decides_is_left_to_others(parts: list[Any], plain: set[str]) -> None:
    problem = compile_problem(snapshot(*parts), moves=True)
    assert {problem.classes[c].pod.name for c in plain_classes(problem)} == plain


def test_who_made_room_for_a_gang_does_not_come_back_into_it() -> None:
    nodes = [node(name, 8) for name in "abc"]
    runs = [
        bound(u, n, 4, move_seconds=60, priority=-10) for u, n in zip("xyz", "abc", strict=True)
    ]
    question = snapshot(*nodes, *runs, gang("g", 2))
    made = plan(question, deadline_seconds=0.2, settings=SearchSettings(moves=True))
    assert made.refusals == ()
    assert made.pending == ()


PARTS = st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 250, 500, 700]), st.booleans())


@FEW
@given(st.lists(PARTS, min_size=2, max_size=6), st.integers(2, 5))
def test_who_leaves_for_a_share_of_a_board_does_not_stay_as_well(
    parts: list[tuple[int, int, bool]], cores: int
) -> None:
    """Shares are no part of contents, but they take of the same cores."""
    pods, left = [], cores
    for i, (asked, share, runs) in enumerate(parts):
        amounts = {"gpu_milli": share, "milli_cpu": asked * 1000}
        if runs and asked <= left:
            left -= asked
            pods.append(bound(f"r{i}", "n", 0, move_seconds=i + 1, **amounts))
        else:
            pods.append(pod(f"w{i}", 0, **amounts))
    question = snapshot(node("n", 4, milli_cpu=cores * 1000), *pods)
    made = plan(question, deadline_seconds=0.1, settings=SearchSettings(moves=True))
    assert made.refusals == ()
    on = {p.uid: p.milli_cpu for p in pods if p.node or p.uid in {x.uid for x in made.placements}}
    gone = {step.uid for step in made.steps if not step.arrives}
    assert sum(milli for uid, milli in on.items() if uid not in gone) <= cores * 1000
