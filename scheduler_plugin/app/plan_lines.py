"""Lines of a PlacementPlan object: promises and pending pods."""

from __future__ import annotations

from scheduler_plugin.plan_document import Pending
from scheduler_plugin.snapshot import Pod
from wattpack.kube.port import JsonObject


def pending_line(entry: Pending, pod: Pod) -> JsonObject:
    """A pod without a place, and why."""
    return {
        "podUid": entry.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "reason": entry.reason.value,
        "message": entry.message[:1024],
    }


def absent_uid(uid: str) -> str:
    """A pod's uid, or ``#`` and the member for a gang member that does not exist yet."""
    return "#" + uid.rsplit("#", 1)[1] if "#" in uid else uid


def promise_line(
    pod_uid: str, pod: tuple[str, str], node: str, gang: str, until: str = ""
) -> JsonObject:
    """One promise; ``pod`` is its namespace and name, ``until`` the end of a kept place."""
    line = {"podUid": pod_uid, "namespace": pod[0], "name": pod[1], "node": node, "gang": gang}
    return line | ({"until": until} if until else {})
