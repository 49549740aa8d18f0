"""What each waiting pod or gang of a plan would need to start, the most important first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from scheduler_plugin.documents.plan_changes import (
    Change,
    DropGangTopology,
    EvictPod,
    MovePod,
    OfThePod,
    is_of_request,
)
from scheduler_plugin.documents.plan_document import Pending, PendingReason
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.explain.gang_remedies import for_gang
from scheduler_plugin.explain.hold_causes import with_held
from scheduler_plugin.explain.more_nodes import more_nodes
from scheduler_plugin.explain.obstacles import what_stands_against
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

#: Causes that only a new description of the pods, or time, removes.
_WITHOUT: Final = (
    PendingReason.GANG_INCOMPLETE,
    PendingReason.GANG_MINIMUM_FIRST,
    PendingReason.GANG_IS_FULL,
    PendingReason.HELD_FOR,
    PendingReason.PLAN_REFUSED,
)


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

    Room that is held for overdue work is nobody's cause but of those who would have it otherwise,
    and sets of changes do not look at it.
    """
    problem = problem.unheld or problem
    rules = NodeRules(problem.snapshot, leaving)
    no_causes = no_time_at_all or out_of_time
    pending = explain_pending(problem, assignment, rules, no_causes)
    pending = with_held(problem, assignment, pending, no_causes)
    entries = {entry.uid: entry for entry in pending}
    if all(entry.reason in _WITHOUT for entry in pending):
        return pending
    if out_of_time():
        return tuple(_with(entry, "late") for entry in pending)
    full, start = _with_running(problem, assignment)
    out_of_time = _within_looks(full.neighbours, out_of_time)
    trial = Trial(full, start, rules)
    search = _Search(trial, Remedies(trial, out_of_time), out_of_time)
    free = {uid for uid, entry in entries.items() if entry.reason is not PendingReason.HELD_FOR}
    waiting = _waiting(full, placed_counts(full, start), free)
    for one in waiting:
        entries |= search.told(one, entries)
    # What operators could do instead comes once everybody has a set.
    for one in waiting:
        entries |= search.told_instead(one, entries)
    return tuple(entries[entry.uid] for entry in pending)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Identical pods, or a gang, that a plan leaves out.

    Attributes:
        job: Of them.
        wanted: Class and count, of a gang its members', the largest first; else of one pod.
        uids: Of those that wait, in order.
        gpu_milli: Of one pod, or of all members.
    """

    job: Job
    wanted: tuple[tuple[int, int], ...]
    uids: tuple[str, ...]
    gpu_milli: int


def _waiting(problem: Problem, placed: Sequence[int], left_out: Set[str]) -> list[_Waiting]:
    """The most important first."""
    found = []
    for job in sorted(problem.jobs, key=lambda job: -job.priority):
        counts = [(c, int(problem.counts[c]) - placed[c]) for c in job.classes]
        counts = [(c, count) for c, count in counts if count > 0]
        uids = sorted(u for c in job.classes for u in problem.classes[c].uids if u in left_out)
        if not uids or not counts:
            continue
        gpus = sum(problem.classes[c].pod.gpu_milli * count for c, count in counts)
        if job.gang:
            counts.sort(key=lambda each: tuple(problem.requests[each[0]].tolist()), reverse=True)
        else:
            counts, gpus = [(counts[0][0], 1)], gpus // len(uids)
        found.append(_Waiting(job, tuple(counts), tuple(uids), gpus))
    return found


class _Search:
    """Sets of changes for those who wait, one after the other."""

    def __init__(self, trial: Trial, remedies: Remedies, out_of_time: OutOfTime) -> None:
        self._trial, self._remedies, self._out_of_time = trial, remedies, out_of_time

    def told(self, one: _Waiting, entries: Mapping[str, Pending]) -> dict[str, Pending]:
        """Their entries with the smallest set, or with what stands against any."""
        try:
            found = self._found(one)
        except TimeoutError:
            return {uid: _with(entries[uid], "late") for uid in one.uids}
        if found == []:
            return {uid: _with(entries[uid], "next_plan") for uid in one.uids}
        if found is None:
            against = what_stands_against(self._trial, one.wanted)
            return {uid: _refused(entries[uid], against) for uid in _told_in_full(one)}
        pays = _pays_after_seconds(found, one)
        told = {uid: entries[uid].model_copy(update={"remedy": "smallest"}) for uid in one.uids}
        for uid in _told_in_full(one):
            more = {"changes": _named(found, one, uid), "pays_after_seconds": pays}
            told[uid] = told[uid].model_copy(update=more)
        return told

    def told_instead(self, one: _Waiting, entries: Mapping[str, Pending]) -> dict[str, Pending]:
        """Where the set asks for another request: what would do without."""
        first = _told_in_full(one)
        if not any(map(is_of_request, entries[first[0]].changes)):
            return {}
        self._trial.requests_stay = True
        try:
            found = self._found(one)
            if found is None:
                against = what_stands_against(self._trial, one.wanted)
                return {uid: _refused(entries[uid], against) for uid in first}
        except TimeoutError:
            return {}
        finally:
            self._trial.requests_stay = False
        more = {
            "operator_changes": _named(found, one, first[0]),
            "operator_pays_after_seconds": _pays_after_seconds(found, one),
        }
        return {uid: entries[uid].model_copy(update=more) for uid in first}

    def _found(self, one: _Waiting) -> list[Part] | None:
        if self._out_of_time():
            raise TimeoutError
        if one.job.gang:
            return for_gang(self._remedies, self._trial, one.job.gang, one.wanted)
        found = self._remedies.smallest(one.wanted)
        return more_nodes(self._trial, one.wanted) if found is None else found


def _told_in_full(one: _Waiting) -> tuple[str, ...]:
    """Who is told in full: each of identical pods, the first member of a gang."""
    return one.uids[:1] if one.job.gang else one.uids


def _within_looks(rule: Neighbours | None, out_of_time: OutOfTime) -> OutOfTime:
    """The same, and over after so much asking which neighbours bear one another."""
    if rule is None:
        return out_of_time
    most = rule.looks + MOST_LOOKS
    return lambda: out_of_time() or rule.looks > most


def _with_running(problem: Problem, assignment: Assignment) -> tuple[Problem, Assignment]:
    """The problem with what runs as classes, and the plan as an assignment of it."""
    index = {name: i for i, name in enumerate(problem.node_names)}
    movable = any(is_movable(pod, index) for pod in problem.snapshot.pods)
    if problem.start or not movable:
        return problem, assignment
    full = compile_problem(problem.snapshot, moves=True, caps=problem.caps is not None)
    class_of = {k.uids[0]: c for c, k in enumerate(full.classes) if k.uids}
    start = dict(full.start)
    for (c, node), count in assignment.items():
        key = (class_of[problem.classes[c].uids[0]], node)
        start[key] = start.get(key, 0) + count
    return full, start


def _pays_after_seconds(parts: Sequence[Part], one: _Waiting) -> int:
    price = sum(p.change.gpu_seconds for p in parts if isinstance(p.change, MovePod | EvictPod))
    return math.ceil(price * MILLI_PER_GPU / max(MILLI_PER_GPU, one.gpu_milli))


def _named(parts: Sequence[Part], one: _Waiting, uid: str) -> tuple[Change, ...]:
    """With the name of who waits."""
    waiting = one.job.gang or uid
    return tuple(
        part.change.model_copy(update={"waiting": waiting})
        if isinstance(part.change, OfThePod | DropGangTopology)
        else part.change
        for part in parts
    )


def _refused(entry: Pending, against: str) -> Pending:
    return entry if entry.reason in _WITHOUT else entry.model_copy(update={"against": against})


def _with(entry: Pending, remedy: str) -> Pending:
    if entry.reason in _WITHOUT:
        return entry
    return entry.model_copy(update={"remedy": remedy})
