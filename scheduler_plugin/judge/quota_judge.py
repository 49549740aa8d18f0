"""Judges quotas: plain Python, no code shared with the planner."""

from __future__ import annotations

from collections import defaultdict

from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Pod, Quota, Snapshot
from scheduler_plugin.judge.board_checker import worth_milli

__all__ = ["quota_complaints"]


def quota_complaints(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Arrivals of waiting pods at which a group would hold more than its quota.

    A pod that moves is held all the while; one that leaves for good gives back what it held.

    Args:
        snapshot: What the plan was made for.
        plan: With its steps, if it has any.
    """
    if not snapshot.quotas:
        return []
    pods = {pod.uid: pod for pod in snapshot.pods}
    there: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        for name in pod.quotas if pod.node else ():
            there[name].append(pod)
    walks: dict[str, list[tuple[Pod, bool]]] = defaultdict(list)
    steps = [(step.uid, step.arrives) for step in plan.steps]
    moved = {uid for uid, arrives in steps if arrives and uid in pods and pods[uid].node}
    for uid, arrives in steps or [(placed.uid, True) for placed in plan.placements]:
        for name in pods[uid].quotas if uid in pods and uid not in moved else ():
            walks[name].append((pods[uid], arrives))
    found: list[str] = []
    for quota in snapshot.quotas:
        found += _of_one(quota, there[quota.name], walks[quota.name])
    return found


def _of_one(quota: Quota, there: list[Pod], walk: list[tuple[Pod, bool]]) -> list[str]:
    found: list[str] = []
    for resource, limit in quota.limits.items() if walk else ():
        held = quota.used.get(resource, 0)
        held += sum(_amount(pod, resource) for pod in there)
        for pod, arrives in walk:
            amount = _amount(pod, resource)
            held += amount if arrives else -amount
            if arrives and amount and held > limit:
                found.append(f"quota {quota.name}: {resource} would be {held} of {limit}")
                break
    return found


def _amount(pod: Pod, resource: str) -> int:
    if resource == "gpu_milli":
        return worth_milli(pod)
    if resource == "pods":
        return 1
    if resource in ("milli_cpu", "memory_bytes"):
        return pod.milli_cpu if resource == "milli_cpu" else pod.memory_bytes
    return pod.resources.get(resource, 0)
