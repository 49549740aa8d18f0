"""Gangs of others, claims and peers through a real API: minimal CRDs replay kinds of others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scheduler_plugin.app.kueue_checks import ADMISSION_CHECKS, RESOURCE_FLAVORS
from scheduler_plugin.app.planning_cycle import CycleResult
from scheduler_plugin.app.slice_reader import CLAIM_TEMPLATES, RESOURCE_SLICES
from tests.cluster.cluster_builders import GATE, Body, create, node, pod
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from tests.cluster.loop_world import LoopWorld
from tests.cluster.stand_in_kinds import CRDS, definition
from wattpack.gang_sources import GANG_SOURCES, KUEUE_WORKLOADS
from wattpack.kube.claim_follower import CLAIM_KINDS
from wattpack.kube.port import JOBS, Resource

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SPACE = "gangs"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
POOL = {"test.wattpack.io/pool": "gangs"}
NODES = {"gang-a": "a", "gang-b": "b"}
KINDS = {source.name: source.kinds for source in GANG_SOURCES}
LIMITS = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
TEMPLATE: Body = {"spec": {"containers": [{"name": "m", "image": "x", **LIMITS}]}}
CHILD = {"name": "w", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}
#: By source: marks of its pods, and the spec of the owner ``g`` that makes two of them.
OWNERS: dict[str, tuple[Body, Body]] = {
    "JobSet": (
        {"labels": {"jobset.sigs.k8s.io/jobset-name": "g"}},
        {"replicatedJobs": [CHILD]},
    ),
    "Kueue Workload": (
        {"annotations": {"kueue.x-k8s.io/workload": "g"}},
        {"podSets": [{"name": "main", "count": 2, "template": TEMPLATE}]},
    ),
    "coscheduling PodGroup": (
        {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        {"minMember": 2},
    ),
    "Volcano PodGroup": ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {"minMember": 2}),
    "RayCluster": (
        {"labels": {"ray.io/cluster": "g"}},
        {"workerGroupSpecs": [{"replicas": 2, "template": TEMPLATE}]},
    ),
}


class World(LoopWorld):
    """A planner of ours, in this process, against an API server with the kinds of others."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, PODS, kueue_admission_checks=True)

    def put(self, kind: Resource, name: str, spec: Body, **more: Any) -> Body:
        where = f"/namespaces/{SPACE}" if kind.namespaced else ""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        path = f"/apis/{kind.api_version}{where}/{kind.plural}"
        return create(self.plane, path, body | {"spec": spec} | more)

    def drop(self, kind: Resource, name: str) -> None:
        where = f"/namespaces/{SPACE}" if kind.namespaced else ""
        self.plane.request("DELETE", f"/apis/{kind.api_version}{where}/{kind.plural}/{name}")

    def add(self, name: str, gpus: int = 8, marks: Body | None = None, **spec: Any) -> None:
        """A pod at our gate that a controller would make anew, in this test's pool of nodes."""
        body = pod(name, gates=[GATE], gpus=gpus, nodeSelector=POOL, **spec)
        given = dict(marks or {})
        body["metadata"]["labels"] |= given.get("labels", {})
        body["metadata"]["annotations"] = given.get("annotations", {})
        owner = self.plane.request("GET", f"/api/v1/namespaces/{SPACE}/configmaps/owner").body
        body["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "owner",
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
        create(self.plane, PODS, body)
        eventually(f"the planner sees {name}", lambda: name in self.seen())

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName") or "")

    def clear(self) -> None:
        for item in self.plane.request("GET", PODS).body["items"]:
            path = f"{PODS}/{item['metadata']['name']}?gracePeriodSeconds=0"
            self.plane.request("DELETE", path)
        eventually("no pods", lambda: not self.seen())


@pytest.fixture(scope="module")
def plane(fresh_control_plane: ControlPlane) -> ControlPlane:
    made = fresh_control_plane
    if made.kind == "external":
        pytest.skip("a cluster of somebody else may have these kinds in earnest")
    made.kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "crds"))
    others = [KINDS[name] for name in OWNERS]
    others += [ADMISSION_CHECKS, RESOURCE_FLAVORS, RESOURCE_SLICES, CLAIM_TEMPLATES, CLAIM_KINDS]
    for versions in others:
        create(made, CRDS, definition(versions))
    kind = {v.plural: v for versions in others for v in versions[:1]}
    for each in kind.values():
        path = f"/apis/{each.api_version}/{each.plural}"
        eventually(f"{path} is served", lambda p=path: made.request("GET", p).status == 200)
    create(made, "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    create(made, f"/api/v1/namespaces/{SPACE}/configmaps", {"metadata": {"name": "owner"}})
    for name, rack in NODES.items():
        create(made, "/api/v1/nodes", node(name, labels={**POOL, "rack": rack}))
    made.start_kwok()
    made.start_binder()
    return made


@pytest.fixture
def world(plane: ControlPlane) -> Iterator[World]:
    made = World(plane)
    eventually("the nodes are ready", partial(_ready, plane))
    yield made
    made.clear()
    made.loop.close()


def _ready(plane: ControlPlane) -> bool:
    conditions = [
        c
        for name in NODES
        for c in plane.request("GET", f"/api/v1/nodes/{name}").body["status"].get("conditions", [])
    ]
    return sum(c["type"] == "Ready" and c["status"] == "True" for c in conditions) == len(NODES)


@pytest.mark.parametrize("name", OWNERS)
def test_a_gang_of_somebody_elses_kind_starts_whole(world: World, name: str) -> None:
    marks, spec = OWNERS[name]
    world.put(KINDS[name][0], "g", spec)
    world.add("single")
    assert len(world.step().released) == 1
    for i in range(2):
        world.add(f"p{i}", marks=marks)
    assert world.step().released == {}, "one node is left for two members"
    world.plane.request("DELETE", f"{PODS}/single?gracePeriodSeconds=0")
    eventually("single is gone", lambda: "single" not in world.seen())
    eventually("both are released", lambda: len(world.step().released) == 2)
    eventually("both are bound", lambda: {world.node_of("p0"), world.node_of("p1")} == set(NODES))
    world.drop(KINDS[name][0], "g")


def test_kueue_is_answered_and_its_pods_take_their_places(world: World) -> None:
    world.put(ADMISSION_CHECKS[0], "places", {"controllerName": "wattpack.io/placement"})
    template = {"spec": TEMPLATE["spec"] | {"nodeSelector": POOL}}
    kind = KUEUE_WORKLOADS[0]
    made = world.put(kind, "w", {"podSets": [{"name": "main", "count": 2, "template": template}]})
    now = "2026-01-01T00:00:00Z"
    check = {"name": "places", "state": "Pending", "message": "", "lastTransitionTime": now}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "R", "lastTransitionTime": now}
    status = {"conditions": [reserved], "admissionChecks": [check]}
    path = f"/apis/{kind.api_version}/namespaces/{SPACE}/{kind.plural}/w"
    assert world.plane.request("PUT", f"{path}/status", made | {"status": status}).status == 200
    world.step()
    (answer,) = world.plane.request("GET", path).body["status"]["admissionChecks"]
    assert answer["state"] == "Ready"
    active = f"/apis/{ADMISSION_CHECKS[0].api_version}/admissionchecks/places"
    assert world.plane.request("GET", active).body["status"]["conditions"][0]["type"] == "Active"
    (update,) = answer["podSetUpdates"]
    for i in range(2):
        world.add(f"w{i}", marks=update)
    assert len(world.step().released) == 2
    eventually("both are bound", lambda: {world.node_of("w0"), world.node_of("w1")} == set(NODES))
    world.drop(kind, "w")
    world.drop(ADMISSION_CHECKS[0], "places")


