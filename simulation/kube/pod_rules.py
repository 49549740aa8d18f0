"""What Kubernetes lets happen to a pod: defaults, gates, what may still change.

Source: Kubernetes documentation, "Pod Scheduling Readiness" (mutable pod scheduling directives)
and "Pods" (pod update and replacement).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattpack.kube.port import ForbiddenError, InvalidError, JsonObject
from wattpack.kube.values import copy_json, same

# Judged by rules of their own; everything else in a pod's spec is fixed.
_JUDGED = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
MAX_DEADLINE_SECONDS = 2**31 - 1


def complete(pod: JsonObject, priority_classes: Mapping[str, JsonObject], now: str) -> None:
    """Fill in what the API server fills in when a pod is created.

    Raises:
        InvalidError: for a pod without containers, or one that has gates and a node.
        ForbiddenError: for an unknown priority class.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        raise InvalidError("spec.containers: at least one container is required")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        raise InvalidError("spec.nodeName: cannot be set until all schedulingGates are removed")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    _set_priority(spec, priority_classes)
    pod["status"] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": now,
            }
        ]


def _set_priority(spec: JsonObject, classes: Mapping[str, JsonObject]) -> None:
    name = spec.get("priorityClassName")
    if name and name not in classes:
        raise ForbiddenError(f"no PriorityClass with name {name} was found")
    if not name:
        name = next((n for n, body in classes.items() if body.get("globalDefault")), None)
        if name:
            spec["priorityClassName"] = name
    spec["priority"] = int(classes[name]["value"]) if name else 0


def check_update(before: JsonObject, after: JsonObject) -> None:
    """Whether Kubernetes accepts this change of a pod's spec.

    Raises:
        InvalidError: naming the field that may not change like this.
    """
    old, new = copy_json(before["spec"]), copy_json(after.get("spec") or {})
    if same(old, new):
        return
    _check_gates(old, new)
    if old.get("schedulingGates"):
        _check_directives(old, new)
    _check_tolerations(old, new)
    _check_deadline(old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds"))
    for spec in (old, new):
        for field in _JUDGED:
            spec.pop(field, None)
        for container in spec.get("containers", []) + spec.get("initContainers", []):
            if not container.pop("image", None):
                raise InvalidError("spec.containers.image: required")
    for field in sorted(old.keys() | new.keys()):
        if not same(old.get(field), new.get(field)):
            raise InvalidError(f"spec.{field}: may not change on an existing pod")


def _check_gates(old: JsonObject, new: JsonObject) -> None:
    had = {gate["name"] for gate in old.get("schedulingGates") or ()}
    if added := {gate["name"] for gate in new.get("schedulingGates") or ()} - had:
        raise InvalidError(f"spec.schedulingGates: only deletion is allowed, not {sorted(added)}")


def _check_tolerations(old: JsonObject, new: JsonObject) -> None:
    kept = new.get("tolerations") or []
    if any(toleration not in kept for toleration in old.get("tolerations") or ()):
        raise InvalidError("spec.tolerations: existing tolerations may not change")


def _check_deadline(had: Any, has: Any) -> None:  # noqa: ANN401
    if has is not None and not 0 < has <= MAX_DEADLINE_SECONDS:
        raise InvalidError(f"spec.activeDeadlineSeconds: 1 to {MAX_DEADLINE_SECONDS}, got {has}")
    if had is not None and (has is None or has > had):
        raise InvalidError("spec.activeDeadlineSeconds: may only be set or shortened")


def _check_directives(old: JsonObject, new: JsonObject) -> None:
    """While gated, node selector and required node affinity may only be tightened.

    What was judged here is removed from both sides.
    """
    had, has = old.pop("nodeSelector", None) or {}, new.pop("nodeSelector", None) or {}
    if not had.items() <= has.items():
        raise InvalidError("spec.nodeSelector: only additions are allowed")
    before, after = _pop_node_affinity(old), _pop_node_affinity(new)
    terms_before, terms_after = _terms(before), _terms(after)
    for field in (field for term in terms_after or () for field in term.get("matchFields") or ()):
        if field.get("key") != "metadata.name" or len(field.get("values") or ()) != 1:
            raise InvalidError("spec.affinity.nodeAffinity: matchFields takes one metadata.name")
    if terms_before is None:
        return
    if terms_after is None or len(terms_before) != len(terms_after):
        raise InvalidError(
            "spec.affinity.nodeAffinity: the number of required terms may not change"
        )
    for one, other in zip(terms_before, terms_after, strict=True):
        _check_term(one, other)


def _check_term(before: JsonObject, after: JsonObject) -> None:
    parts = ("matchExpressions", "matchFields")
    # A term that selects nothing cannot be tightened: adding to it would let it select something.
    if not any(before.get(part) for part in parts) and any(after.get(part) for part in parts):
        raise InvalidError("spec.affinity.nodeAffinity: an empty term may not be added to")
    for part in parts:
        had, has = before.get(part) or [], after.get(part) or []
        if has[: len(had)] != had:
            raise InvalidError(f"spec.affinity.nodeAffinity: {part} may only be added to")


def _pop_node_affinity(spec: JsonObject) -> JsonObject:
    affinity = spec.get("affinity") or {}
    result: JsonObject = affinity.pop("nodeAffinity", None) or {}
    if not affinity:
        spec.pop("affinity", None)
    return result


def _terms(node_affinity: JsonObject) -> list[Any] | None:
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else list(required.get("nodeSelectorTerms") or ())


def settle(before: JsonObject, after: JsonObject) -> None:
    """Take back, after the last gate was removed, what was said of the gates."""
    if before["spec"].get("schedulingGates") and not after["spec"].get("schedulingGates"):
        status = after.get("status") or {}
        kept = [c for c in status.pop("conditions", []) if c.get("reason") != "SchedulingGated"]
        if kept:
            status["conditions"] = kept


def bind(pod: JsonObject, node: str, now: str) -> None:
    """Give an ungated, unbound pod its node.

    Raises:
        InvalidError: if the pod is gated or already bound.
    """
    if pod["spec"].get("schedulingGates"):
        raise InvalidError("pod has non-empty .spec.schedulingGates")
    if pod["spec"].get("nodeName"):
        raise InvalidError(f"pod is already assigned to node {pod['spec']['nodeName']}")
    pod["spec"]["nodeName"] = node
    status = pod.setdefault("status", {})
    others = [c for c in status.get("conditions", []) if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    status["conditions"] = [*others, scheduled]
