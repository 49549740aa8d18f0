"""The decision of the mutating webhook: hold a managed pod at our gate. Pure.

Nothing here can stop a pod from being created, except a request that names an impossible gang
size or draw: that is refused at once with the field, because it could never be planned.
"""

from __future__ import annotations

import base64
import json
from enum import StrEnum
from typing import Any

from scheduler_plugin.kube_objects.gang_flow import peak_flow_megabits
from scheduler_plugin.kube_objects.host_amounts import asked_of_host
from scheduler_plugin.kube_objects.pods import (
    cpu_class_values,
    expected_watts_per_gpu,
    gates,
    gpu_model_values,
    nic_classes,
    unmanaged_reason,
)
from wattpack.errors import InputError
from wattpack.gangs import GangSources, gang_of
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE

#: What the API server waits; it goes on without us after that (failurePolicy Ignore).
WEBHOOK_TIMEOUT_SECONDS = 2


class Mode(StrEnum):
    """Off: nothing. Shadow: plan and report, touch no pod. Manage: gate, plan, pin."""

    OFF = "Off"
    SHADOW = "Shadow"
    MANAGE = "Manage"


def review(body: object, mode: Mode) -> JsonObject:
    """The AdmissionReview response to an AdmissionReview request.

    Raises:
        InputError: if the body is no AdmissionReview v1 of a pod creation.
    """
    request = _request(body)
    response: JsonObject = {"uid": request["uid"], "allowed": True}
    if mode is Mode.MANAGE and request.get("operation") == "CREATE":
        try:
            operations = gate_patch(request["object"])
        except InputError as error:
            response["allowed"] = False
            response["status"] = {"code": 422, "reason": "Invalid", "message": str(error)}
            operations = []
        if operations:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(operations).encode()).decode()
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }


def gate_patch(pod: JsonObject) -> list[JsonObject]:
    """The JSON Patch that adds our gate; empty for pods that placement leaves alone.

    Raises:
        InputError: for quantities or annotations that could never be planned.
    """
    if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
        raise InputError("request.object", "a Pod", pod)
    pod = {"metadata": {}, **pod}
    if unmanaged_reason(pod) or GATE in gates(pod):
        return []
    gang_of(pod, GangSources.empty())
    expected_watts_per_gpu(pod)
    gpu_model_values(pod)
    cpu_class_values(pod)
    nic_classes(pod)
    asked_of_host(pod)
    peak_flow_megabits(pod)
    if pod["spec"].get("schedulingGates"):
        return [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}}]
    return [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]


def _request(body: object) -> dict[str, Any]:
    if not isinstance(body, dict) or body.get("kind") != "AdmissionReview":
        raise InputError("kind", "AdmissionReview", body)
    if body.get("apiVersion") != "admission.k8s.io/v1":
        raise InputError("apiVersion", "admission.k8s.io/v1", body.get("apiVersion"))
    request = body.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise InputError("request.uid", "the id of a request", request)
    kind = request.get("kind")
    if not isinstance(kind, dict) or kind.get("kind") != "Pod" or kind.get("group"):
        raise InputError("request.kind", "a core Pod", kind)
    return request
