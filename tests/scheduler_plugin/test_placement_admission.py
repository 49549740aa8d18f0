"""Which pods are held, how quantities are read, and what is refused at the door."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from scheduler_plugin import pods as pod_facts
from scheduler_plugin.admission import Mode, gate_patch, review
from tests.scheduler_plugin.placement_cluster import pod_object
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


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu"])
def test_pods_that_ask_for_whole_gpus_of_any_maker_are_held(name: str) -> None:
    assert pod_facts.gates(patched(asking(name))) == [GATE]


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (asking("nvidia.com/mig-1g.10gb"), "parts of GPUs (nvidia.com/mig-1g.10gb)"),
        (asking("nvidia.com/gpu.shared"), "parts of GPUs (nvidia.com/gpu.shared)"),
        (asking("amd.com/cpx_nps4"), "parts of GPUs (amd.com/cpx_nps4)"),
        (pod_object("p", resourceClaims=[{"name": "channel"}]), "claims devices (channel)"),
        (asking("rdma/hca"), "no GPU"),
    ],
)
def test_pods_whose_gpus_cannot_be_planned_are_left_alone(pod: JsonObject, why: str) -> None:
    assert patched(pod) == pod
    assert why in pod_facts.unmanaged_reason(pod)


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
