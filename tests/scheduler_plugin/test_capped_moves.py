"""Plans that move running pods and count waiting ones at a cap: who has a level, and until when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler_plugin.app.plan_text import describe
from scheduler_plugin.documents.cap_option import CapOption
from scheduler_plugin.documents.plan_changes import RaiseLimit
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.promises.disruption_budget import DisruptionBudget
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.promises.move_book import Coming, Leaving, Member, MoveBook
from scheduler_plugin.promises.move_ends import MoveEnds
from scheduler_plugin.solve import SearchSettings, plan
from scheduler_plugin.solver.steps import evicted_by
from tests.examples import examples
from tests.scheduler_plugin.moving_cluster import MovingCluster, restarted
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import domain_object, plans
from wattpack.api import PowerDomain

UNCAPPED, CAPPED = 600, 351
"""Watts of a GPU, without and with the only cap on offer."""
HALF = CapOption(
    gpu_model="H200",
    kernel_class="training",
    cap_watts=400,
    cap_milli=571,
    watts_milli=584,
    speed_milli=800,
)
MOVES = SearchSettings(moves=True)


def server(name: str, on: str = "row", gpus: int = 8, **other: Any) -> Node:
    figures = {"class_watts_per_gpu": {"training": UNCAPPED}, "caps_held": True}
    return node(name, gpus, domain=on, **(figures | other))


def works(uid: str, gpus: int = 1, **other: Any) -> Pod:
    return pod(uid, gpus, kernel_class="training", **other)


def runs(uid: str, on: str, gpus: int = 1, **other: Any) -> Pod:
    return bound(uid, on, gpus, kernel_class="training", **({"move_seconds": 60} | other))


def with_cap(*parts: Any) -> Snapshot:
    return snapshot(*parts).model_copy(update={"cap_options": (HALF,)})


def moved(snap: Snapshot) -> Plan:
    found = plan(snap, deadline_seconds=0.2, settings=MOVES)
    assert found.refusals == ()
    return found


def row(limit: int, *more: Pod) -> Snapshot:
    """Two servers, a GPU of each in use, and a pod that wants a whole one."""
    running = runs("x", "a", priority=1), runs("y", "b", priority=1)
    servers = domain("row", limit), server("a"), server("b")
    return with_cap(*servers, *running, *(more or [works("p", 8)]))


def lost(found: Plan) -> list[str]:
    return [*evicted_by(found.steps), *(entry.uid for entry in found.pending)]


def test_who_waits_counts_at_the_cap_and_who_moves_without() -> None:
    found = moved(row(8 * CAPPED + UNCAPPED))
    assert [(p.uid, p.watts, p.cap_watts) for p in found.placements] == [("p", 8 * CAPPED, 400)]
    assert (len(found.steps), lost(found)) == (3, [])
    # The one that moves is not counted at the cap, although its work is the same.
    assert lost(moved(row(8 * CAPPED + UNCAPPED - 1))) == ["p"]


def test_identical_pods_that_wait_lend_their_level_to_nobody_who_runs() -> None:
    """They would be one class with one figure of watts."""
    least = (8 + 1) * CAPPED + UNCAPPED
    alike = works("p", 8, priority=1), works("q", 1, priority=1)
    assert lost(moved(row(least, *alike))) == []
    assert len(lost(moved(row(least - 1, *alike)))) == 1


def by_hand(snap: Snapshot, found: Plan) -> None:
    """Watts after each step, of arrivals alone: nobody who leaves gives any back."""
    pods, nodes = ({each.uid: each for each in snap.pods}, {n.name: n for n in snap.nodes})
    capped = {p.uid for p in found.placements if p.cap_watts}
    arrivals = [(s.uid, s.node) for s in found.steps if s.arrives]
    drawn = dict.fromkeys([d.name for d in snap.domains], 0)
    for uid, at in arrivals or [(p.uid, p.node) for p in found.placements]:
        each = UNCAPPED
        if uid in capped:
            assert nodes[at].caps_held
            assert pods[uid].state == "pending"
            assert pods[uid].least_cap_milli <= HALF.cap_milli
            each = CAPPED
        drawn[nodes[at].domain] += each * pods[uid].gpu_milli // 1000
        for one in snap.domains:
            assert drawn[one.name] <= one.limit_watts - one.used_watts


@st.composite
def houses(draw: st.DrawFn) -> Snapshot:
    limits = st.integers(0, 16 * UNCAPPED)
    parts: list[Any] = [domain(name, draw(limits)) for name in ("left", "right")]
    for i in range(draw(st.integers(2, 4))):
        on, held = draw(st.sampled_from(["left", "right"])), draw(st.booleans())
        gpus = draw(st.sampled_from([4, 8]))
        parts.append(server(f"n{i}", on, gpus, caps_held=held))
        for j in range(draw(st.integers(0, 2))):
            parts.append(runs(f"r{i}{j}", f"n{i}", draw(st.integers(1, gpus // 2))))
    for i in range(draw(st.integers(1, 5))):
        least, tier = draw(st.sampled_from([0, 0, 571, 600])), draw(st.integers(0, 1))
        asks = draw(st.sampled_from([1, 2, 4, 8]))
        parts.append(works(f"p{i}", asks, least_cap_milli=least, priority=tier))
    if draw(st.booleans()):
        parts.append(gang("g", 2, draw(st.sampled_from([2, 4])), kernel_class="training"))
    return with_cap(*parts)


@given(houses())
@examples(60, suppress_health_check=[HealthCheck.too_slow])
def test_every_step_holds_with_the_levels_by_hand_and_by_the_checker(snap: Snapshot) -> None:
    found = plan(snap, deadline_seconds=0.05, settings=MOVES)
    assert found.refusals == ()
    assert complaints(snap, found) == ()
    by_hand(snap, found)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cap_watts": 399}, "not on offer"),
        ({"cap_watts": 0}, "2808 W stated, 4800 W expected"),
        ({"watts": 2807}, "2807 W stated, 2808 W expected"),
    ],
)
def test_the_checker_judges_levels_in_plans_with_steps(change: dict[str, int], why: str) -> None:
    snap = row(8 * CAPPED + UNCAPPED)
    found = moved(snap)
    wrong = tuple(p.model_copy(update=change) for p in found.placements)
    told = complaints(snap, found.model_copy(update={"placements": wrong}))
    assert any(why in text for text in told)


@pytest.mark.parametrize("can_move", [None, 60])
def test_what_a_limit_would_have_to_be_is_told_at_the_levels_of_the_plan(
    can_move: int | None,
) -> None:
    """Whoever else could be moved: looking for moves does not count the plan's pods anew."""
    beside = runs("x", "b", 1, move_seconds=can_move)
    elsewhere = domain("other", 0), server("b", "other", 1)
    waiting = [works(f"p{i}") for i in range(8)]
    snap = with_cap(domain("row", 7 * CAPPED), server("a"), *elsewhere, beside, *waiting)
    found = plan(snap)
    assert (len(found.placements), len(found.pending)) == (7, 1)
    ((change,),) = (entry.changes for entry in found.pending)
    assert isinstance(change, RaiseLimit)
    assert change.watts == CAPPED


