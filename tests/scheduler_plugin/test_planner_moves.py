"""Plans that move running pods: what they gain, in which order, and what they never do."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler_plugin.app.plan_text import describe
from scheduler_plugin.documents.node_rules import Taint, TaintEffect
from scheduler_plugin.documents.plan_document import Plan, Step
from scheduler_plugin.documents.snapshot import Pod, PodState, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import SearchSettings, plan
from scheduler_plugin.solver.steps import evicted_by
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from wattpack.clock import ManualClock

MOVES = SearchSettings(moves=True)
FEW = examples(40, suppress_health_check=[HealthCheck.too_slow])


def moved(s: Snapshot, seconds: float = 0.3) -> Plan:
    return plan(s, deadline_seconds=seconds, settings=MOVES)


def runs(uid: str, on: str, gpus: int = 1, **other: Any) -> Pod:
    """A running pod that can be moved."""
    return bound(uid, on, gpus, **({"move_seconds": 60} | other))


def walked(s: Snapshot, steps: tuple[Step, ...]) -> list[dict[str, str]]:
    """Where every pod is after each step."""
    at = {p.uid: p.node for p in s.pods if p.node}
    states = [dict(at)]
    for step in steps:
        if step.arrives:
            at[step.uid] = step.node
        else:
            assert at.pop(step.uid) == step.node
        states.append(dict(at))
    return states


def value_from_the_top(s: Snapshot, at: dict[str, str]) -> tuple[int, ...]:
    pods = {p.uid: p for p in s.pods}
    worth: Counter[int] = Counter()
    for uid in at:
        worth[-pods[uid].priority] += max(1, pods[uid].gpu_milli // 1000)
    return tuple(worth[priority] for priority in sorted({-p.priority for p in s.pods}))


def two_halves(**other: Any) -> Snapshot:
    return snapshot(
        node("a"), node("b"), runs("x", "a", 4, **other), runs("y", "b", 4, **other), pod("p", 8)
    )


def test_one_move_makes_room_and_comes_first() -> None:
    assert [entry.uid for entry in plan(two_halves()).pending] == ["p"]
    found = moved(two_halves())
    mover, source = found.steps[0].uid, found.steps[0].node
    target = found.steps[1].node
    assert [(one.uid, one.node, one.arrives) for one in found.steps] == [
        (mover, source, False),
        (mover, target, True),
        ("p", source, True),
    ]
    assert found.objective[-5] == -4 * 60, "GPU seconds of the one move"


@pytest.mark.parametrize("fixed", [{"move_seconds": None}, {"priority": 5, "move_seconds": None}])
def test_who_may_not_be_moved_stays(fixed: dict[str, Any]) -> None:
    found = moved(two_halves(**fixed))
    assert (found.steps, [entry.uid for entry in found.pending]) == ((), ["p"])


def test_the_cheaper_of_two_moves_is_made() -> None:
    parts = node("a"), node("b"), runs("x", "a", 4, move_seconds=900), runs("y", "b", 4)
    found = moved(snapshot(*parts, pod("p", 8)))
    assert {step.uid for step in found.steps} == {"y", "p"}


@pytest.mark.parametrize(("waits", "goes"), [(9, ["low"]), (0, []), (-1, [])])
def test_only_for_more_important_work_somebody_loses_a_place(waits: int, goes: list[str]) -> None:
    found = moved(snapshot(node("a"), runs("low", "a", 8), pod("p", 8, priority=waits)))
    assert list(evicted_by(found.steps)) == goes
    assert [p.uid for p in found.placements] == (["p"] if goes else [])


def test_a_pod_keeps_a_place_that_it_could_not_get_anew() -> None:
    taint = Taint(key="drain", effect=TaintEffect.NO_SCHEDULE)
    found = moved(snapshot(node("a", taints=(taint,)), runs("x", "a", 4), pod("p", 1)))
    assert (found.steps, [entry.uid for entry in found.pending]) == ((), ["p"])


def test_a_circle_is_broken_by_its_cheapest_pod() -> None:
    """Both nodes are full of GPUs of one and CPU of the other: only a swap lets the third in."""
    big, small = {"milli_cpu": 60_000}, {"milli_cpu": 10_000}
    found = moved(
        snapshot(
            node("a", 4, milli_cpu=70_000),
            node("b", 4, milli_cpu=100_000),
            runs("x", "a", 2, **big),
            runs("y", "b", 2, **small, move_seconds=5),
            runs("z", "b", 2, milli_cpu=30_000),
            pod("p", 2, milli_cpu=40_000),
        ),
        2.0,
    )
    assert [p.uid for p in found.placements] == ["p"]
    assert not evicted_by(found.steps)


def test_a_gang_arrives_in_one_piece() -> None:
    members = gang("g", 2, 4)
    found = moved(snapshot(node("a"), runs("x", "a", 2), node("b", 2), members))
    assert [(one.uid, one.arrives) for one in found.steps] == [
        ("x", False),
        ("x", True),
        ("g-0", True),
        ("g-1", True),
    ]


def test_a_move_needs_watts_where_it_goes_and_gives_none_back() -> None:
    def house(limit: int) -> Snapshot:
        rooms = domain("left", 10**6), domain("right", limit)
        nodes = node("a", domain="left"), node("b", domain="right")
        return snapshot(*rooms, *nodes, runs("x", "a", 4), pod("p", 8))

    assert [p.node for p in moved(house(5_600)).placements] == ["b"]
    nodes = node("a", domain="d"), node("b", domain="d")
    tight = snapshot(
        domain("d", 8_000, used=5_000), *nodes, runs("x", "a", 4), runs("y", "b", 4), pod("p", 8)
    )
    assert not moved(tight).placements, "5.6 kW for p and 2.8 kW for the mover: 3 kW are left"


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    nodes = [node(f"n{i}", draw(st.sampled_from([4, 8]))) for i in range(draw(st.integers(2, 5)))]
    left = {one.name: one.gpu_milli // 1000 for one in nodes}
    pods = []
    for i in range(draw(st.integers(0, 14))):
        gpus, priority = draw(st.sampled_from([1, 2, 4])), draw(st.integers(0, 2))
        able = [name for name, free in left.items() if free >= gpus]
        if able and draw(st.booleans()):
            name = draw(st.sampled_from(able))
            left[name] -= gpus
            price = draw(st.sampled_from([None, 0, 5, 600]))
            pods.append(bound(f"r{i}", name, gpus, priority=priority, move_seconds=price))
        else:
            pods.append(pod(f"w{i}", draw(st.sampled_from([1, 4, 8])), priority=priority))
    return snapshot(*nodes, *pods)


@FEW
@given(clusters())
def test_every_prefix_holds_and_nothing_important_is_lost(s: Snapshot) -> None:
    found = moved(s, 0.1)
    assert complaints(s, found) == ()
    offered = {one.name: one.gpu_milli for one in s.nodes}
    pods = {p.uid: p for p in s.pods}
    states = walked(s, found.steps)
    for at in states:
        used: Counter[str] = Counter()
        for uid, name in at.items():
            used[name] += pods[uid].gpu_milli
        assert all(milli <= offered[name] for name, milli in used.items())
    end = states[-1] | {p.uid: p.node for p in found.placements}
    start = {p.uid: p.node for p in s.pods if p.node}
    assert value_from_the_top(s, end) >= value_from_the_top(s, start)
    without = plan(s, deadline_seconds=0.1)
    kept = start | {p.uid: p.node for p in without.placements}
    assert value_from_the_top(s, end) >= value_from_the_top(s, kept)


def faulty(s: Snapshot, steps: tuple[Step, ...], **changed: Any) -> tuple[str, ...]:
    return complaints(s, moved(s).model_copy(update={"steps": steps} | changed))


def test_the_checker_walks_the_list() -> None:
    s = two_halves()
    good = moved(s).steps
    assert complaints(s, moved(s)) == ()
    assert "gpu_milli would be 12000 of 8000" in faulty(s, good[::-1][:1] + good[:2])[0]
    twice = faulty(s, (*good, Step(uid="p", node="a", arrives=True)))
    assert twice == (f"step 4, pod p: it is on {good[2].node}",)
    assert faulty(s, good[:2]) == ("the steps do not end where the placements are",)
    lost = (good[0], good[2])
    assert faulty(s, lost) == (), "8 GPUs for 4, of one priority"
    nobody = {"placements": (), "pending": plan(s).pending}
    assert faulty(s, good[:1], **nobody) == ("priority 0 would lose 4 and nothing above gains",)


def test_the_checker_lets_no_fixed_pod_leave() -> None:
    s = two_halves()
    steps = moved(s).steps
    fixed = two_halves(move_seconds=None)
    made = moved(s).model_copy(update={"snapshot_digest": fixed.digest()})
    assert any("it may not be moved" in why for why in complaints(fixed, made))
    assert all(one.uid != two.uid or one.arrives != two.arrives for one, two in pairwise(steps))


def test_people_read_the_steps_in_order() -> None:
    text = describe(two_halves(), moved(two_halves()))
    assert "1. team/" in text
    assert "3. team/p -> " in text
    assert "(+5,600 W)" in text
    gone = snapshot(node("a"), runs("low", "a", 8), pod("p", 8, priority=9))
    assert "1. team/low evicted from a" in describe(gone, moved(gone))


def test_without_moves_running_pods_are_as_ever() -> None:
    s = two_halves()
    assert plan(s) == plan(s, settings=SearchSettings())
    assert all(p.state is PodState.BOUND for p in s.pods if p.uid in {"x", "y"})


class Passing(ManualClock):
    """Every look at it takes a tenth of a second."""

    def monotonic_ns(self) -> int:
        self.advance_seconds(0.1)
        return super().monotonic_ns()


def test_the_wall_limit_counts_all_that_the_plan_takes() -> None:
    nodes = [node(f"n{i}") for i in range(6)]
    running = [runs(f"r{i}", f"n{i}", 3 + i % 4) for i in range(6)]
    s = snapshot(*nodes, *running, *[pod(f"w{i}", 7) for i in range(4)])
    given = Passing()
    found = plan(s, deadline_seconds=1e6, settings=SearchSettings(1, 2.0, True, given))
    assert complaints(s, found) == ()
    assert given.monotonic_ns() < 4e9, "the search ended once it saw that its time was over"
    assert plan(s, deadline_seconds=0.5, settings=MOVES) == plan(
        s, deadline_seconds=0.5, settings=MOVES
    ), "without a wall limit nothing depends on time"
