"""Which pods are held, how quantities are read, and what is refused at the door."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import Mode, gate_patch, review
from tests.scheduler_plugin.placement_cluster import pod_object
from tests.webhook_object import GPU_NAMES
from wattpack.errors import InputError
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE


def request(pod: JsonObject, **changes: Any) -> JsonObject:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    body = {"uid": "r1", "kind": kind, "operation": "CREATE", "object": pod}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": body | changes,
    }


def patched(pod: JsonObject, mode: Mode = Mode.MANAGE) -> JsonObject:
    response = review(request(pod), mode)["response"]
    assert response["uid"] == "r1"
    assert response["allowed"] is True
    if "patch" not in response:
        return pod
    return apply_json_patch(pod, json.loads(base64.b64decode(response["patch"])))


def test_a_managed_pod_gets_our_gate_beside_those_that_it_has() -> None:
    assert pod_facts.gates(patched(pod_object("p"))) == [GATE]
    other = pod_object("p", schedulingGates=[{"name": "other.io/gate"}])
    assert pod_facts.gates(patched(other)) == ["other.io/gate", GATE]


def test_a_second_invocation_changes_nothing() -> None:
    once = patched(pod_object("p"))
    assert patched(once) == once


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW])
def test_off_and_shadow_touch_no_pod(mode: Mode) -> None:
    assert patched(pod_object("p"), mode) == pod_object("p")


def test_pods_that_placement_leaves_alone_are_not_held() -> None:
    daemon = pod_object("p")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    mirror = pod_object("p", annotations={"kubernetes.io/config.mirror": "x"})
    for pod in (
        daemon,
        mirror,
        pod_object("p", 0),
        pod_object("p", nodeName="n1"),
        pod_object("p", schedulerName="volcano"),
    ):
        assert patched(pod) == pod


def test_updates_are_not_touched() -> None:
    response = review(request(pod_object("p"), operation="UPDATE"), Mode.MANAGE)["response"]
    assert "patch" not in response


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (pod_object("p", annotations={"wattpack.io/expected-watts-per-gpu": "0.7kW"}), "watts"),
        (pod_object("p", annotations={"wattpack.io/expected-watts-per-gpu": "9" * 5000}), "watts"),
        (pod_object("p", labels={"wattpack.io/gang": "g"}), "gang-size"),
        (
            pod_object(
                "p",
                labels={"wattpack.io/gang": "g"},
                annotations={"wattpack.io/gang-size": "-3"},
            ),
            "gang-size",
        ),
    ],
)
def test_a_request_that_could_never_be_planned_is_refused_by_its_field(
    pod: JsonObject, field: str
) -> None:
    response = review(request(pod), Mode.MANAGE)["response"]
    assert response["allowed"] is False
    assert field in response["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {}},
        request({}, kind={"group": "apps", "kind": "Deployment"}),
    ],
)
def test_what_is_no_review_of_a_pod_is_refused(body: object) -> None:
    with pytest.raises(InputError):
        review(body, Mode.MANAGE)


def asking(name: str, amount: str = "1", **changes: Any) -> JsonObject:
    pod = pod_object("p", 0, **changes)
    pod["spec"]["containers"][0]["resources"]["limits"][name] = amount
    return pod


GPU_RESOURCES = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-1g.10gb.me.shared",
    "amd.com/cpx_nps4",
    "amd.com/spx_nps1",
]
OTHER_RESOURCES = [
    "rdma/hca",
    "nvidia.com/gpus",
    "nvidia.com/mig",
    "amd.com/npu",
    "xnvidia.com/gpu",
]


@pytest.mark.parametrize("name", GPU_RESOURCES)
def test_pods_that_ask_for_boards_or_parts_of_any_maker_are_held(name: str) -> None:
    assert pod_facts.gates(patched(asking(name))) == [GATE]


@pytest.mark.parametrize("name", OTHER_RESOURCES)
def test_pods_without_gpus_are_left_alone(name: str) -> None:
    assert patched(asking(name)) == asking(name)
    assert "no GPU" in pod_facts.unmanaged_reason(asking(name))


def test_the_webhooks_condition_names_the_same_resources() -> None:
    """CEL's RE2 and Python read this pattern alike; the names are those of the table."""
    named = [name for name in GPU_RESOURCES + OTHER_RESOURCES if re.match(GPU_NAMES, name)]
    assert named == GPU_RESOURCES


def test_pods_that_claim_devices_are_held_until_the_planner_knows_the_claims() -> None:
    pod = pod_object("p", 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])
    assert pod_facts.gates(patched(pod)) == [GATE]


def test_pods_that_kueue_places_are_left_alone() -> None:
    pod = pod_object("p", schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])
    assert patched(pod) == pod
    assert "Kueue" in pod_facts.unmanaged_reason(pod)


def test_releasing_a_pod_that_is_not_held_is_refused() -> None:
    pod = pod_object("p")
    pod["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    with pytest.raises(InputError):
        pod_facts.release_patch(pod, "n1")


def test_only_our_own_gate_is_taken_away() -> None:
    pod = pod_object("p", schedulingGates=[{"name": "other.io/gate"}])
    pod["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    held = apply_json_patch(pod, gate_patch(pod))
    free = apply_json_patch(held, pod_facts.release_patch(held, "n1"))
    assert pod_facts.gates(free) == ["other.io/gate"]
    assert pod_facts.pinned_node(free) == "n1"


def test_pins_survive_user_affinity_of_every_shape() -> None:
    for owned in (True, False):
        for affinity in (
            {},
            {"podAffinity": {}},
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": []}}
                    ],
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
                                ]
                            },
                        ]
                    },
                }
            },
        ):
            pod = pod_object("p", owned=owned, affinity=affinity)
            pod["metadata"] |= {"uid": "u", "resourceVersion": "1"}
            pod["spec"]["schedulingGates"] = [{"name": GATE}]
            free = apply_json_patch(pod, pod_facts.release_patch(pod, "n1"))
            assert pod_facts.pinned_node(free) == "n1", (owned, affinity)