def test_a_claim_is_planned_where_devices_are(world: World) -> None:
    attributes = {"type": {"string": "gpu"}}
    devices = [{"name": f"gpu-{i}", "attributes": attributes} for i in range(2)]
    pool = {"name": "gang-b", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "gang-b", "pool": pool, "devices": devices}
    world.put(RESOURCE_SLICES[0], "b-gpus", spec)
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": 2}
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    world.put(CLAIM_TEMPLATES[0], "two", {"spec": asked})
    claims = [{"name": "gpu", "resourceClaimTemplateName": "two"}]
    world.add("claims", 0, resourceClaims=claims)
    assert world.step().released == {f"{SPACE}/claims": "gang-b"}
    world.drop(RESOURCE_SLICES[0], "b-gpus")
    world.drop(CLAIM_TEMPLATES[0], "two")


def test_replicas_that_keep_apart_are_bound_where_they_were_planned(world: World) -> None:
    rule = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"set": "r"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    for i in range(3):
        world.add(f"r{i}", 1, marks={"labels": {"set": "r"}}, affinity=affinity)
    result = world.step()
    assert sorted(result.released.values()) == sorted(NODES)
    ((reason, _),) = result.pending.values()
    assert reason == "PodAffinityOrSpread"
    _bound_as_planned(world, result)


