"""What each waiting pod or gang of a plan would need to start, the most important first."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Final

from scheduler_plugin.documents.plan_changes import (
    Change,
    DropGangTopology,
    EvictPod,
    MovePod,
    OfThePod,
)
from scheduler_plugin.documents.plan_document import Pending, PendingReason
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.explain.gang_remedies import for_gang
from scheduler_plugin.explain.more_nodes import more_nodes
from scheduler_plugin.explain.pending_causes import explain_pending
from scheduler_plugin.explain.remedies import OutOfTime, Remedies
from scheduler_plugin.explain.static_needs import NodeRules
from scheduler_plugin.explain.trial import Part, Trial
from scheduler_plugin.packing.pod_classes import Job, is_movable
from scheduler_plugin.packing.problem import Assignment, Problem, compile_problem, placed_counts
from scheduler_plugin.room.board_neighbours import Neighbours

__all__ = ["explained"]

MOST_LOOKS: Final = 300_000
"""Of ``board_neighbours``, a tenth of a second where we measured: also without a clock thousands of
pods that all share boards and all differ end in time."""

#: Causes that only a new description of the pods removes.
_WITHOUT: Final = (PendingReason.GANG_INCOMPLETE, PendingReason.PLAN_REFUSED)


def explained(
    problem: Problem,
    assignment: Assignment,
    out_of_time: OutOfTime = lambda: False,
    no_time_at_all: OutOfTime | None = None,
    leaving: Set[str] = frozenset(),
) -> tuple[Pending, ...]:
    """Every waiting pod that a plan leaves out, why, and the smallest set that would let it in.

    Args:
        problem: What was planned.
        assignment: The plan.
        out_of_time: Asked before each pod and step; whose set was not looked for says ``late``.
        no_time_at_all: The same for dominant causes, which take a fiftieth of that; None for alike.
        leaving: Nodes that are not asked to come back.
    """
    rules = NodeRules(problem.snapshot, leaving)
    pending = explain_pending(problem, assignment, rules, no_time_at_all or out_of_time)
    entries = {entry.uid: entry for entry in pending}
    if all(entry.reason in _WITHOUT for entry in pending):
        return pending
    if out_of_time():
        return tuple(_with(entry, "late") for entry in pending)
    full, start = _with_running(problem, assignment)
    out_of_time = _within_looks(full.neighbours, out_of_time)
    trial = Trial(full, start, rules)
    remedies = Remedies(trial, out_of_time)
    placed = placed_counts(full, start)
    for job in sorted(full.jobs, key=lambda job: -job.priority):
        wanted = [(c, int(full.counts[c]) - placed[c]) for c in job.classes]
        waiting = [uid for c in job.classes for uid in full.classes[c].uids if uid in entries]
        wanted = [(c, count) for c, count in wanted if count > 0]
        if not waiting or not wanted:
            continue
        found: list[Part] | None
        try:
            if out_of_time():
                raise TimeoutError
            found = _found(remedies, trial, job, wanted)
        except TimeoutError:
            entries |= {uid: _with(entries[uid], "late") for uid in waiting}
            continue
        if found == []:
            entries |= {uid: _with(entries[uid], "next_plan") for uid in waiting}
        elif found:
            gpus = sum(full.classes[c].pod.gpu_milli * k for c, k in wanted)
            _tell(entries, job, sorted(waiting), found, gpus)
    return tuple(entries[entry.uid] for entry in pending)


def _within_looks(rule: Neighbours | None, out_of_time: OutOfTime) -> OutOfTime:
    """The same, and over after so much asking which neighbours bear one another."""
    if rule is None:
        return out_of_time
    most = rule.looks + MOST_LOOKS
    return lambda: out_of_time() or rule.looks > most


def _found(
    remedies: Remedies, trial: Trial, job: Job, wanted: Sequence[tuple[int, int]]
) -> list[Part] | None:
    if not job.gang:
        one = [(wanted[0][0], 1)]
        found = remedies.smallest(one)
        return more_nodes(trial, one) if found is None else found
    requests = trial.problem.requests
    by_size = sorted(wanted, key=lambda each: tuple(requests[each[0]].tolist()), reverse=True)
    return for_gang(remedies, trial, job.gang, by_size)


def _with_running(problem: Problem, assignment: Assignment) -> tuple[Problem, Assignment]:
    """The problem with what runs as classes, and the plan as an assignment of it."""
    index = {name: i for i, name in enumerate(problem.node_names)}
    movable = any(is_movable(pod, index) for pod in problem.snapshot.pods)
    if problem.start or not movable:
        return problem, assignment
    full = compile_problem(problem.snapshot, moves=True)
    class_of = {k.uids[0]: c for c, k in enumerate(full.classes) if k.uids}
    start = dict(full.start)
    for (c, node), count in assignment.items():
        key = (class_of[problem.classes[c].uids[0]], node)
        start[key] = start.get(key, 0) + count
    return full, start


def _tell(
    entries: dict[str, Pending], job: Job, waiting: Sequence[str], parts: Sequence[Part], gpus: int
) -> None:
    """Write the set to each of identical pods, or to the first member of a gang."""
    price = sum(p.change.gpu_seconds for p in parts if isinstance(p.change, MovePod | EvictPod))
    gpus_of_one = gpus if job.gang else gpus // max(1, len(waiting))
    after = math.ceil(price * MILLI_PER_GPU / max(MILLI_PER_GPU, gpus_of_one))
    for number, uid in enumerate(waiting):
        changes = () if job.gang and number else _named(parts, job.gang or uid)
        told = {
            "remedy": "smallest",
            "changes": changes,
            "pays_after_seconds": after if changes else 0,
        }
        entries[uid] = entries[uid].model_copy(update=told)


def _named(parts: Sequence[Part], waiting: str) -> tuple[Change, ...]:
    """With the name of who waits."""
    return tuple(
        part.change.model_copy(update={"waiting": waiting})
        if isinstance(part.change, OfThePod | DropGangTopology)
        else part.change
        for part in parts
    )


def _with(entry: Pending, remedy: str) -> Pending:
    if entry.reason in _WITHOUT:
        return entry
    return entry.model_copy(update={"remedy": remedy})
