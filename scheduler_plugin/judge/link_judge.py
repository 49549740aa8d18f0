"""Judges uplinks: plain Python, no code shared with the planner."""

from __future__ import annotations

from collections import Counter, defaultdict

from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.documents.snapshot import Snapshot

__all__ = ["link_complaints"]


def link_complaints(snapshot: Snapshot, placements: tuple[Placement, ...]) -> list[str]:
    """Uplinks that would carry more than they do, because a plan adds to them.

    Of each gang an uplink carries what its members on one side of it send at peak, whichever side
    sends less.

    Args:
        snapshot: What the plan was made for.
        placements: Of the plan.
    """
    capacity = {
        group.name: group.uplink_megabits - group.used_megabits
        for group in snapshot.link_groups
        if group.uplink_megabits is not None
    }
    if not capacity:
        return []
    new = {placement.uid: placement.node for placement in placements}
    before, after = _loads(snapshot, {}), _loads(snapshot, new)
    return [
        f"uplink of {name}: {after[name]} of {most} megabits a second"
        for name, most in sorted(capacity.items())
        if after[name] > most and after[name] > before[name]
    ]


def _loads(snapshot: Snapshot, new: dict[str, str]) -> Counter[str]:
    """Megabits a second on each uplink with some pods where a plan sends them."""
    at = {node.name: node.labels.get(snapshot.link_label) for node in snapshot.nodes}
    parent = {group.name: group.parent for group in snapshot.link_groups}
    inside: defaultdict[str, Counter[str]] = defaultdict(Counter)
    everywhere: Counter[str] = Counter()
    for pod in snapshot.pods:
        node = new.get(pod.uid, pod.node)
        if not pod.gang or not node:
            continue
        everywhere[pod.gang] += pod.peak_flow_megabits
        name = at.get(node)
        while name:
            inside[name][pod.gang] += pod.peak_flow_megabits
            name = parent.get(name)
    return Counter(
        {
            name: sum(min(sent, everywhere[gang] - sent) for gang, sent in flows.items())
            for name, flows in inside.items()
        }
    )
