"""Judges gangs: plain Python, no code shared with the planner."""

from __future__ import annotations

from collections import defaultdict

from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.documents.snapshot import Gang, Pod, Snapshot

__all__ = ["gang_complaints"]

_HOLDS_PLACE = ("bound", "promised")


def gang_complaints(snapshot: Snapshot, placements: tuple[Placement, ...]) -> list[str]:
    """Gangs of which a plan places a part, or not all that there are to be, or apart.

    Args:
        snapshot: What the plan was made for.
        placements: Of the plan.
    """
    placed = {placement.uid for placement in placements}
    members: dict[str, list[Pod]] = defaultdict(list)
    beyond: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.gang:
            members[pod.gang].append(pod)
        elif pod.beyond:
            beyond[pod.beyond].append(pod)
    where = {p.uid: p.node for p in placements} | {p.uid: p.node for p in snapshot.pods if p.node}
    labels = {node.name: node.labels for node in snapshot.nodes}
    found: list[str] = []
    for gang in snapshot.gangs:
        waiting = [p.uid for p in members[gang.id] if p.state not in _HOLDS_PLACE]
        chosen = [uid for uid in waiting if uid in placed]
        if chosen and len(chosen) < len(waiting):
            found.append(f"gang {gang.id}: {len(chosen)} of {len(waiting)} waiting members placed")
        found += _scattered(gang, members[gang.id], where, labels) if chosen else []
        if chosen and len(members[gang.id]) < gang.size:
            found.append(f"gang {gang.id}: {len(members[gang.id])} of {gang.size} members known")
        found += _beyond(gang, members[gang.id], beyond[gang.id], placed)
    return found


def _beyond(gang: Gang, members: list[Pod], others: list[Pod], placed: set[str]) -> list[str]:
    """Members of an elastic gang beyond its least come after that, and up to its most.

    The least has its places before the plan: of a list of single pods any part may be carried out.
    """
    new = [p.uid for p in others if p.uid in placed]
    if not new:
        return []
    there = [p for p in members if p.state in _HOLDS_PLACE]
    if len(there) < max(gang.size, len(members)):
        return [f"gang {gang.id}: {len(new)} members beyond the least come before it"]
    count = len(there) + len(new) + sum(p.state in _HOLDS_PLACE for p in others)
    if gang.most is not None and count > gang.most:
        return [f"gang {gang.id}: {count} members, {gang.most} are the most"]
    return []


def _scattered(
    gang: Gang, members: list[Pod], where: dict[str, str], labels: dict[str, dict[str, str]]
) -> list[str]:
    """New members of a gang that has to be in one domain are where the others are."""
    if not gang.topology_required:
        return []
    key = gang.topology_key
    new = [p.uid for p in members if p.state not in _HOLDS_PLACE and p.uid in where]
    at = {labels[where[uid]].get(key) for uid in new}
    before = {labels.get(p.node, {}).get(key) for p in members if p.uid not in new} - {None}
    if len(at) == 1 and None not in at and (not before or at <= before):
        return []
    return [f"gang {gang.id}: new members in {key} {sorted(map(str, at))}, others in {before}"]