def test_people_see_the_level_beside_the_watts() -> None:
    snap = row(8 * CAPPED + UNCAPPED)
    lines = describe(snap, moved(snap)).splitlines()
    assert any(line.endswith("(+2,808 W at caps of 400 W)") for line in lines)
    assert "counted at caps of 400 W: 8 GPUs (H200, training)" in lines
    plain = describe(snap, plan(row(10**6)))
    assert "caps" not in plain


LIMIT = 7_000
"""2,700 W run. The mover takes 600 W, a pod that waits 5,700 W, or 3,000 W at the lowest cap."""
# In a cluster: a level stays with the pod from the plan to its pin

WORK = {"annotations": {"wattpack.io/kernel-class": "training"}}


def halves(limit: int, **limits: Any) -> MovingCluster:
    cluster = MovingCluster(settings={"cap_levels": True}, **limits)
    cluster.add_nodes("a", "b")
    cluster.add_accepted(domain_object("row", 2.0 * limit, ["a", "b"], enforcement="Enforce"))
    cluster.set_status(PowerDomain, "row", capBandWatts=float(limit), drawWatts=0.0)
    cluster.run_on("x", "a", 1, priorityClassName="high")
    cluster.run_on("y", "b", 1, priorityClassName="high")
    cluster.own("train", 8, 2, **WORK)
    return cluster


