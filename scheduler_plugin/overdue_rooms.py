"""Where work that waits would have room: now, and once who is in its way had ended (ADR 41).

In its way are pods with GPUs at its priority and below. Everything else stays where it is: more
important pods, pods without GPUs, quotas, taints, and what the work itself runs already.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import Hold, Snapshot
from scheduler_plugin.packing.domain_rooms import domain_rooms
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_fill import fill
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import Assignment, Problem, compile_problem, placed_counts
from scheduler_plugin.room.resource_columns import gpu_value_milli
from scheduler_plugin.what_if import with_parts, without_pods

__all__ = ["Lack", "OverdueRooms", "Room", "Start", "WaitingWork", "waiting_work"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """A gang or a single pod that waits.

    Attributes:
        name: Id of the gang, or uid of the pod.
        priority: Of the gang its most important waiting member's.
        since_seconds: Unix time; of a gang when the last of its waiting members came.
    """

    name: str
    priority: int
    since_seconds: float


def waiting_work(snapshot: Snapshot, since_seconds: Mapping[str, float]) -> list[WaitingWork]:
    """Everything with GPUs that waits, the most important and then longest waiting first.

    Args:
        snapshot: With the pods.
        since_seconds: Unix time by uid since when pods wait; others are no work.
    """
    found: dict[str, WaitingWork] = {}
    for pod in snapshot.pods:
        if not pod.state.waits or not gpu_value_milli(pod) or pod.uid not in since_seconds:
            continue
        name = pod.gang or pod.uid
        known = found.get(name, WaitingWork(name, pod.priority, since_seconds[pod.uid]))
        found[name] = WaitingWork(
            name,
            max(known.priority, pod.priority),
            max(known.since_seconds, since_seconds[pod.uid]),
        )
    return sorted(found.values(), key=lambda work: (-work.priority, work.since_seconds, work.name))


class Lack(NamedTuple):
    """What of held room is not free yet: GPUs of its nodes, and watts of the worst domain."""

    gpu_milli: int
    watts: int


class Room(NamedTuple):
    """What work would take, and what of it others have now."""

    hold: Hold
    lack: Lack


class Start(NamedTuple):
    """Where work could start now, and whether it leaves no GPUs of its nodes to others."""

    hold: Hold
    is_wasteless: bool


class OverdueRooms:
    """Rooms in one snapshot. Works that the same pods are in the way of share what that costs.

    Args:
        snapshot: As it is, without holds.
        works: That may be asked about.
    """

    def __init__(self, snapshot: Snapshot, works: Sequence[WaitingWork]) -> None:
        self._snapshot, self._works = snapshot, works
        self._run = {pod.gang for pod in snapshot.pods if pod.node and pod.gang}
        self._without: dict[tuple[int, str], _Cleared] = {}

    @cached_property
    def _present(self) -> _Trials:
        return _Trials(_with_only(self._snapshot, {work.name for work in self._works}))

    @cached_property
    def _left_watts(self) -> dict[str, int]:
        return {room.name: room.free_watts for room in domain_rooms(self._snapshot, ())}

    def start(self, work: WaitingWork, nodes: Set[str], before: Sequence[str]) -> Start | None:
        """Where work has room beside all that runs, on held nodes first; None for nowhere.

        Args:
            work: That waits.
            nodes: That may be chosen.
            before: Those that were held for it last.
        """
        trials = self._present
        job = trials.jobs.get(work.name)
        if job is None:
            return None
        allowed = trials.among(nodes)
        for mask in (allowed & trials.among(before), allowed):
            if mask.any() and (found := trials.fit(job, mask)) is not None:
                return Start(_hold(trials.problem, work, found), trials.fills(found))
        return None

    def room(self, work: WaitingWork, nodes: Set[str], before: Sequence[str] = ()) -> Room | None:
        """Nodes and watts that work would take if who is in its way ended; None if none do.

        Nodes that have room for a member now come first, if they hold all, and among them those of
        before. Else those of before stay as long as they would do, and else those that lack least.

        Args:
            work: That waits.
            nodes: That may be chosen.
            before: Those that were held for it last.
        """
        cleared = self._cleared(work)
        trials, job = cleared.trials, cleared.trials.jobs.get(work.name)
        if job is None:
            return None
        found = cleared.first_fit(job, trials.among(nodes), trials.among(before))
        if found is None:
            return None
        hold = _hold(trials.problem, work, found)
        lacking = (watts - self._left_watts.get(name, watts) for name, watts in hold.watts.items())
        return Room(hold, Lack(cleared.lacking_milli(found), max([0, *lacking])))

    def would_fit(self, work: WaitingWork) -> bool:
        """Whether there is room at all once who is in its way has ended."""
        trials = self._cleared(work).trials
        job = trials.jobs.get(work.name)
        every = np.ones(len(trials.problem.node_names), dtype=np.bool_)
        return job is not None and trials.fit(job, every) is not None

    def _cleared(self, work: WaitingWork) -> _Cleared:
        """The cluster without who is in the way; its own members that run are not."""
        key = (work.priority, work.name if work.name in self._run else "")
        if key not in self._without:
            alike = {w.name for w in self._works if w.priority == work.priority}
            names = {work.name} if key[1] else alike - self._run
            self._without[key] = _cleared(self._snapshot, work, names)
        return self._without[key]


def _cleared(snapshot: Snapshot, work: WaitingWork, names: Set[str]) -> _Cleared:
    in_the_way = [
        pod
        for pod in snapshot.pods
        if pod.node
        and pod.priority <= work.priority
        and pod.gang != work.name
        and gpu_value_milli(pod)
    ]
    occupied: Counter[str] = Counter()
    for pod in in_the_way:
        occupied[pod.node] += gpu_value_milli(pod)
    problem = _with_only(without_pods(snapshot, in_the_way, waiting=False), names)
    has = np.array([occupied[name] for name in problem.node_names], dtype=np.int64)
    return _Cleared(_Trials(problem), has)


def _with_only(snapshot: Snapshot, works: Set[str]) -> Problem:
    """Of what waits, these works alone."""
    kept = tuple(p for p in snapshot.pods if not p.state.waits or (p.gang or p.uid) in works)
    return compile_problem(with_parts(snapshot, pods=kept))


class _Trials:
    """Works placed one at a time in a problem, and taken back."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._packing = Packing(problem)
        self._names = np.array(problem.node_names)
        self.jobs = {
            name: job
            for job in problem.jobs
            for name in ((job.gang,) if job.gang else problem.classes[job.classes[0]].uids)
        }

    def among(self, names: Set[str] | Sequence[str]) -> BoolArray:
        """Shape (n,)."""
        found: BoolArray = np.isin(self._names, list(names))
        return found

    @cached_property
    def free_milli(self) -> IntArray:
        """Of GPUs, shape (n,)."""
        return self._packing.states.gpu_milli(np.arange(len(self._names)))

    def fit(self, job: Job, mask: BoolArray) -> Assignment | None:
        """All of a gang, or one of identical pods, on some nodes; None if they do not hold it."""
        problem = self.problem
        if job.gang and (job.gang in problem.domains_of_gangs or problem.linked is not None):
            # Domains are looked at one by one by the attribute that says the nodes otherwise.
            part = replace(problem, eligible=problem.eligible & mask)
            return _placed(Packing(part), job)
        mark = self._packing.mark()
        self._packing.only = mask
        found = _placed(self._packing, job)
        self._packing.undo_to(mark)
        self._packing.only = None
        return found

    def fills(self, found: Assignment) -> bool:
        """Whether an assignment leaves no GPU of its nodes."""
        left = self.free_milli.copy()
        for (c, node), count in found.items():
            left[node] -= int(self.problem.gpu_milli[c]) * count
        return not any(left[node] for _, node in found)


