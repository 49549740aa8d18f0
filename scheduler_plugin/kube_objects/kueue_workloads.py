"""Kueue's Workloads as gangs to come, and the answers of our AdmissionCheck. Pure.

Kueue reserves quota for a Workload and asks admission checks; ours is ready once all of its pods
have places. These are kept for the pods that Kueue lets its owner create then: they carry our
gang's label and size, which the answer asks Kueue to add (``podSetUpdates``).

Source: ``kueue.x-k8s.io/v1beta1``, ``Workload.status.admissionChecks``, ``AdmissionCheck``,
``ResourceFlavor``; the fields that are read here are the same in ``v1beta2``.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.gang_sizes import ODD_SHAPES, kueue_workload_size
from wattpack.gangs import GangRef
from wattpack.kube.port import JsonObject
from wattpack.object_names import GANG_LABEL, GANG_SIZE_ANNOTATION

__all__ = ["CONTROLLER_NAME", "Asked", "ExpectedGang", "activated", "answered", "asked_of_us"]

log = logging.getLogger(__name__)
#: ``spec.controllerName`` of AdmissionChecks that we answer.
CONTROLLER_NAME: Final = "wattpack.io/placement"
MOST_MEMBERS: Final = 20_000
"""Of one Workload, as of all gangs together whose members do not exist yet (assumed)."""
_LONGEST_LABEL = 63
_LONGEST_MESSAGE = 1024
#: What admission adds to every pod.
_DEFAULT_TOLERATIONS = tuple(
    {
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for what in ("not-ready", "unreachable")
)


@dataclass(frozen=True, slots=True)
class ExpectedGang:
    """A gang whose pods do not exist yet.

    Attributes:
        ref: Its id and size.
        members: A pod of each kind as it will be created, and how many of them.
    """

    ref: GangRef
    members: tuple[tuple[JsonObject, int], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A Workload whose check is ours.

    Attributes:
        workload: As read.
        check: Name of the check.
        state: ``Pending`` or ``Ready``.
        gang: None where nothing is to be kept: no GPUs, or pods that exist already.
    """

    workload: JsonObject
    check: str
    state: str
    gang: ExpectedGang | None

    @property
    def label(self) -> str:
        """Value of our gang label on its pods."""
        name = str(self.workload["metadata"]["name"])
        return name if len(name) <= _LONGEST_LABEL else str(self.workload["metadata"]["uid"])


def asked_of_us(
    workloads: Iterable[JsonObject], checks: Iterable[JsonObject], flavors: Iterable[JsonObject]
) -> list[Asked]:
    """Workloads with reserved quota that have not finished, and wait for us or were let go by us.

    Args:
        workloads: All Workloads.
        checks: All AdmissionChecks.
        flavors: All ResourceFlavors.
    """
    ours = {str(check["metadata"]["name"]) for check in checks if _is_ours(check)}
    by_name = {str(f["metadata"]["name"]): f.get("spec") or {} for f in flavors}
    found: list[Asked] = []
    for workload in workloads:
        try:
            found += _asked(workload, ours, by_name)
        except (InputError, *ODD_SHAPES) as error:
            log.warning("Workload %s is not read: %r", workload["metadata"]["name"], error)
    return found


def _asked(
    workload: JsonObject, ours: Set[str], flavors: Mapping[str, Mapping[str, Any]]
) -> list[Asked]:
    """What one Workload asks of us."""
    status = workload.get("status") or {}
    if not _is(status, "QuotaReserved") or _is(status, "Finished"):
        return []
    found: list[Asked] = []
    for check in status.get("admissionChecks") or ():
        if check.get("name") in ours and check.get("state") in ("Pending", "Ready"):
            asked = Asked(workload, str(check["name"]), str(check["state"]), None)
            found.append(Asked(workload, asked.check, asked.state, _gang(asked, flavors)))
    return found


def answered(asked: Asked, state: str, message: str, now: str) -> JsonObject | None:
    """The Workload with our answer; None if it stands there already.

    Args:
        asked: What was asked.
        state: ``Pending``, ``Ready`` or ``Retry``.
        message: For people.
        now: RFC 3339.
    """
    body = copy.deepcopy(asked.workload)
    for check in body["status"]["admissionChecks"]:
        if check.get("name") != asked.check:
            continue
        text = message[:_LONGEST_MESSAGE]
        if (check.get("state"), check.get("message", "")) == (state, text):
            return None
        if check.get("state") != state:
            check["lastTransitionTime"] = now
        check |= {"state": state, "message": text}
        if state == "Ready" and asked.gang is not None:
            check["podSetUpdates"] = _updates(asked, asked.gang)
        return body
    return None


