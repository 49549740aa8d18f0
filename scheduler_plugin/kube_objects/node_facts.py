"""Facts about a node as the API server shows it: Ready, on its way out, whom it refuses."""

from __future__ import annotations

from scheduler_plugin.documents.node_rules import Taint, TaintEffect
from wattpack.kube.port import JsonObject
from wattpack.object_names import DISRUPTION_TAINTS

__all__ = ["is_leaving", "is_ready", "taints_of"]


def is_ready(body: JsonObject) -> bool:
    """The kubelet says so."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def is_leaving(body: JsonObject) -> bool:
    """The node is being deleted, or an autoscaler has announced that it will go."""
    taints = (body.get("spec") or {}).get("taints") or ()
    announced = any(taint.get("key") in DISRUPTION_TAINTS for taint in taints)
    return announced or bool(body["metadata"].get("deletionTimestamp"))


def taints_of(body: JsonObject) -> tuple[Taint, ...]:
    """Its taints, without those of an effect that Kubernetes does not know."""
    found = (body.get("spec") or {}).get("taints") or ()
    return tuple(
        Taint(
            key=str(taint.get("key", "")),
            value=str(taint.get("value") or ""),
            effect=TaintEffect(taint["effect"]),
        )
        for taint in found
        if taint.get("effect") in set(TaintEffect)
    )