def _placed(packing: Packing, job: Job) -> Assignment | None:
    if not job.gang:
        return dict(packing.assignment) if packing.place(job.classes[0], 1) == 1 else None
    fill(packing, [job])
    counts = placed_counts(packing.problem, packing.assignment)
    is_whole = all(counts[c] == packing.problem.counts[c] for c in job.classes)
    return dict(packing.assignment) if is_whole else None


@dataclass(frozen=True)
class _Cleared:
    """A cluster without who is in the way of works.

    Attributes:
        trials: Of the works.
        occupied: MilliGPU of each node that whoever is in the way has, shape (n,).
    """

    trials: _Trials
    occupied: IntArray

    @cached_property
    def free_now(self) -> IntArray:
        """MilliGPU that nobody has, shape (n,)."""
        found: IntArray = self.trials.free_milli - self.occupied
        return found

    def lacking_milli(self, found: Assignment) -> int:
        """Of an assignment's GPUs those that others have now."""
        needs: Counter[int] = Counter()
        for (c, node), count in found.items():
            needs[node] += int(self.trials.problem.gpu_milli[c]) * count
        return sum(max(0, milli - int(self.free_now[node])) for node, milli in needs.items())

    def first_fit(self, job: Job, allowed: BoolArray, before: BoolArray) -> Assignment | None:
        """The work on as few and as good nodes as can be.

        Args:
            job: The work.
            allowed: Shape (n,).
            before: Nodes that were chosen last, shape (n,).
        """
        trials = self.trials
        largest = int(trials.problem.gpu_milli[list(job.classes)].max())
        lacking = np.maximum(largest - self.free_now, 0)
        now = allowed & (lacking == 0)
        for mask in (now & before, now, allowed & before):
            if mask.any() and (found := trials.fit(job, mask)) is not None:
                return found
        if not allowed.any() or trials.fit(job, allowed) is None:
            return None
        every = np.arange(len(allowed))
        order = np.lexsort((every, self.occupied, lacking))
        order = order[allowed[order]]

        def fit(count: int) -> Assignment | None:
            return trials.fit(job, np.isin(every, order[:count]))

        least = 1 + bisect_left(range(1, len(order)), True, key=lambda n: fit(n) is not None)
        return fit(least)  # All of them do.


def _hold(problem: Problem, work: WaitingWork, found: Assignment) -> Hold:
    watts: Counter[str] = Counter()
    domains = problem.snapshot.domains
    for (c, node), count in found.items():
        for d in problem.counting(c, node).tolist():
            if d < len(domains):
                watts[domains[d].name] += int(problem.watts[c, node]) * count
    return Hold(
        work=work.name,
        priority=work.priority,
        nodes=tuple({problem.node_names[node] for _, node in found}),
        watts={name: each for name, each in watts.items() if each},
    )
