"""How much free room a plan leaves to holds: for metrics."""

from __future__ import annotations

from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Snapshot
from scheduler_plugin.packing.domain_rooms import domain_rooms
from scheduler_plugin.packing.held_rooms import counted_holds
from scheduler_plugin.room.resource_columns import gpu_value_milli

__all__ = ["held_room"]


def held_room(snapshot: Snapshot, plan: Plan) -> tuple[float, dict[str, int]]:
    """Free GPUs on held nodes, and free held watts by domain, of work that the plan does not place.

    Args:
        snapshot: With its holds.
        plan: For it.
    """
    pods = {pod.uid: pod for pod in snapshot.pods}
    at = {pod.uid: pod.node for pod in snapshot.pods if pod.node}
    at |= {step.uid: "" for step in plan.steps if not step.arrives}
    at |= {step.uid: step.node for step in plan.steps if step.arrives}
    at |= {placed.uid: placed.node for placed in plan.placements}
    placed = {placement.gang or placement.uid for placement in plan.placements}
    holds = [hold for hold in counted_holds(snapshot) if hold.work not in placed]
    nodes = {name for hold in holds for name in hold.nodes}
    free = sum(node.gpu_milli for node in snapshot.nodes if node.name in nodes)
    free -= sum(gpu_value_milli(pods[uid]) for uid, node in at.items() if node in nodes)
    watts: dict[str, int] = {}
    rooms = {room.name: room.free_watts for room in domain_rooms(snapshot, plan.placements)}
    for hold in holds:
        for name, each in hold.watts.items():
            if name in rooms:
                watts[name] = max(0, min(watts.get(name, 0) + each, rooms[name]))
    return max(0, free) / MILLI_PER_GPU, watts