def caps_promised(cluster: MovingCluster) -> set[int]:
    lines = [line for body in plans(cluster) for line in body["spec"]["promises"]]
    return {line.get("capWatts", 0) for line in lines if line["name"].startswith("train")}


@pytest.mark.parametrize("killed_after", [0, 1, 3, 10])
def test_the_level_stays_until_the_pin_also_over_a_change_of_leaders(killed_after: int) -> None:
    cluster = halves(LIMIT)
    for turn in range(45):
        if killed_after and turn == killed_after:
            restarted(cluster)
        cluster.turn()
    assert cluster.where("train") in (["", "a"], ["", "b"])
    assert cluster.where("x") == cluster.where("y") != [""]
    assert len(cluster.kube.evictions) == 1
    assert cluster.ended("given_up") == 0
    (cap,) = caps_promised(cluster)
    assert cap > 0


@pytest.mark.parametrize("comes_back", [True, False])
def test_who_was_disturbed_gets_its_place_before_a_level_ends(comes_back: bool) -> None:
    """Once the other one is bound it counts without a cap, and the kept place lacks the watts."""
    cluster = halves(LIMIT)
    while not cluster.kube.evictions:
        cluster.turn()
    owner = cluster.kube.evictions[0].owner.removeprefix("rs-")
    cluster.scale(owner, 0)  # Its controller is slow.
    cluster.turns(50)
    assert cluster.pods_of(owner) == []
    assert cluster.where("train") == ["", ""]
    if comes_back:
        cluster.scale(owner, 1)
    cluster.turns(60)
    assert cluster.where("train") in (["", "a"], ["", "b"])
    assert cluster.ended("given_up") == 0
    assert len(cluster.pods_of(owner)) == comes_back
    assert "" not in cluster.where(owner)


@pytest.mark.parametrize(("keeps", "cap"), [(0, 400), (571, 400), (572, 0)])
def test_a_member_that_is_made_later_has_the_level_if_its_policies_bear_it(
    keeps: int, cap: int
) -> None:
    _, (expected,) = gang("g", 1, existing=0, least_cap_milli=571)
    member = Member("g-0", "team/", "a", expected, exists=False, cap_watts=400)
    book = MoveBook([Coming((member,), 1, 10**12)])
    assert [held.cap_watts for held in book.held()] == [400]
    _, (real,) = gang("g", 1, least_cap_milli=keeps)
    assert book.claim(real, "team/g-0", "owner", 10**12) is not None
    assert Ledger(moves=book).promised_cap_watts(real.uid) == cap


@pytest.mark.parametrize("cap", [0, 400])
def test_who_waits_for_the_successors_of_others_is_not_given_up(cap: int) -> None:
    """Although nobody leaves the node where it goes, and it may not go yet."""
    coming = Coming((Member("p", "team/p", "c", works("p"), cap_watts=cap),), 1, 10**12)
    leaving = Leaving("x", "team/x", "rs", "a", "b", runs("x", "a"), 1, 10**12, left_ns=1)
    book = MoveBook([leaving, coming])
    assert coming.waits_for_successors(book.steps) == bool(cap)
    ends = MoveEnds(book, DisruptionBudget(9, 9)).hopeless([], {}, "others have taken the room")
    assert [end.step for end in ends] == ([] if cap else [coming])
