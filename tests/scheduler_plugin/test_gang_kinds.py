"""Every gang source through the planner on an embedded API; elastic gangs begin at their least."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_plugin.app.served_kinds import LOOK_AGAIN_SECONDS
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, events, pod_object
from wattpack.gang_sources import GANG_SOURCES
from wattpack.kube.port import JsonObject, Resource

GPU = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
TEMPLATE = {"spec": {"containers": [GPU]}}
#: By source: what its pods carry, and the spec of the owner named ``g`` that makes three of them.
OWNERS: dict[str, tuple[JsonObject, JsonObject]] = {
    "JobSet": (
        {"labels": {"jobset.sigs.k8s.io/jobset-name": "g"}},
        {
            "replicatedJobs": [
                {"name": "w", "replicas": 3, "template": {"spec": {"template": TEMPLATE}}}
            ]
        },
    ),
    "Kueue Workload": (
        {"annotations": {"kueue.x-k8s.io/workload": "g"}},
        {"podSets": [{"name": "main", "count": 3, "template": TEMPLATE}]},
    ),
    "native PodGroup": (
        {"schedulingGroup": {"podGroupName": "g"}},
        {"schedulingPolicy": {"gang": {"minCount": 3}}},
    ),
    "native Workload of 1.35": (
        {"workloadRef": {"name": "g", "podGroup": "w"}},
        {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 3}}}]},
    ),
    "coscheduling PodGroup": (
        {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        {"minMember": 3},
    ),
    "Volcano PodGroup": ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {"minMember": 3}),
    "RayCluster": (
        {"labels": {"ray.io/cluster": "g"}},
        {"workerGroupSpecs": [{"replicas": 3, "template": TEMPLATE}]},
    ),
}
KINDS = {source.name: source.kinds for source in GANG_SOURCES}
VERSIONS = [(name, kind) for name in OWNERS for kind in KINDS[name]]


def add_owner(cluster: Cluster, kind: Resource, spec: JsonObject) -> None:
    body = {"apiVersion": kind.api_version, "kind": kind.kind}
    cluster.api.create(kind, body | {"metadata": {"name": "g"}, "spec": spec}, SPACE)


@pytest.mark.parametrize(
    ("name", "kind"), VERSIONS, ids=[f"{kind.kind} {kind.api_version}" for _, kind in VERSIONS]
)
def test_three_members_of_any_source_start_together(
    cluster: Cluster, name: str, kind: Resource
) -> None:
    marks, spec = OWNERS[name]
    add_owner(cluster, kind, spec)
    for i in range(3):
        cluster.add(pod_object(f"p{i}", 8, **marks))
    assert cluster.loop.step().released == {}, "two nodes for three members"
    assert {reason.split(":")[0] for _, reason in events(cluster)} == {"GangExceedsCluster"}
    cluster.add_nodes("n3")
    assert len(cluster.loop.step().released) == 3


def test_a_kind_that_is_installed_later_is_found(cluster: Cluster) -> None:
    marks, spec = OWNERS["Volcano PodGroup"]
    cluster.add(pod_object("p0", 8, **marks))
    result = cluster.loop.step()
    assert result.pending[f"{SPACE}/p0"][0] == "InvalidRequest"
    add_owner(cluster, KINDS["Volcano PodGroup"][0], spec | {"minMember": 1})
    cluster.clock.advance_seconds(LOOK_AGAIN_SECONDS)
    assert list(cluster.loop.step().released) == [f"{SPACE}/p0"]


def test_pods_of_another_scheduler_are_fixed_load_whatever_group_they_name(
    cluster: Cluster,
) -> None:
    marks: dict[str, Any] = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    cluster.add(pod_object("theirs", 8, schedulerName="volcano", **marks))
    assert cluster.loop.step().outcome == "idle"
    cluster.api.bind("theirs", SPACE, "n1")
    for i in range(2):
        cluster.add(pod_object(f"ours{i}", 8))
    assert list(cluster.loop.step().released.values()) == ["n2"]


def elastic(name: str, size: str) -> JsonObject:
    labels, annotations = {"wattpack.io/gang": "g"}, {"wattpack.io/gang-size": size}
    return pod_object(name, 8, labels=labels, annotations=annotations)


def test_an_elastic_gang_begins_with_its_least_and_says_so_to_the_others(cluster: Cluster) -> None:
    for i in range(3):
        cluster.add(elastic(f"e{i}", "2-3"))
    result = cluster.loop.step()
    assert sorted(result.released) == [f"{SPACE}/e0", f"{SPACE}/e1"]
    assert result.pending[f"{SPACE}/e2"][0] == "GangMinimumFirst"
    cluster.bind()
    assert cluster.loop.step().pending[f"{SPACE}/e2"][0] == "InsufficientGpus"


@pytest.mark.parametrize(("free", "started"), [(2, 2), (1, 0)])
def test_an_elastic_gang_begins_without_members_at_another_gate(
    cluster: Cluster, free: int, started: int
) -> None:
    for i in range(3):
        body = elastic(f"e{i}", "2-3")
        if i >= free:
            body["spec"]["schedulingGates"] = [{"name": "other.io/gate"}]
        cluster.add(body)
    result = cluster.loop.step()
    assert len(result.released) == started
    reasons = {reason for reason, _ in result.pending.values()}
    assert started or reasons == {"SiblingGated"}


@settings(max_examples=25, deadline=None)
@given(
    rooms=st.integers(0, 6),
    members=st.integers(1, 6),
    least=st.integers(2, 5),
    more=st.integers(0, 3),
)
def test_an_elastic_gang_has_from_its_least_to_its_most_members_or_none(
    rooms: int, members: int, least: int, more: int
) -> None:
    cluster = Cluster()
    cluster.add_nodes(*(f"n{i}" for i in range(rooms)))
    most = least + more
    for i in range(members):
        cluster.add(elastic(f"e{i}", f"{least}-{most}"))
    started = 0
    for _ in range(4):
        released = cluster.loop.step().released
        started += len(released)
        # Members that do not exist yet have places, too.
        assert started == 0 or started >= min(least, members)
        cluster.bind()
    assert started == (min(rooms, members, most) if rooms >= least else 0)
