"""Judges quotas: plain Python, no code shared with the planner."""

from __future__ import annotations

from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Pod, Quota, Snapshot
from scheduler_plugin.judge.board_checker import worth_milli

__all__ = ["quota_complaints"]


def quota_complaints(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Arrivals at which a group would hold more than its quota and than it holds now.

    Args:
        snapshot: What the plan was made for.
        plan: With its steps, if it has any.
    """
    pods = {pod.uid: pod for pod in snapshot.pods}
    found: list[str] = []
    for quota in snapshot.quotas:
        inside = {uid: pod for uid, pod in pods.items() if quota.name in pod.quotas}
        if inside:
            found += _of_one(quota, inside, plan)
    return found


def _of_one(quota: Quota, inside: dict[str, Pod], plan: Plan) -> list[str]:
    walk = [(step.uid, step.arrives) for step in plan.steps]
    walk = walk or [(placed.uid, True) for placed in plan.placements]
    found: list[str] = []
    for resource, limit in quota.limits.items():
        held = quota.used.get(resource, 0)
        held += sum(_amount(pod, resource) for pod in inside.values() if pod.node)
        allowed = max(limit, held)
        for uid, arrives in walk:
            amount = _amount(inside[uid], resource) if uid in inside else 0
            held += amount if arrives else -amount
            if arrives and amount and held > allowed:
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
