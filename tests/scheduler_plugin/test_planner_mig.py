"""Boards that are cut as pods ask for it, against trying every way to cut small ones."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.app.plan_text import describe
from scheduler_plugin.documents.mig_geometry import GEOMETRIES, milli_left, value_milli
from scheduler_plugin.documents.mig_placement import MigPlacement
from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import Pod, PodState, Snapshot, parse_snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.promises.gang_places import Room
from scheduler_plugin.room.board_shares import BoardShares
from scheduler_plugin.room.pod_demand import Demand
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.search import SearchSettings
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import domain, node, pod, snapshot
from wattpack.errors import InputError

#: "Number of Instances Available" in the guide's tables, in the order of their rows.
PUBLISHED = {"A30-24GB": (4, 1, 2, 1, 1), "A100-40GB": (7, 1, 4, 3, 2, 1, 1)}
A100, A30 = GEOMETRIES["A100-40GB"], GEOMETRIES["A30-24GB"]
NAMES = ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
#: First slices and length by profile of an A100-40GB, as the driver lists them.
TABLE = {
    "1g.5gb": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g.5gb+me": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g.10gb": ((0, 2, 4, 6), 2),
    "2g.10gb": ((0, 2, 4), 2),
    "3g.20gb": ((0, 4), 4),
    "4g.20gb": ((0,), 4),
    "7g.40gb": ((0,), 8),
}


def cut(uid: str, *profiles: str, **other: Any) -> Pod:
    asked = dict(Counter(profiles))
    return pod(uid, 0, mig_profiles=asked, milli_cpu=0, memory_bytes=0, **other)


def runs(uid: str, on: str, *places: tuple[str, int, int], **other: Any) -> Pod:
    told = tuple(MigPlacement(profile=p, board=b, start=s) for p, b, s in places)
    names = [p for p, _, _ in places]
    where = {"state": PodState.BOUND, "node": on, "mig_placements": told}
    return cut(uid, *names, **(where | other))


def board_holds(profiles: list[str]) -> bool:
    """Whether some way to lay these on one board leaves no slice used twice."""
    for starts in itertools.product(*(TABLE[name][0] for name in profiles)):
        used = [
            slice_
            for name, start in zip(profiles, starts, strict=True)
            for slice_ in range(start, start + TABLE[name][1])
        ]
        if len(set(used)) == len(used):
            return sum(name.endswith("+me") for name in profiles) < 2
    return False


def node_holds(profiles: list[str], boards: int) -> bool:
    """The same over several boards."""
    for on in itertools.product(range(boards), repeat=len(profiles)):
        groups = [[p for p, b in zip(profiles, on, strict=True) if b == i] for i in range(boards)]
        if all(map(board_holds, groups)):
            return True
    return False


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_many_instances_fit_as_are_published(name: str) -> None:
    geometry = GEOMETRIES[name]
    for profile, most in zip(geometry.profiles, PUBLISHED[name], strict=True):
        boards = BoardShares(np.array([[1000, 1000]]), {}, (geometry,))
        demand = Demand((0, 0, 0, 1), mig_profiles=(profile,))
        assert boards.rooms(demand, np.array([0])).tolist() == [2 * most]


def test_every_seven_slice_board_is_cut_alike() -> None:
    for geometry in GEOMETRIES.values():
        assert milli_left(geometry, 0) == 1000
        shapes = [(p.compute_slices, p.memory_slices, p.starts) for p in geometry.profiles.values()]
        alike = A30 if geometry is A30 else A100
        assert shapes == [
            (p.compute_slices, p.memory_slices, p.starts) for p in alike.profiles.values()
        ]
    assert value_milli(["3g.20gb", "4g.20gb"]) == 428 + 571


@examples(150)
@given(st.integers(1, 2), st.lists(st.sampled_from(NAMES), max_size=5))
def test_instances_are_placed_exactly_where_a_board_could_be_cut_so(
    boards: int, profiles: list[str]
) -> None:
    """One after the other, in any order, rearranging what the plan itself has placed."""
    shares = BoardShares(np.array([[1000] * boards]), {}, (A100,))
    for name in profiles:
        shares.put(Demand((0, 0, 0, 1), mig_profiles=(name,)), 0)
    assert shares.is_overbooked() is not node_holds(profiles, boards)
    for name in reversed(profiles):
        shares.take(Demand((0, 0, 0, 1), mig_profiles=(name,)), 0)
    assert shares.states_of(0) == [1000] * boards
    assert not shares.is_overbooked()


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Boards that may be cut and boards that may not, with whole ones, shares and instances."""
    parts: list[Any] = [domain("row", draw(st.sampled_from([900, 100_000])))]
    for i in range(draw(st.integers(1, 2))):
        geometry = draw(st.sampled_from(["A100-40GB", "A100-40GB", ""]))
        boards = draw(st.integers(1, 2))
        parts.append(node(f"n{i}", boards, domain="row", mig_geometry=geometry, watts_per_gpu=400))
        cost = draw(st.sampled_from([None, 10]))
        if geometry and draw(st.booleans()):
            name = draw(st.sampled_from(NAMES[:-1]))
            told = (name, boards - 1, TABLE[name][0][-1])
            parts.append(runs(f"r{i}", f"n{i}", told, move_seconds=cost))
        elif draw(st.booleans()):
            where = {"state": PodState.BOUND, "node": f"n{i}", "move_seconds": cost}
            what = draw(st.sampled_from([("1g.10gb",), ("3g.20gb", "1g.5gb"), ()]))
            parts.append(cut(f"r{i}", *what, **where) if what else pod(f"r{i}", 1, **where))
    for i in range(draw(st.integers(1, 5))):
        tier = draw(st.sampled_from([0, 0, 10]))
        kind = draw(st.sampled_from([*NAMES, "two", "share", "whole"]))
        if kind == "two":
            parts.append(cut(f"p{i}", "1g.10gb", "2g.10gb", priority=tier))
        elif kind in NAMES:
            parts.append(cut(f"p{i}", kind, priority=tier))
        else:
            parts.append(pod(f"p{i}", gpu_milli=400 if kind == "share" else 1000, priority=tier))
    return snapshot(*parts)