def activated(check: JsonObject, now: str) -> JsonObject | None:
    """The AdmissionCheck with the condition that we are there; None if it has it."""
    if not _is_ours(check):
        return None
    status = check.get("status")
    status = status if isinstance(status, dict) else {}
    if _is(status, "Active"):
        return None
    others = [c for c in _conditions(status) if c.get("type") != "Active"]
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "the planner answers it",
        "lastTransitionTime": now,
        "observedGeneration": check["metadata"].get("generation", 0),
    }
    return {**check, "status": status | {"conditions": [*others, condition]}}


def _gang(asked: Asked, flavors: Mapping[str, Mapping[str, Any]]) -> ExpectedGang | None:
    metadata = asked.workload["metadata"]
    # Pods that Kueue gates one by one exist: they wait at our gate as a gang anyway.
    if any(owner.get("kind") == "Pod" for owner in metadata.get("ownerReferences") or ()):
        return None
    try:
        size = kueue_workload_size(asked.workload)
    except InputError:
        return None
    members: list[tuple[JsonObject, int]] = []
    admission = (asked.workload.get("status") or {}).get("admission") or {}
    assigned = {a.get("name"): a for a in admission.get("podSetAssignments") or ()}
    for pod_set in (asked.workload.get("spec") or {}).get("podSets") or ():
        alone = {"spec": {"podSets": [pod_set]}, "status": asked.workload.get("status")}
        count = kueue_workload_size(alone).least
        if count:
            assignment = assigned.get(pod_set.get("name", "main")) or {}
            named = {str(name) for name in (assignment.get("flavors") or {}).values()}
            mine = [flavors[name] for name in sorted(named) if name in flavors]
            members.append((_pod(asked, pod_set, mine), count))
    if not members:
        return None
    if size.least > MOST_MEMBERS:
        raise InputError("spec.podSets", f"at most {MOST_MEMBERS} pods with GPUs", size.least)
    space = pod_facts.namespace(asked.workload)
    ref = GangRef(f"{space}/gang/{asked.label}", size.least, topology=size.topology)
    return ExpectedGang(ref, tuple(members))


def _pod(asked: Asked, pod_set: Mapping[str, Any], flavors: list[Mapping[str, Any]]) -> JsonObject:
    """As the owner will create it: with what flavours and admission add."""
    workload = asked.workload
    template = copy.deepcopy(dict(pod_set.get("template") or {}))
    spec, given = dict(template.get("spec") or {}), template.get("metadata") or {}
    selector = dict(spec.get("nodeSelector") or {})
    tolerations = list(spec.get("tolerations") or ())
    for flavor in flavors:
        selector |= flavor.get("nodeLabels") or {}
        tolerations += flavor.get("tolerations") or ()
    spec["nodeSelector"], spec["tolerations"] = selector, [*tolerations, *_DEFAULT_TOLERATIONS]
    spec.setdefault("priority", (workload.get("spec") or {}).get("priority") or 0)
    metadata = {
        "uid": f"{workload['metadata']['uid']}/{pod_set.get('name', 'main')}",
        "name": str(workload["metadata"]["name"]),
        "namespace": pod_facts.namespace(workload),
        "labels": dict(given.get("labels") or {}),
        "annotations": dict(given.get("annotations") or {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _updates(asked: Asked, gang: ExpectedGang) -> list[JsonObject]:
    """Our marks for the pod sets with GPUs; Kueue refuses keys that are there already."""
    names = {str(pod["metadata"]["uid"]).rpartition("/")[2] for pod, _ in gang.members}
    size = str(gang.ref.size)
    return [
        {
            "name": name,
            "labels": {GANG_LABEL: asked.label},
            "annotations": {GANG_SIZE_ANNOTATION: size},
        }
        for name in sorted(names)
    ]


def _is(status: Mapping[str, Any], condition: str) -> bool:
    return any(
        c.get("type") == condition and c.get("status") == "True" for c in _conditions(status)
    )


def _conditions(status: Mapping[str, Any]) -> list[JsonObject]:
    given = status.get("conditions")
    return [c for c in given if isinstance(c, dict)] if isinstance(given, list) else []


def _is_ours(check: JsonObject) -> bool:
    spec = check.get("spec")
    return isinstance(spec, dict) and spec.get("controllerName") == CONTROLLER_NAME
