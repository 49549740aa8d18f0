"""Who is promised a place now, and who is planned again once those have gone."""

from __future__ import annotations

from scheduler_plugin.app.plan_archive import PROMISES_PER_PART
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.promises.ledger import Ledger, Stage

__all__ = ["first_to_go"]


def first_to_go(plan: Plan, snapshot: Snapshot, ledger: Ledger) -> tuple[Plan, bool]:
    """The part of a plan that is promised now, and whether anything was left for the next cycle.

    A promise that waits for its patch is old news by the time that it goes: no more pods are
    promised than one PlacementPlan object holds, the most important first. Gangs and kept places
    are never left, because half of them helps nobody.

    Args:
        plan: All that could be placed.
        snapshot: What it was made for.
        ledger: Promises whose patches are still to be sent count, too.
    """
    written = sum(p.stage is Stage.WRITTEN for p in ledger.promises.values())
    single = [p.uid for p in plan.placements if not p.gang and "#" not in p.uid]
    room = max(0, PROMISES_PER_PART - written - (len(plan.placements) - len(single)))
    if len(single) <= room:
        return plan, False
    priority = {pod.uid: pod.priority for pod in snapshot.pods}
    later = set(sorted(single, key=lambda uid: (-priority[uid], uid))[room:])
    first = tuple(p for p in plan.placements if p.uid not in later)
    return plan.model_copy(update={"placements": first}), True