@examples(120)
@given(clusters(), st.booleans())
def test_the_checker_accepts_every_plan_and_bounds_hold(s: Snapshot, moves: bool) -> None:
    made = plan(s, deadline_seconds=0.2, settings=SearchSettings(moves=moves))
    assert made.refusals == ()
    assert complaints(s, made) == ()
    for tier in made.tiers:
        assert tier.cumulative_value <= tier.bound_value


@examples(40)
@given(
    st.integers(1, 2),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 5])), max_size=5),
)
def test_small_problems_are_solved_as_trying_all_ways_does(
    boards: int, waiting: list[tuple[str, int]]
) -> None:
    pods = [cut(f"p{i}", name, priority=tier) for i, (name, tier) in enumerate(waiting)]
    s = snapshot(node("n", boards, mig_geometry="A100-40GB"), *pods)
    tiers = sorted({tier for _, tier in waiting}, reverse=True)
    best = max(
        tuple(value_milli([n for n, t in chosen if t == tier]) for tier in tiers)
        for count in range(len(waiting) + 1)
        for chosen in itertools.combinations(waiting, count)
        if node_holds([name for name, _ in chosen], boards)
    )
    made = plan(s, deadline_seconds=2.0)
    assert made.refusals == ()
    assert tuple(tier.placed_value for tier in made.tiers) == best


def judged(s: Snapshot, uid: str, *cuts: tuple[str, int, int], boards: tuple[int, ...] = ()) -> str:
    told = tuple(MigPlacement(profile=p, board=b, start=at) for p, b, at in cuts)
    placement = Placement(uid=uid, node="n", watts=58, mig=told, boards=boards)
    answer = Plan(snapshot_digest=s.digest(), method="greedy", placements=(placement,))
    return " ".join(complaints(s, answer))


def test_the_checker_counts_slices() -> None:
    there = runs("r", "n", ("3g.20gb", 0, 4))
    whole = pod("w", 1, state=PodState.BOUND, node="n", gpu_boards=(1,))
    n = node("n", 3, mig_geometry="A100-40GB", watts_per_gpu=400)
    s = snapshot(n, there, whole, cut("p", "1g.5gb"))
    assert judged(s, "p", ("1g.5gb", 0, 3)) == ""
    assert "slices of board 0 are used twice" in judged(s, "p", ("1g.5gb", 0, 5))
    assert "board 1 is cut and used whole" in judged(s, "p", ("1g.5gb", 1, 5))
    assert "has no 1g.5gb at slice 7" in judged(s, "p", ("1g.5gb", 0, 7))
    assert "no board 3" in judged(s, "p", ("1g.5gb", 3, 0))
    assert "MIG instances {} for" in judged(s, "p")
    assert "MIG instances {'2g.10gb': 1} for" in judged(s, "p", ("2g.10gb", 0, 0))
    share = snapshot(n, there, pod("p", gpu_milli=145))
    assert "board 0 is cut and used" in judged(share, "p", boards=(0,))
    assert judged(share, "p", boards=(1,)) == ""


def test_boards_as_they_are_give_only_what_exists() -> None:
    """Instances that the device plugin offers are resources like any others; nothing is cut."""
    name = "nvidia.com/mig-1g.5gb"
    fixed = node("n", 0, resources={name: 2})
    asked = [pod(f"p{i}", 0, resources={name: 1}) for i in range(3)]
    made = plan(snapshot(fixed, *asked, cut("q", "1g.5gb")))
    assert len(made.placements) == 2
    assert {p.uid: p.reason for p in made.pending}["q"] == "LargerThanAnyNode"


def test_a_sevenths_watts_are_rounded_up() -> None:
    s = snapshot(
        domain("d", 58), node("n", 1, mig_geometry="A100-40GB", domain="d", watts_per_gpu=400),
        cut("p", "1g.5gb"), cut("q", "1g.5gb"),
    )  # fmt: skip
    made = plan(s)
    assert [p.watts for p in made.placements] == [58]
    assert [p.reason for p in made.pending] == ["PowerDomainFull"]


