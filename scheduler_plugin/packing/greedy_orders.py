"""The incumbent: a plan that always exists, within milliseconds, whatever the solver does.

Several greedy orders, tiers first, and the best of them with its boards filled anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby

import numpy as np

from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_fill import fill
from scheduler_plugin.packing.objective import objective
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import Assignment, Problem
from scheduler_plugin.packing.refill import refilled
from scheduler_plugin.room.resource_columns import MEMORY, MILLI_CPU

__all__ = ["ORDERS", "JobOrder", "incumbent", "orders_of", "pack"]

JobOrder = Callable[[Problem, Job], tuple[float, ...]]


def _is_share(problem: Problem, job: Job) -> bool:
    return not job.gang and problem.demands[job.classes[0]].share_milli > 0


def _large_then_mixed(problem: Problem, job: Job) -> tuple[float, ...]:
    return (-1.0,) if _is_share(problem, job) else _large_then_scarce(problem, job)


def _large_then_scarce(problem: Problem, job: Job) -> tuple[float, ...]:
    gpus = max(int(problem.gpu_milli[c]) for c in job.classes)
    eligible = min(int(problem.eligible[c].sum()) for c in job.classes)
    return (-gpus, eligible, -_host_share(problem, job))


def _host_share(problem: Problem, job: Job) -> float:
    """Of an average node's CPU and memory, what the largest pod of a job asks for."""
    hosts = problem.total[:, [MILLI_CPU, MEMORY]].sum(axis=0)
    average = np.maximum(hosts / max(1, len(problem.total)), 1.0)
    return max(
        float((problem.requests[c, [MILLI_CPU, MEMORY]] / average).sum()) for c in job.classes
    )


def _small_first(problem: Problem, job: Job) -> tuple[float, ...]:
    large = _large_then_scarce(problem, job)
    return (-large[0], -large[2])


def _scarce_then_large(problem: Problem, job: Job) -> tuple[float, ...]:
    return tuple(reversed(_large_then_scarce(problem, job)))


def _choosy_first(problem: Problem, job: Job) -> tuple[float, ...]:
    """By what a GPU of the job loses on the next best model (Vogel's rule), then by its worth."""
    assert problem.worth is not None
    lost = most = 0
    for c in job.classes:
        worths = np.unique(problem.worth[c][problem.eligible[c]])[::-1].tolist() or [0]
        most += worths[0] * int(problem.counts[c])
        lost += (worths[0] - worths[min(1, len(worths) - 1)]) * int(problem.counts[c])
    gpus = max(1, sum(int(problem.gpu_milli[c] * problem.counts[c]) for c in job.classes))
    return (-lost / gpus, -most / gpus, *_large_then_scarce(problem, job))


def _as_preferred(problem: Problem, job: Job) -> tuple[float, ...]:
    """The first of ``ORDERS``, on the nodes that the objective's other stages prefer."""
    return _large_then_mixed(problem, job)


def _frugal_first(problem: Problem, job: Job) -> tuple[float, ...]:
    value = sum(problem.classes[c].value * int(problem.counts[c]) for c in job.classes)
    watts = 0.0
    for c in job.classes:
        on_eligible = problem.watts[c][problem.eligible[c]]
        watts += float(on_eligible.min(initial=0)) * int(problem.counts[c])
    return (watts / value, -value)


ORDERS: tuple[tuple[JobOrder, bool], ...] = (
    (_large_then_mixed, False),
    (_large_then_scarce, False),
    (_scarce_then_large, False),
    (_frugal_first, False),
    (_small_first, True),
)
"""In which order jobs of a tier are placed, and whether they are spread."""


def orders_of(problem: Problem) -> tuple[tuple[JobOrder, bool], ...]:
    """``ORDERS``, and first one on the nodes that stages ahead of fragmentation prefer, if any do.

    Where pods tell GPU models apart, it goes by what these are worth.
    """
    if problem.worth is not None:
        return ((_choosy_first, False), *ORDERS)
    return ((_as_preferred, False), *ORDERS) if problem.preferences.has_first else ORDERS


def fill_in_turn(packing: Packing, jobs: Iterable[Job]) -> None:
    """Add pods of jobs that are no gangs one by one in the order of their uids, as if they came so.

    Shares of many sizes that alternate complete one another's boards: of openb's default trace,
    known to 130 %, 99.3 % of the GPUs are allocated, by falling size 99.0 %.
    """
    classes = packing.problem.classes
    turns = sorted((uid, job.classes[0]) for job in jobs for uid in classes[job.classes[0]].uids)
    for _, class_index in turns:
        packing.place(class_index, 1)


def pack(problem: Problem, order: JobOrder, *, spread: bool = False) -> Packing:
    """One greedy pass: tiers first, jobs of a tier in the given order.

    Shares of boards that the order holds equal go in turn.
    """
    packing = Packing(problem, problem.start)
    packing.by_worth = order in (_choosy_first, _as_preferred)
    ranked = [(-job.priority, order(problem, job), job) for job in problem.jobs]
    ranked.sort(key=lambda one: one[:2])
    jobs = [job for _, _, job in ranked]
    same = Counter((tier, rank) for tier, rank, _ in ranked)
    parts = groupby(
        ranked, lambda one: one[:2] if same[one[:2]] > 1 and _is_share(problem, one[2]) else ()
    )
    for mixed, part in parts:
        members = [job for _, _, job in part]
        if mixed:
            fill_in_turn(packing, members)
        else:
            fill(packing, members, spread=spread)
    placed = -1
    while packing.peers is not None and placed < sum(packing.assignment.values()):
        # Who wants to be near others, or as many as elsewhere, may find them there now.
        placed = sum(packing.assignment.values())
        fill(packing, jobs, spread=spread)
    return packing


def incumbent(
    problem: Problem, enough: Callable[[Assignment], bool], first: Packing | None = None
) -> Assignment:
    """The best of the greedy orders; later ones run only while ``enough`` says no.

    Args:
        problem: What is packed.
        enough: Whether an assignment needs no better one, or time is up.
        first: What the first order gave, if the caller has it already.
    """
    orders = orders_of(problem)
    best = pack(problem, orders[0][0]) if first is None else first
    reached = objective(best)
    shares = any(demand.share_milli for demand in problem.demands)
    for order, spread in orders[1:]:
        if enough(best.assignment):
            break
        if order is _large_then_scarce and not shares:
            continue  # As the first.
        other = pack(problem, order, spread=spread)
        if (as_good := objective(other)) > reached:
            best, reached = other, as_good
    found = best.assignment
    return found if enough(found) else refilled(problem, found, enough)
