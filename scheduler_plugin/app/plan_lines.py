"""Lines of a PlacementPlan object: promises, pending pods and what power is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_plugin.documents.change_text import remedy_text, told_by_uid
from scheduler_plugin.documents.plan_changes import EvictPod, MovePod
from scheduler_plugin.documents.plan_document import Pending, Plan
from scheduler_plugin.documents.snapshot import Pod
from scheduler_plugin.documents.snapshot_domain import AT_RISK
from scheduler_plugin.packing.domain_rooms import DomainRoom
from wattpack.api.planning import MAX_HEADROOM_DOMAINS, MAX_SHORT_DOMAINS
from wattpack.kube.port import JsonObject


def pending_message(entry: Pending, told: Pending, pods: Mapping[str, Pod]) -> str:
    """Why a pod waits and what would let it start, in one plain line.

    Args:
        entry: Of the plan.
        told: The entry that says what it needs: its own, or that of its gang's first member.
        pods: Of the plan's snapshot, by uid.
    """
    names = {
        c.uid: f"{pods[c.uid].namespace}/{pods[c.uid].name}"
        for c in told.changes
        if isinstance(c, MovePod | EvictPod)
    }
    return "; ".join(part for part in (entry.message, remedy_text(told, names)) if part)


def pending_causes(result: Plan, pods: Mapping[str, Pod]) -> dict[str, tuple[str, str]]:
    """Reason and message by uid, of pods that exist; arguments as above."""
    told = told_by_uid(result.pending)
    return {
        entry.uid: (entry.reason.value, pending_message(entry, told[entry.uid], pods))
        for entry in result.pending
        if "#" not in entry.uid
    }


def pending_line(entry: Pending, told: Pending, pods: Mapping[str, Pod]) -> JsonObject:
    """A pod without a place, why, and what would give it one; arguments as above."""
    pod = pods[entry.uid]
    message = pending_message(entry, told, pods)
    line: JsonObject = {
        "podUid": entry.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "reason": entry.reason.value,
        "message": message[:1024],
    }
    # At whatever risk a domain is short, it is one object.
    named = dict.fromkeys(domain.partition(AT_RISK)[0] for domain in entry.domains)
    domains = list(named)[:MAX_SHORT_DOMAINS]
    return line | ({"powerDomains": domains} if domains else {})


def headroom_status(rooms: Sequence[DomainRoom]) -> JsonObject:
    """``status.headroom`` of rooms that are sorted by what is free; empty without domains."""
    if not rooms:
        return {}
    listed = [
        {
            "name": room.name,
            "limitWatts": room.limit_watts,
            "countedWatts": room.counted_watts,
            "freeWatts": room.free_watts,
        }
        for room in rooms[:MAX_HEADROOM_DOMAINS]
    ]
    return {
        "tightest": f"{rooms[0].free_watts / 1000:.1f} kW {rooms[0].name}",
        "bindingDomain": rooms[0].name,
        "domains": listed,
        "omitted": len(rooms) - len(listed),
    }


def absent_uid(uid: str) -> str:
    """A pod's uid, or ``#`` and the member for a gang member that does not exist yet."""
    return "#" + uid.rsplit("#", 1)[1] if "#" in uid else uid


def promise_line(
    pod_uid: str, pod: tuple[str, str], node: str, gang: str, until: str = "", cap_watts: int = 0
) -> JsonObject:
    """One promise; ``pod`` is its namespace and name, ``until`` the end of a kept place."""
    line = {"podUid": pod_uid, "namespace": pod[0], "name": pod[1], "node": node, "gang": gang}
    line |= {"until": until} if until else {}
    return line | ({"capWatts": cap_watts} if cap_watts else {})
