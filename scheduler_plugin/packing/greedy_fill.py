"""Jobs added to an assignment in a given order, each as far as it fits, gangs whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler_plugin.packing.fed_domains import domains_for
from scheduler_plugin.packing.greedy import Packing, Place
from scheduler_plugin.packing.linked_places import place_linked
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import Problem, placed_counts
from scheduler_plugin.packing.whole_gangs import left_over
from scheduler_plugin.rules.gang_domains import GangDomain

__all__ = ["fill"]


def _largest_first(problem: Problem, job: Job) -> Sequence[int]:
    """A gang's small members find room beside its large ones, not the other way round."""
    if len(job.classes) == 1:
        return job.classes
    size = {c: (int(problem.gpu_milli[c]), *problem.requests[c].tolist()) for c in job.classes}
    return sorted(job.classes, key=lambda c: size[c], reverse=True)


def fill(packing: Packing, jobs: Iterable[Job], *, spread: bool = False) -> None:
    """Add every job that still fits, in the given order; a gang whole or not at all."""
    problem = packing.problem
    place = packing.spread if spread else packing.place
    placed = placed_counts(problem, packing.assignment)
    for job in jobs:
        wanted = {c: int(problem.counts[c]) - placed[c] for c in _largest_first(problem, job)}
        domain = problem.domains_of_gangs.get(job.gang)
        if problem.linked is not None and (gang := problem.linked.number.get(job.gang, -1)) >= 0:
            if any(wanted.values()):
                place_linked(packing, gang, wanted, place, domain)
            continue
        if domain is not None and _is_settled(packing, domain, wanted, place):
            continue
        mark = packing.mark()
        if not job.gang:
            for class_index, count in wanted.items():
                place(class_index, count)
        elif left_over(place, wanted, packing.wants_others):
            packing.undo_to(mark)


def _is_settled(
    packing: Packing, domain: GangDomain, wanted: Mapping[int, int], place: Place
) -> bool:
    """Whether a gang's waiting members are in one domain now, or wait since they have to be."""
    if not any(wanted.values()):
        return False
    return _in_one_domain(packing, domain, wanted, place) or domain.required


def _in_one_domain(
    packing: Packing, domain: GangDomain, wanted: Mapping[int, int], place: Place
) -> bool:
    """All of a gang's members in one domain, if there is one that holds them."""
    mark = packing.mark()
    for inside in domains_for(packing, wanted, domain):
        packing.only = inside
        left = left_over(place, wanted, packing.wants_others)
        packing.only = None
        if not left:
            return True
        packing.undo_to(mark)
    packing.only = None
    return False
