"""Which uplinks do not bear a gang whose members all have room."""

from __future__ import annotations

from typing import Final

from scheduler_plugin.documents.link_groups import gigabits_text
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.whole_gangs import left_over
from scheduler_plugin.rules.uplinks import GangFlows, Short

__all__ = ["short_uplinks"]

MOST_TOLD: Final = 3
"""That are named; others are counted."""


def short_uplinks(packing: Packing, job: Job) -> str:
    """They, with what they would carry and what is left; empty where links are not the cause.

    Args:
        packing: As the plan leaves it; it is left so.
        job: A gang without a place.
    """
    problem, flows = packing.problem, packing.flows
    number = -1 if problem.linked is None else problem.linked.number.get(job.gang, -1)
    if flows is None or number < 0:
        return ""
    counts = {c: int(problem.counts[c]) for c in job.classes}
    domain = problem.domains_of_gangs.get(job.gang)
    before, mark = flows.spread(number), packing.mark()
    if domain is not None and domain.required:
        rooms = packing.rooms_of_gang(counts)
        packing.only = next(domain.candidates(list(rooms.values()), list(counts.values())), None)
        if packing.only is None:
            return ""
    try:
        left = left_over(packing.place, counts, packing.wants_others)
        return "" if left else _told(flows, flows.short(number, before))
    finally:
        packing.only = None
        packing.undo_to(mark)


def _told(flows: GangFlows, short: list[Short]) -> str:
    names = flows.gangs.links.names
    told = [
        f"the uplink of {names[each.group]} would carry {gigabits_text(each.needs_megabits)} of it,"
        f" {gigabits_text(max(0, each.left_megabits))} left"
        for each in short[:MOST_TOLD]
    ]
    more = f" and {len(short) - MOST_TOLD} more" if len(short) > MOST_TOLD else ""
    return "; ".join(told) + more