@pytest.mark.parametrize(
    ("where", "change", "field"),
    [
        ("nodes", {"mig_geometry": "A101"}, "nodes.0.mig_geometry"),
        ("nodes", {"mig_geometry": "A30-24GB"}, "pods.mig_placements"),
        ("nodes", {"mig_geometry": ""}, "pods.mig_placements"),
        ("pods", {"mig_profiles": {"9g.1gb": 1}}, "pods.0.mig_profiles"),
        ("pods", {"mig_profiles": {"1g.5gb": 0}}, "pods.0.mig_profiles.1g.5gb"),
        ("pods", {"mig_profiles": {"1g.5gb": -1}}, "pods.0.mig_profiles.1g.5gb"),
        ("pods", {"mig_profiles": {"1g.5gb": 10**12}}, "pods.0.mig_profiles.1g.5gb"),
        ("pods", {"mig_profiles": {"1g.5gb": 2}}, "pods.0.mig_placements"),
        ("pods", {"gpu_milli": 1000}, "pods.0.mig_profiles"),
        ("pods", {"state": "pending", "node": ""}, "pods.0.mig_placements"),
    ],
)
def test_what_cannot_be_cut_is_refused(where: str, change: dict[str, Any], field: str) -> None:
    good = snapshot(node("n", 2, mig_geometry="A100-40GB"), runs("r", "n", ("1g.5gb", 0, 0)))
    document = json.loads(good.model_dump_json())
    document[where][0] |= change
    with pytest.raises(InputError) as refusal:
        parse_snapshot(json.dumps(document))
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "place", [("1g.5gb", 2, 0), ("1g.5gb", 0, 7), ("2g.10gb", 0, 1), ("1g.5gb", 1, 4)]
)
def test_a_place_that_a_board_does_not_have_is_refused(place: tuple[str, int, int]) -> None:
    other = runs("a", "n", ("3g.20gb", 1, 4))
    with pytest.raises(InputError, match="mig_placements"):
        parse_snapshot(
            json.dumps(
                {
                    "nodes": [json.loads(node("n", 2, mig_geometry="A100-40GB").model_dump_json())],
                    "pods": [
                        json.loads(p.model_dump_json()) for p in (other, runs("r", "n", place))
                    ],
                }
            )
        )


def test_a_kept_place_is_on_one_board_with_what_is_there() -> None:
    """Two boards with 600 thousandths each have 800 left, and none of them half a board."""
    there = [
        pod(f"r{i}", gpu_milli=600, state=PodState.BOUND, node="n", gpu_boards=(i,)) for i in (0, 1)
    ]
    room = Room([node("n", 2), node("m", 2, mig_geometry="A100-40GB")], there)
    assert not room.holds(pod("a", gpu_milli=500), "n")
    assert [room.holds(pod(f"b{i}", gpu_milli=400), "n") for i in range(3)] == [True, True, False]
    assert [room.holds(cut(f"c{i}", "3g.20gb"), "m") for i in range(3)] == [True, True, True]
    assert not room.holds(pod("d", 1), "m")
    assert not room.holds(cut("e", "1g.5gb"), "n")


@pytest.mark.parametrize("moves", [False, True])
def test_boards_that_do_not_hold_what_runs_get_nothing(moves: bool) -> None:
    """Somebody else bound too much there: what would be left is anybody's guess."""
    where: dict[str, Any] = {"state": PodState.BOUND, "move_seconds": 5}
    s = snapshot(
        *(pod(f"a{i}", gpu_milli=800, node="a", **where) for i in range(4)),
        cut("b0", "3g.20gb", "3g.20gb", "3g.20gb", **(where | {"node": "b"})),
        pod("b1", 1, node="b", **where),
        *(node(name, 3 - (name == "b"), mig_geometry="A100-40GB") for name in "abc"),
        pod("p", gpu_milli=100),
        cut("q", "1g.5gb"),
        pod("r", 1),
    )
    made = plan(s, deadline_seconds=0.2, settings=SearchSettings(moves=moves))
    assert made.refusals == ()
    at = {p.uid: p.node for p in made.placements}
    assert at.pop("r") == "c"
    assert set(at.values()) == {"c"}


def test_who_waits_for_slices_is_told_which() -> None:
    there = runs("r", "n", ("1g.5gb", 0, 3))
    s = snapshot(node("n", 1, mig_geometry="A100-40GB"), there, cut("p", "3g.20gb", "3g.20gb"))
    (waits,) = plan(s).pending
    assert waits.message == (
        "needs 2 x MIG 3g.20gb on one node; "
        "the only eligible node has no boards with the slices free"
    )
    (waits,) = plan(snapshot(node("n", 1, mig_geometry="A30-24GB"), cut("p", "1g.5gb"))).pending
    assert waits.message == "no eligible node has 1 x MIG 1g.5gb in total (1 eligible)"
    s = snapshot(s.nodes[0], there, cut("q", "3g.20gb"))
    assert "team/q -> n board 0 (3g.20gb from slice 4) (+300 W)" in describe(s, plan(s))
