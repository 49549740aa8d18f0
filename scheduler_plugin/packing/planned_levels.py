"""Which caps a plan counts on: boards by GPU model, kernel class and cap."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, PodState, Snapshot

__all__ = ["PlannedLevel", "planned_levels"]


class PlannedLevel(NamedTuple):
    """A cap that work is counted at; ``cap_watts`` is a board's."""

    gpu_model: str
    kernel_class: str
    cap_watts: int


def planned_levels(plan: Plan, snapshot: Snapshot) -> dict[PlannedLevel, int]:
    """GPUs that count at each cap, of what is placed and of what was promised before."""
    models = {node.name: node.gpu_model for node in snapshot.nodes}
    pods = {pod.uid: pod for pod in snapshot.pods}
    counted = [(p.uid, p.node, p.cap_watts) for p in plan.placements if p.cap_watts]
    counted += [
        (pod.uid, pod.node, pod.cap_watts)
        for pod in snapshot.pods
        if pod.cap_watts and pod.state is PodState.PROMISED and pod.node in models
    ]
    found: Counter[PlannedLevel] = Counter()
    for uid, node, cap_watts in counted:
        # Only whole boards have a cap of their own.
        level = PlannedLevel(models[node], pods[uid].kernel_class, cap_watts)
        found[level] += pods[uid].gpu_milli // MILLI_PER_GPU
    return dict(sorted(found.items()))
