"""What tenants, clumsy operators and finalizers do to a planner: nobody else pays for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler_plugin.app.plan_archive import PLANS
from scheduler_plugin.app.waiting_pods import UNSERVABLE, Unservable
from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.hami_boards import HamiBoards, registered_boards
from scheduler_plugin.promises import gang_places
from scheduler_plugin.promises.move_record import RECORD_ANNOTATION
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, node_object, plans, pod_object
from tests.scheduler_plugin.test_placement_promises import events, gated, judged_by, steps
from wattpack.kube.port import (
    PODS,
    ConflictError,
    ForbiddenError,
    InvalidError,
    JsonObject,
    ThrottledError,
    UnavailableError,
)
from wattpack.units import NS_PER_SECOND


def member(name: str, gang: str, size: object, gpus: int = 1) -> JsonObject:
    marks = {"wattpack.io/gang-size": str(size)}
    return pod_object(name, gpus, labels={"wattpack.io/gang": gang}, annotations=marks)


# Sizes that anybody may write


@pytest.mark.parametrize(("gangs", "size"), [(3, "100000"), (30, "3000"), (2, "2000-90000")])
def test_a_few_pods_of_absurd_gangs_stop_nobody_and_are_let_go(gangs: int, size: str) -> None:
    cluster = Cluster()
    cluster.add_nodes("n1", "n2")
    cluster.add(pod_object("good"))
    names = [f"odd{i}" for i in range(gangs)]
    for name in names:
        cluster.add(member(name, name, size))
    cluster.loop.step()
    assert gated(cluster) == sorted(names)
    steps(cluster, 65, every=5)
    assert gated(cluster) == []
    told = dict(events(cluster, "PlacementReleased"))
    assert told.keys() == set(names)
    assert all("the cluster has room for 16 such members when it is empty" in t
               for t in told.values())  # fmt: skip


def test_where_absent_members_are_too_many_the_smaller_gangs_are_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gang_places, "MOST_ABSENT", 10)
    cluster = Cluster()
    cluster.add_nodes("n1", "n2", "n3", "n4")
    for name, size in (("a", 9), ("b", 4), ("c", 6)):
        cluster.add(member(name, name, size))
    cluster.loop.step()
    assert gated(cluster) == ["a"]
    assert "with those of smaller gangs at most 10 may" in events(cluster, "PodPending")[0][1]


# Deleted before it was bound, and kept by a finalizer


@pytest.mark.parametrize("kind", ["ReplicaSet", "Job"])
def test_a_pod_deleted_before_it_was_bound_holds_nothing_and_blames_nobody(kind: str) -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    body = pod_object("p", 8)
    body["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    body["metadata"]["ownerReferences"][0]["kind"] = kind
    cluster.add(body)
    cluster.loop.step()
    assert pod_facts.pinned_node(cluster.pod("p")) == "n1"
    cluster.api.delete(PODS, "p", SPACE)
    next_one = pod_object("q", 8)
    next_one["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"]
    steps(cluster, 400, every=10)
    assert cluster.pod("p")["metadata"]["deletionTimestamp"]
    assert events(cluster, "PinRefused") == []
    cluster.add(next_one)
    steps(cluster, 1)
    assert pod_facts.pinned_node(cluster.pod("q")) == "n1"


# Refused for as long as anybody likes


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize(
    "kind", [InvalidError, ForbiddenError, ThrottledError, UnavailableError, ConflictError]
)
def test_in_a_quiet_cluster_every_failed_patch_is_followed_by_another_within_30_seconds(
    kind: type[Exception], size: int | None
) -> None:
    """Nothing happens but what the loop asks for, and its resynchronisation."""
    cluster = Cluster(resync_seconds=600.0)
    cluster.add_nodes("n1", "n2")
    times: list[float] = []

    def judge(name: str, dry_run: bool) -> None:
        times.append(cluster.clock.monotonic_ns() / NS_PER_SECOND)
        raise kind("no")

    for i in range(size or 1):
        cluster.add(pod_object("p") if size is None else member(f"g{i}", "g", size))
    judged_by(cluster, judge)
    end_ns = 900 * NS_PER_SECOND
    while cluster.clock.monotonic_ns() < end_ns:
        again_ns = cluster.loop.step().again_ns or end_ns
        now_ns = cluster.clock.monotonic_ns()
        cluster.clock.advance_seconds(max(0.05, (again_ns - now_ns) / NS_PER_SECOND))
    gaps = [b - a for a, b in zip(times, [*times[1:], 900.0], strict=True)]
    assert max(gaps) <= 30.0, gaps


def test_a_cycle_that_had_no_time_for_causes_does_not_begin_the_wait_anew() -> None:
    wait = Unservable(60 * NS_PER_SECOND)
    hopeless, unknown = min(UNSERVABLE), PendingReason.NOT_EXPLAINED.value
    for second in range(0, 60, 10):
        said = {"u": (unknown if second % 20 else hopeless, ""), "v": (unknown, "")}
        assert wait.due(said, second * NS_PER_SECOND) == []
    assert wait.due({"u": (unknown, ""), "v": (unknown, "")}, 60 * NS_PER_SECOND) == ["u"]
    room = {"u": (PendingReason.INSUFFICIENT_GPUS.value, "")}
    assert wait.due(room, 61 * NS_PER_SECOND) == []
    assert wait.due({"u": (hopeless, "")}, 62 * NS_PER_SECOND) == []


# Edited by hand


def _leaving(uid: str) -> JsonObject:
    return {
        "kind": "leaving", "uid": uid, "key": f"{SPACE}/x", "owner": "o", "source": "n1",
        "target": "n2", "template": {"uid": uid, "gpu_milli": 1000}, "chain": 1,
        "until": 2**40, "has_left": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [
        json.dumps({"steps": [_leaving("a"), _leaving("a")]}),
        json.dumps({"steps": [_leaving("a") | {"target": "gone", "source": "gone"}]}),
        json.dumps({"steps": [_leaving("a") | {"chain": 10**40}]}),
        "[" * 100_000,
        "{",
    ],
)
def test_a_record_of_moves_that_somebody_edited_stops_no_planning(record: str) -> None:
    cluster = Cluster(moves={"enabled": True})
    cluster.add_nodes("n1", "n2")
    cluster.add(pod_object("p"))
    cluster.loop.step()
    (plan,) = plans(cluster)
    edited = plan["metadata"] | {"annotations": {RECORD_ANNOTATION: record}}
    cluster.api.replace(PLANS, plan | {"metadata": edited})
    cluster.bind()
    cluster.add(pod_object("q"))
    cluster.loop = cluster.new_loop()
    assert cluster.loop.step().outcome == "planned"
    assert gated(cluster) == []


DIGITS = "9" * 4000


@pytest.mark.parametrize(
    "said",
    ["b,x,1,1:", f"b,x,{DIGITS},1:", f"b,x,0,{DIGITS}:", "b,x,-5,-5:", "b,x,١,1:", ",,,", "b"],
)
def test_whatever_a_pod_says_of_its_part_of_a_board_it_holds_at_most_the_board(said: str) -> None:
    node = node_object("n1")
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": '[{"id":"b","devmem":9}]'}
    pod = pod_object("p", annotations={"hami.io/vgpu-devices-allocated": said})
    held: dict[str, Any] = HamiBoards([node]).of_pod(pod, "n1")
    assert 0 <= held.get("gpu_milli", 0) + held.get("drawn_milli", 0) <= 1000


@pytest.mark.parametrize("said", ["[" * 20_000, '[{"id":1,"devmem":1e999}]', f"b,1,{DIGITS}:"])
def test_a_register_of_boards_that_cannot_be_read_is_none(said: str) -> None:
    assert (
        registered_boards({"metadata": {"annotations": {"hami.io/node-nvidia-register": said}}})
        is None
    )
