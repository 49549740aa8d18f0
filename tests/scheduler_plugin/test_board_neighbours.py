"""Where pairs of work were measured on a shared board, they count; elsewhere added shares do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.interference.pair_model import PairRow, SharedJob
from capacity.interference.shared_speeds import SharedSpeeds
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from scheduler_plugin.documents.changed_snapshot import apply_changes
from scheduler_plugin.documents.plan_changes import AddNodes
from scheduler_plugin.documents.plan_document import PendingReason, Placement, Plan
from scheduler_plugin.documents.shared_boards import BANDWIDTH_MILLI, COMPUTE_MILLI
from scheduler_plugin.documents.snapshot import Node, Pod, PodState, SlowDown, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.kube_objects.power_view import PowerView, model_watts
from scheduler_plugin.kube_objects.shared_work import MAX_KINDS
from scheduler_plugin.packing import greedy_orders
from scheduler_plugin.packing.problem import Assignment, Problem
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.room.board_neighbours import NOBODY, Crowd, Neighbours, Sharer
from scheduler_plugin.snapshot_builder import ClusterObjects, build_snapshot
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.search import LOOKS_PER_SECOND, Search, SearchSettings
from tests.examples import examples
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    node_object,
    pod_object,
    profile_object,
)
from wattpack.api import WorkloadProfile
from wattpack.kube.port import NODES, PODS, JsonObject
from wattpack.object_names import GATE

SHARED = "nvidia.com/gpu.shared"


def crowd_of(sharers: Iterable[Sharer]) -> Crowd:
    """Of pods one by one."""
    crowd = NOBODY
    for sharer in sharers:
        crowd = crowd.plus(sharer, 1)
    return crowd


def node(name: str, limit: int = 1300, boards: int = 1) -> Node:
    offers = (limit or 10**6) * boards
    return Node(
        name=name, gpu_model="H200", milli_cpu=96_000, memory_bytes=2**40, shared_boards=boards,
        slow_down_limit_milli=limit,
        resources={SHARED: 40, COMPUTE_MILLI: offers, BANDWIDTH_MILLI: offers},
    )  # fmt: skip


def sharer(uid: str, work: str, share: int = 900, **other: Any) -> Pod:
    shares = {COMPUTE_MILLI: share, BANDWIDTH_MILLI: 100} if share else {}
    return Pod(uid=uid, shared_work=work, resources={SHARED: 1, **shares}, **other)


def pairs(*measured: tuple[str, str, int]) -> tuple[SlowDown, ...]:
    both = {(a, b): milli for a, b, milli in measured} | {(b, a): m for a, b, m in measured}
    return tuple(
        SlowDown(gpu_model="H200", work=a, beside=b, slow_down_milli=m)
        for (a, b), m in both.items()
    )


MEASURED = pairs(
    ("small", "large", 1150), ("greedy", "large", 2400), ("small", "small", 1100),
    ("large", "large", 1800),
)  # fmt: skip


def places(*parts: Node | Pod, known: tuple[SlowDown, ...] = MEASURED) -> dict[str, str]:
    return {p.uid: p.node for p in planned(*parts, known=known).placements}


def planned(*parts: Node | Pod, known: tuple[SlowDown, ...] = MEASURED) -> Plan:
    question = Snapshot(
        nodes=tuple(p for p in parts if isinstance(p, Node)),
        pods=tuple(p for p in parts if isinstance(p, Pod)),
        slow_downs=known,
    )
    found = plan(question, deadline_seconds=0.05)
    assert not found.refusals
    return found


def test_a_pair_that_bears_one_another_shares_though_its_shares_add_up_to_more() -> None:
    both = (sharer("p", "small"), sharer("q", "large"))
    assert len(places(node("a"), *both)) == 2
    assert len(places(node("a"), *both, known=())) == 1


def test_a_pair_that_does_not_is_kept_apart_though_its_shares_would_fit() -> None:
    both = (sharer("p", "greedy", 300), sharer("q", "large", 300))
    found = places(node("a"), node("b"), *both)
    assert found["p"] != found["q"]
    assert len(places(node("a"), *both, known=())) == 2


def test_a_neighbour_that_may_be_moved_counts_once() -> None:
    runs = sharer("p", "small", state=PodState.BOUND, node="a", move_seconds=5)
    question = Snapshot(
        nodes=(node("a", 1200),), pods=(runs, sharer("q", "large")), slow_downs=MEASURED
    )
    found = plan(question, deadline_seconds=0, settings=SearchSettings(moves=True))
    assert [(p.uid, p.node) for p in found.placements] == [("q", "a")]


def test_who_waits_for_its_neighbours_is_told_whose_and_by_how_much() -> None:
    running = sharer("runs", "large", 300, state=PodState.BOUND, node="a")
    (entry,) = planned(node("a"), running, sharer("p", "greedy", 300)).pending
    assert entry.reason is PendingReason.SLOW_NEIGHBOURS
    assert "2.40 times as long, 1.30 is allowed" in entry.message


def test_beside_a_pair_that_nobody_measured_shares_count_for_all() -> None:
    small, large = sharer("p", "small"), sharer("q", "large")
    stranger = sharer("s", "stranger", 500, state=PodState.BOUND, node="a")
    assert places(node("a"), stranger, small, large) == {}
    (entry, _) = planned(node("a"), stranger, small, large).pending
    assert "never measured" in entry.message


def test_whom_a_full_shared_board_keeps_out_is_told_that_one_more_node_would_do() -> None:
    one = node("n")
    full = one.model_copy(update={"resources": one.resources | {SHARED: 1}})
    pods = sharer("a", "small"), sharer("b", "large")
    (waiting,) = planned(full, *pods).pending
    assert waiting.changes == (AddNodes(like="n", count=1),)
    before = Snapshot(nodes=(full,), pods=pods, slow_downs=MEASURED)
    assert plan(apply_changes(before, waiting.changes)).pending == ()


def test_three_on_a_board_slow_one_another_as_time_slices_add_up() -> None:
    trio = [sharer(f"p{i}", "small") for i in range(4)]
    assert len(places(node("a", 1200), *trio)) == 3  # 1 + 0.1 + 0.1, and a fourth would be 1.3
    assert len(places(node("a", 1300), *trio)) == 4


def test_on_boards_of_one_node_each_meets_the_worst_that_it_can() -> None:
    alone = [sharer("p", "greedy"), sharer("q", "large")]
    assert len(places(node("a", 1300, boards=2), *alone)) == 2
    third = sharer("r", "small")
    assert len(places(node("a", 1300, boards=2), *alone, third)) == 2


def test_on_a_node_without_a_limit_nothing_changes() -> None:
    crowd = [sharer(f"p{i}", "greedy") for i in range(3)] + [sharer("q", "large")]
    assert len(places(node("a", limit=0), *crowd)) == 4


SHARERS = st.lists(
    st.tuples(st.sampled_from(["small", "large", "greedy", "stranger", ""]), st.integers(0, 10)),
    min_size=1, max_size=7,
)  # fmt: skip


@examples(40)
@given(SHARERS, SHARERS, st.integers(1000, 2600), st.integers(1, 3))
def test_no_plan_with_measured_pairs_is_refused_by_the_independent_judge(
    running: list[tuple[str, int]], waiting: list[tuple[str, int]], limit: int, boards: int
) -> None:
    bound = [
        sharer(f"b{i}", work, 100 * share, state=PodState.BOUND, node="a")
        for i, (work, share) in enumerate(running)
    ]
    pods = [sharer(f"p{i}", work, 100 * share) for i, (work, share) in enumerate(waiting)]
    found = planned(node("a", limit, boards), node("b", limit, boards), *bound, *pods)
    assert all(tier.cumulative_value <= tier.bound_value for tier in found.tiers)


@examples(40)
@given(SHARERS, st.integers(1000, 2600), st.integers(1, 3))
def test_pairs_of_other_work_change_no_plan(
    waiting: list[tuple[str, int]], limit: int, boards: int
) -> None:
    pods = [sharer(f"p{i}", work, 100 * share) for i, (work, share) in enumerate(waiting)]
    nodes = (node("a", limit, boards), node("b", limit, boards))
    of_others = pairs(("alpha", "beta", 1900))
    assert len(places(*nodes, *pods, known=of_others)) == len(places(*nodes, *pods, known=()))


@examples(40)
@given(SHARERS, st.integers(1000, 2600), st.integers(1, 3))
def test_who_leaves_never_makes_the_rest_unbearable(
    crowd: list[tuple[str, int]], limit: int, boards: int
) -> None:
    """Halving in ``most_more`` and the bounds stand on it."""
    rule = Neighbours(Snapshot(nodes=(node("a", limit, boards),), slow_downs=MEASURED))
    together = Counter(Sharer(work, 100 * share, 100) for work, share in crowd)
    if rule.holds(0, crowd_of(together.elements())):
        for leaving in together:
            assert rule.holds(0, crowd_of((together - Counter([leaving])).elements()))


@examples(40)
@given(SHARERS, SHARERS, st.integers(1000, 2600), st.integers(1, 3))
def test_how_many_more_fit_is_what_trying_one_by_one_says(
    crowd: list[tuple[str, int]], waiting: list[tuple[str, int]], limit: int, boards: int
) -> None:
    rule = Neighbours(Snapshot(nodes=(node("a", limit, boards),), slow_downs=MEASURED))
    there = crowd_of(Sharer(work, 100 * share, 100) for work, share in crowd)
    for work, share in waiting:
        new = Sharer(work, 100 * share, 100)
        tried = [k for k in range(6) if rule.holds(0, there.plus(new, k))]
        assert rule.most_more(0, there, new, 5) == max(tried, default=0)


def storm(pods: int) -> Snapshot:
    """Pods of 48 kinds that all name other shares, more than 20 nodes take."""
    kinds = [f"w{i}" for i in range(MAX_KINDS)]
    return Snapshot(
        nodes=tuple(node(f"n{i}", 1020, boards=8) for i in range(20)),
        pods=tuple(sharer(f"p{i}", kinds[i % MAX_KINDS], 1 + i % 997) for i in range(pods)),
        slow_downs=pairs(*[(a, b, 1010) for i, a in enumerate(kinds) for b in kinds[i:]]),
    )


@pytest.mark.parametrize(
    # One order is for shares of boards, of which there are none here.
    ("deadline_seconds", "passes"),
    [(0.4, 1), (2.0, len(greedy_orders.ORDERS) - 1)],
)
def test_a_storm_of_pods_that_all_differ_keeps_the_deadline(
    monkeypatch: pytest.MonkeyPatch, deadline_seconds: float, passes: int
) -> None:
    """Counted in looks, not by a clock; the first greedy plan stands whatever else there is."""
    packed: list[Problem] = []

    def pack(
        problem: Problem, order: greedy_orders.JobOrder, *, spread: bool = False
    ) -> Assignment:
        packed.append(problem)
        return first(problem, order, spread=spread)

    def attempt(*_: object) -> bool:
        raise AssertionError("CP-SAT moves no sharer: it has nothing to do here")

    first = greedy_orders.pack
    monkeypatch.setattr(greedy_orders, "pack", pack)
    monkeypatch.setattr(Search, "attempt", attempt)
    found = plan(storm(900), deadline_seconds=deadline_seconds)
    rule = packed[0].neighbours
    assert rule is not None
    assert rule.looks <= 2 * deadline_seconds * LOOKS_PER_SECOND
    assert len(packed) == passes
    assert not found.refusals
    assert found.placements


def test_shares_make_a_storm_no_dearer_than_its_kinds_do() -> None:
    """Another share is another class, but pairs are searched by kind."""
    rule = Neighbours(storm(1))
    there = crowd_of(Sharer(f"w{i}", 100, 100) for i in range(9))
    rule.most_more(0, there, Sharer("w0", 1, 1), 1)
    once = rule.looks
    for share in range(2, 102):
        rule.most_more(0, there, Sharer("w0", share, 1), 1)
    assert rule.looks == once + 100


def test_the_judge_refuses_a_pair_that_it_knows_to_be_too_slow() -> None:
    question = Snapshot(
        nodes=(node("a"),),
        pods=(sharer("p", "greedy", 100), sharer("q", "large", 100)),
        slow_downs=MEASURED,
    )
    both = tuple(Placement(uid=uid, node="a") for uid in "pq")
    made = Plan(snapshot_digest=question.digest(), method="greedy", placements=both)
    assert "2400 / 1000" in complaints(question, made)[0]


# From the objects that people write.


def shared_node(name: str, limit: str = "1.3") -> JsonObject:
    labels = {"wattpack.io/shared-slow-down-limit": limit, "nvidia.com/gpu.count": "1"}
    return node_object(name, 0, offers={SHARED: "10"}, labels=labels)


def work_pod(name: str, work: str, **annotations: str) -> JsonObject:
    marks = {f"wattpack.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    gate = {"schedulingGates": [{"name": GATE}]}
    labels = {"wattpack.io/workload": work} if work else {}
    return pod_object(name, 0, asks={SHARED: "1"}, labels=labels, annotations=marks, **gate)


def profile(*measured: tuple[str, str, float, float]) -> JsonObject:
    body = profile_object()
    body["spec"]["sharedPairs"] = [
        {"workload": a, "beside": b, "speed": s, "besideSpeed": t} for a, b, s, t in measured
    ]
    return body


def released(body: JsonObject, *pods: JsonObject, described: JsonObject | None = None) -> int:
    """How many of the pods one cycle lets onto one shared board."""
    cluster, made = Cluster(), shared_node("n")
    cluster.api.create(NODES, made)
    cluster.api.replace(
        NODES, {**cluster.api.get(NODES, "n"), "status": made["status"]}, subresource="status"
    )
    cluster.add(body)
    if described is not None:
        cluster.api.create(WorkloadProfile.meta.resource, described, SPACE)
    for pod in pods:
        cluster.api.create(PODS, pod, SPACE)
    return len(cluster.loop.step().released)


SHARE = {"gpu_compute_share": "0.9", "gpu_bandwidth_share": "0.1"}


def test_pairs_of_a_gpu_profile_reach_the_planner() -> None:
    both = (work_pod("p", "embed", **SHARE), work_pod("q", "tune", **SHARE))
    assert released(profile(("embed", "tune", 0.92, 0.9)), *both) == 2
    assert released(profile(("embed", "tune", 0.3, 0.9)), *both) == 1
    assert released(profile(), *both) == 1


def test_a_pod_without_shares_counts_with_those_of_its_work() -> None:
    """A catalogue entry that keeps the board busy all the time has no room for another."""
    both = (work_pod("p", "decoder-prefill"), work_pod("q", "decoder-prefill"))
    assert released(profile(), *both) == 1
    assert released(profile(), work_pod("p", ""), work_pod("q", "no-such-work")) == 2


def test_pods_that_all_say_other_batch_sizes_neither_stop_nor_slow_a_plan() -> None:
    crowd = [work_pod(f"p{i}", "embed", batch_size=str(i + 1), **SHARE) for i in range(400)]
    nodes = [shared_node("n")]
    speeds = SharedSpeeds(
        {"H200-SXM": [PairRow(SharedJob("embed", 1), SharedJob("embed", 1), 0.9)]}
    )
    for body in crowd:
        body["metadata"] |= {"uid": body["metadata"]["name"], "resourceVersion": "1"}
    models = model_watts(ProfileBook.shipped(shipped_library()))
    objects = ClusterObjects(
        nodes=tuple(nodes), pods=tuple(crowd), power=PowerView((), ()), models=models,
        shared_speeds=speeds,
    )  # fmt: skip
    built = build_snapshot(objects, Ledger())
    assert len(built.pending) == 400
    assert len(built.snapshot.slow_downs) == MAX_KINDS**2


@pytest.mark.parametrize(("idle", "together"), [(0.5, 2), (0.2, 1)])
def test_a_workload_profile_s_kernel_mix_says_how_much_of_a_board_it_keeps_busy(
    idle: float, together: int
) -> None:
    mix = {"decode": 1.0 - idle, "idle": idle}
    described = {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "WorkloadProfile",
        "metadata": {"name": "quiet", "namespace": SPACE},
        "spec": {"kind": "Serving", "kernelMix": mix},
    }  # fmt: skip
    both = (work_pod("p", "quiet"), work_pod("q", "quiet"))
    assert released(profile(), *both, described=described) == together


def test_what_people_say_of_a_pod_counts_before_its_work() -> None:
    little = {"gpu_compute_share": "0.2", "gpu_bandwidth_share": "0.1"}
    both = (work_pod("p", "decoder-prefill", **little), work_pod("q", "decoder-prefill", **little))
    assert released(profile(), *both) == 2


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e3", ""])
def test_a_batch_size_that_is_none_is_refused_by_name(text: str) -> None:
    cluster_pod = work_pod("p", "embed", batch_size=text)
    assert released(profile(("embed", "embed", 0.9, 0.9)), cluster_pod) == 0


@pytest.mark.parametrize(
    ("measured", "names"),
    [
        ([("a", "b", 0.5, 0.5), ("b", "a", 0.5, 0.5)], r"sharedPairs\[1\]"),
        ([("a", "a", 0.5, 0.6)], "besideSpeed"),
        ([("a", "b", 1.5, 0.5)], "speed"),
        ([("a", "b", 0.0, 0.5)], "speed"),
    ],
)
def test_pairs_that_make_no_sense_are_refused_and_the_last_good_ones_stay(
    measured: list[tuple[str, str, float, float]], names: str
) -> None:
    good = profile(("a", "b", 0.5, 0.7))
    book = ProfileBook.shipped(shipped_library()).with_objects([good])
    after = book.with_objects([profile(*measured)])
    assert len(after.shared_pairs["H200-SXM"]) == 2
    (refusal,) = after.refusals.values()
    assert re.search(names, refusal.message)