def test_pods_with_one_port_are_bound_apart_as_they_were_planned(world: World) -> None:
    """What kube-scheduler would refuse is never promised: the binder knows ports of the host."""
    main = {"name": "m", "image": "x", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    main |= {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    for i in range(3):
        world.add(f"h{i}", containers=[main])
    result = world.step()
    assert sorted(result.released.values()) == sorted(NODES)
    ((reason, message),) = result.pending.values()
    assert (reason, "host-port:8080/TCP" in message) == ("InsufficientResource", True)
    _bound_as_planned(world, result)


def test_namespaces_chosen_by_label_count_as_the_scheduler_counts_them(world: World) -> None:
    labels = {"metadata": {"labels": {"side": "ours"}}}
    world.plane.request("PATCH", f"/api/v1/namespaces/{SPACE}", labels, patch="merge")
    seen = world.loop.reader.namespaces
    eventually("the planner sees it", lambda: seen()[SPACE].get("side") == "ours")
    for i, side in enumerate(("ours", "theirs")):
        rule = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"set": "s"}}}
        rule |= {"namespaceSelector": {"matchLabels": {"side": side}}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}
        for j in range(3):
            marks = {"labels": {"set": "s" if i == 0 else "t"}}
            world.add(f"n{i}{j}", 1, marks=marks, affinity={"podAntiAffinity": required})
    result = world.step()
    left = {key.rpartition("/")[2] for key in result.pending}
    assert len(left) == 1, "two racks for three that keep apart; others keep away from nobody"
    assert left <= {"n00", "n01", "n02"}
    _bound_as_planned(world, result)


def _bound_as_planned(world: World, result: CycleResult) -> None:
    placed = {key.rpartition("/")[2]: where for key, where in result.released.items()}
    eventually(
        "they are bound as planned",
        lambda: all(world.node_of(name) == where for name, where in placed.items()),
    )


def test_jobs_are_read_by_their_own_kind(world: World) -> None:
    """The one owner that the API server itself serves."""
    template = {"spec": TEMPLATE["spec"] | {"restartPolicy": "Never"}}
    assert KINDS["Job with own label"] == (JOBS,)
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "suspend": True}
    world.put(JOBS, "g", spec | {"template": template})
    marks = {"labels": {"batch.kubernetes.io/job-name": "g", "wattpack.io/gang": "yes"}}
    world.add("j0", marks=marks)
    assert len(world.step().released) == 1
    world.add("greedy", 8)
    assert world.step().released == {}, "the second node is kept for the second index"
    world.add("j1", marks=marks)
    assert list(world.step().released) == [f"{SPACE}/j1"]
    world.drop(JOBS, "g")
