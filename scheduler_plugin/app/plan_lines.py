"""Lines of a PlacementPlan object: promises, pending pods and what power is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_plugin.domain_rooms import DomainRoom
from scheduler_plugin.move_advice import advice_text
from scheduler_plugin.plan_document import Pending
from scheduler_plugin.snapshot import Pod
from wattpack.api.planning import MAX_HEADROOM_DOMAINS, MAX_SHORT_DOMAINS
from wattpack.kube.port import JsonObject


def pending_line(entry: Pending, pods: Mapping[str, Pod]) -> JsonObject:
    """A pod without a place, why, and which moves would give it one.

    Args:
        entry: Of the plan.
        pods: Of its snapshot, by uid.
    """
    pod = pods[entry.uid]
    moved = (pods[move.uid] for move in entry.moves)
    advice = advice_text(entry, {p.uid: f"{p.namespace}/{p.name}" for p in moved})
    message = "; ".join(part for part in (entry.message, advice) if part)
    line: JsonObject = {
        "podUid": entry.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "reason": entry.reason.value,
        "message": message[:1024],
    }
    domains = list(entry.domains)[:MAX_SHORT_DOMAINS]
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
    pod_uid: str, pod: tuple[str, str], node: str, gang: str, until: str = ""
) -> JsonObject:
    """One promise; ``pod`` is its namespace and name, ``until`` the end of a kept place."""
    line = {"podUid": pod_uid, "namespace": pod[0], "name": pod[1], "node": node, "gang": gang}
    return line | ({"until": until} if until else {})
