"""Pods that a node on its way will serve wait for it and are told so; others are let go as ever."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.app.under_way_reader import (
    KEPT_SECONDS,
    NODE_CLAIMS,
    PROVISIONING_REQUESTS,
)
from scheduler_plugin.kube_objects.nodes_under_way import under_way
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    gang_pod,
    node_object,
    pod_object,
)
from tests.scheduler_plugin.test_foreign_objects import with_junk
from wattpack.kube.port import NODES, PODS, JsonObject

PATIENCE_SECONDS = 61.0
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
"""By kube-scheduler: an autoscaler brings nodes for such a pod."""


def claim(gpus: int = 16, *conditions: str, **spec: Any) -> JsonObject:
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    told = [{"type": each, "status": "True"} for each in conditions or ("Launched",)]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "c1", "labels": {"karpenter.sh/nodepool": "gpus"}},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": told},
    }


def wait(cluster: Cluster, seconds: float = PATIENCE_SECONDS) -> str:
    """The cause of pod ``p`` after so long; empty once it left the gate."""
    cluster.loop.step()
    cluster.clock.advance_seconds(seconds)
    result = cluster.loop.step()
    return result.pending.get(f"{SPACE}/p", ("", ""))[0] if is_gated(cluster) else ""


def is_gated(cluster: Cluster) -> bool:
    return bool(cluster.pod("p")["spec"].get("schedulingGates"))


def test_a_pod_waits_for_a_claim_under_way_and_no_longer(cluster: Cluster) -> None:
    cluster.api.create(NODE_CLAIMS[0], claim())
    cluster.add(pod_object("p", 16))
    result = cluster.loop.step()
    reason, message = result.pending[f"{SPACE}/p"]
    assert reason == "NodeUnderWay"
    assert message.startswith("node c1, which is on its way, has room for it; now: no eligible")
    assert wait(cluster) == "NodeUnderWay"
    cluster.api.delete(NODE_CLAIMS[0], "c1")
    cluster.clock.advance_seconds(KEPT_SECONDS)
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "LargerThanAnyNode"
    assert wait(cluster) == "", "its patience begins anew, and ends"


def test_the_node_that_has_come_is_planned(cluster: Cluster) -> None:
    cluster.api.create(NODE_CLAIMS[0], claim())
    cluster.add(pod_object("p", 16))
    assert cluster.loop.step().released == {}
    cluster.add_nodes("n9", gpus=16)
    assert cluster.loop.step().released == {f"{SPACE}/p": "n9"}


def test_a_gang_waits_where_present_nodes_and_those_to_come_hold_all_of_it(
    cluster: Cluster,
) -> None:
    cluster.api.create(NODE_CLAIMS[0], claim(8))
    for i in range(3):
        cluster.add(gang_pod(f"g-{i}", 3))
    reasons = {reason for reason, _ in cluster.loop.step().pending.values()}
    assert reasons == {"NodeUnderWay"}, "two nodes are there, the third comes"


@pytest.mark.parametrize(
    "body",
    [
        claim(8),
        claim(16, "Registered"),
        claim(16, "Launched", "Registered", "Initialized"),
        claim(taints=[{"key": "theirs", "effect": "NoSchedule"}]),
        claim() | {"status": {"conditions": [{"type": "Launched", "status": "True"}]}},
    ],
    ids=["too small", "not launched", "there already", "tainted", "without amounts"],
)
def test_a_claim_that_is_no_room_for_it_keeps_nobody(cluster: Cluster, body: JsonObject) -> None:
    cluster.api.create(NODE_CLAIMS[0], body)
    cluster.add(pod_object("p", 16))
    assert wait(cluster) == ""


def test_whom_the_node_is_brought_for_comes_first(cluster: Cluster) -> None:
    cluster.api.create(NODE_CLAIMS[0], claim())
    cluster.api.create(PODS, pod_object("let-go", 16), SPACE)
    body = {**cluster.pod("let-go"), "status": {"conditions": [REFUSED]}}
    cluster.api.replace(PODS, body, SPACE, subresource="status")
    cluster.add(pod_object("p", 16))
    assert wait(cluster) == ""


def request(*conditions: str) -> JsonObject:
    told = [{"type": each, "status": "True"} for each in conditions]
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "r1"},
        "spec": {"provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io"},
        "status": {"conditions": told},
    }


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((), "ProvisioningRequest r1 waits for capacity for it"),
        (("Accepted",), "ProvisioningRequest r1 waits for capacity for it"),
        (("Accepted", "Provisioned"), "ProvisioningRequest r1 is provisioned for it"),
        (("Accepted", "Failed"), ""),
        (("Provisioned", "BookingExpired"), ""),
    ],
)
def test_a_pod_waits_for_the_provisioning_request_that_it_names(
    cluster: Cluster, conditions: tuple[str, ...], expected: str
) -> None:
    cluster.api.create(PROVISIONING_REQUESTS[0], request(*conditions), SPACE)
    marks = {"autoscaling.x-k8s.io/consume-provisioning-request": "r1"}
    cluster.add(pod_object("p", 16, annotations=marks))
    cluster.add(pod_object("other", 16))
    result = cluster.loop.step()
    reason, message = result.pending[f"{SPACE}/p"]
    assert (reason == "NodeUnderWay") == bool(expected)
    assert message.startswith(expected)
    assert result.pending[f"{SPACE}/other"][0] == "LargerThanAnyNode"
    assert (wait(cluster) == "NodeUnderWay") == bool(expected)


def test_a_claim_with_anything_in_any_field_hides_no_other() -> None:
    good, pods = claim(16), [pod_object("p", 16) | {"status": {}}]
    theirs = pod_object("theirs", 1) | {"status": {"conditions": [REFUSED]}}
    theirs["spec"].pop("schedulingGates", None)
    pods.append(theirs)
    good["spec"] = {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}
    nodes = [node_object("n1")]
    for field in ("spec", "status"):
        for odd in with_junk(good, field):
            odd["metadata"] = {"name": "odd"}
            names = [n["metadata"]["name"] for n in under_way([odd, good], [], nodes, pods).nodes]
            assert "c1" in names
            under_way([odd], [], nodes, pods)


def test_boards_that_are_written_otherwise_are_taken_as_well() -> None:
    theirs = pod_object("theirs", 10) | {"status": {"conditions": [REFUSED]}}
    theirs["spec"].pop("schedulingGates", None)
    good = claim(16)
    good["status"]["allocatable"]["nvidia.com/gpu"] = "16000m"
    (left,) = under_way([good], [], [node_object("n1")], [theirs]).nodes
    assert left["status"]["allocatable"]["nvidia.com/gpu"] == "6"


def test_nothing_is_read_or_planned_onto_what_is_to_come(cluster: Cluster) -> None:
    cluster.api.create(NODE_CLAIMS[0], claim(8))
    for i in range(3):
        cluster.add(pod_object(f"p{i}", 8))
    result = cluster.loop.step()
    assert sorted(result.released.values()) == ["n1", "n2"]
    assert [reason for reason, _ in result.pending.values()] == ["InsufficientGpus"]
    assert {b["metadata"]["name"] for b in cluster.api.list(NODES).items} == {"n1", "n2"}
