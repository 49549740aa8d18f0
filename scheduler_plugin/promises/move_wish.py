"""Who waits for room so long that running pods may be disturbed for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.gangs import GangSources, gang_of
from wattpack.kube.port import JsonObject

__all__ = ["MoveWish", "unserved"]

ROOM_CAUSES: Final = frozenset(
    reason.value
    for reason in (
        PendingReason.INSUFFICIENT_GPUS,
        PendingReason.INSUFFICIENT_CPU,
        PendingReason.INSUFFICIENT_MEMORY,
        PendingReason.INSUFFICIENT_RESOURCE,
        PendingReason.TOO_MANY_PODS,
        PendingReason.SLOW_NEIGHBOURS,
        PendingReason.FRAGMENTED,
        PendingReason.GANG_DOES_NOT_FIT,
    )
)
"""Causes that go away where running pods leave. Power is none: a move gives no watts back."""


@dataclass(slots=True)
class MoveWish:
    """Since when pods wait for room.

    Args:
        patience_ns: How long one waits before others are disturbed for it.
    """

    patience_ns: int
    _since_ns: dict[str, int] = field(default_factory=dict)

    def see(self, waiting: Iterable[str], now_ns: int) -> None:
        """These pods wait for room now; all others do not any more."""
        self._since_ns = {uid: self._since_ns.get(uid, now_ns) for uid in waiting}

    def is_due(self, resting: Set[str], now_ns: int) -> bool:
        """Somebody has waited long enough, and no attempt for it has failed lately."""
        return any(
            since_ns <= now_ns - self.patience_ns
            for uid, since_ns in self._since_ns.items()
            if uid not in resting
        )

    def next_ns(self, now_ns: int) -> int | None:
        """When the next one will have waited long enough; None if there is none."""
        due = [since_ns + self.patience_ns for since_ns in self._since_ns.values()]
        return min((at for at in due if at > now_ns), default=None)


def unserved(pods: Iterable[JsonObject], namespaces: Set[str]) -> frozenset[str]:
    """Uids of pods without our gate that kube-scheduler found no node for, nor a victim.

    Args:
        pods: All pods.
        namespaces: Those that opted in to placement; others are nobody's business here.
    """
    return frozenset(
        pod_facts.uid(pod)
        for pod in pods
        if pod_facts.namespace(pod) in namespaces and _is_unserved(pod)
    )


def room_is_awaited(causes: Mapping[str, tuple[str, str]]) -> list[str]:
    """Uids of pods whose cause is missing room."""
    return [uid for uid, (reason, _) in causes.items() if reason in ROOM_CAUSES]


def _is_unserved(pod: JsonObject) -> bool:
    status = pod.get("status") or {}
    if pod_facts.gates(pod) or pod["metadata"].get("deletionTimestamp"):
        return False
    if pod_facts.is_finished(pod) or pod_facts.pinned_node(pod):
        return False
    if pod_facts.no_node_condition(pod) is None or status.get("nominatedNodeName"):
        return False
    try:
        # Members of gangs are placed together or not at all, which needs the gate.
        return not pod_facts.unmanaged_reason(pod) and gang_of(pod, GangSources.empty()) is None
    except InputError:
        return False
