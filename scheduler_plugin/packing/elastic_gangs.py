"""Elastic gangs: who comes beyond the least waits for it, and for a place below the most.

The least of every gang comes before the first member beyond: of two gangs that may have one to
four members on five nodes both begin.
"""

from __future__ import annotations

from collections import defaultdict

from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.documents.snapshot import Gang, Pod, Snapshot

__all__ = ["not_yet"]


def not_yet(snapshot: Snapshot) -> dict[str, tuple[PendingReason, str]]:
    """Reason and message, by uid, of members beyond the least that are not planned now."""
    beyond: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.beyond:
            beyond[pod.beyond].append(pod)
    if not beyond:
        return {}
    core: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.gang in beyond:
            core[pod.gang].append(pod)
    found: dict[str, tuple[PendingReason, str]] = {}
    for gang in snapshot.gangs:
        found |= _of_one(gang, core[gang.id], beyond.get(gang.id, []))
    return found


def _of_one(gang: Gang, core: list[Pod], beyond: list[Pod]) -> dict[str, tuple[PendingReason, str]]:
    waiting = sorted((p for p in beyond if p.state.waits), key=lambda p: (p.name, p.uid))
    if len(core) < gang.size or any(pod.state.waits for pod in core):
        text = f"{gang.id}: waits until the first {gang.size} members have their places"
        return dict.fromkeys((p.uid for p in waiting), (PendingReason.GANG_MINIMUM_FIRST, text))
    if gang.most is None:
        return {}
    free = max(0, gang.most - len(core) - (len(beyond) - len(waiting)))
    text = f"{gang.id}: {gang.most} members are the most"
    return dict.fromkeys((p.uid for p in waiting[free:]), (PendingReason.GANG_IS_FULL, text))
