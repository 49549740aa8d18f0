"""Which overdue work has room held for it, and which room that is (ADR 41).

Work is a gang, or a pod without one. It is overdue once it waited for the patience. Room is held
for work that would fit if what runs with GPUs at its priority and below ended. At most one work
below each root of the power tree has a hold, the most important first, then who had fewest turns,
then who waits longest. A turn ends when the work starts or goes, or once what it lacks has not
become less for a patience, or after ``LONGEST_AT_FIRST`` of them, each twice as long in every
further turn up to ``LONGEST_TURN``; then it rests as long as the turn was, so that what never fits
costs at most half of the time.

Nodes are held whole. So work that could start now, which this plan might give up for equals, has a
hold only if it had one before or leaves no GPU of its nodes to others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import Hold, Snapshot
from scheduler_plugin.packing.domain_rooms import ancestors, domain_rooms
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_fill import fill
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import (
    Assignment,
    Problem,
    compile_problem,
    placed_counts,
)
from scheduler_plugin.room.resource_columns import gpu_value_milli
from scheduler_plugin.what_if import with_parts, without_pods

__all__ = ["LONGEST_TURN", "HoldBook", "Room", "WaitingWork", "room_for", "waiting_work"]

BoolArray = npt.NDArray[np.bool_]

LONGEST_TURN: Final = 16
"""Patiences; 16 of the default 10 minutes outlast most batch pods (assumed)."""
LONGEST_AT_FIRST: Final = 4
"""Patiences of a first turn that comes closer all the time (assumed)."""
CLOSER_WATTS_SHARE: Final = 0.05
"""Of held watts, by which less has to be lacking to count; measured draw moves by about 1 %."""
MOST_TRIED: Final = 8
"""Works a cycle for which room is looked for: each costs what reading the snapshot costs."""
LOOKED_AGAIN_SECONDS: Final = 60.0
"""Work for which there was no room, however empty the nodes, is asked about again after this."""


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


class HoldBook:
    """Turns of overdue work, from cycle to cycle of one planner; a new one begins them anew.

    Args:
        patience_seconds: 0 holds nothing.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._holds: dict[str, Hold] = {}
        self._progress: dict[str, _Progress] = {}
        self._turns: Counter[str] = Counter()
        self._rests_until: dict[str, float] = {}

    def applied(
        self, snapshot: Snapshot, since_seconds: Mapping[str, float], now_seconds: float
    ) -> Snapshot:
        """The snapshot with what is held now; the same one where nothing is.

        Args:
            snapshot: Without holds.
            since_seconds: Unix time by uid since when pods wait.
            now_seconds: Unix time.
        """
        if not self._patience:
            return snapshot
        works = waiting_work(snapshot, since_seconds)
        self._forget({work.name for work in works})
        self._end_turns(now_seconds)
        holds = tuple(self._chosen(snapshot, works, now_seconds))
        self._holds = {hold.work: hold for hold in holds}
        if not holds:
            return snapshot
        in_order = tuple(sorted(holds, key=lambda hold: hold.work))
        return snapshot.model_copy(update={"holds": in_order})

    def _forget(self, waiting: set[str]) -> None:
        """Who waits no more."""
        for table in (self._holds, self._progress, self._turns, self._rests_until):
            for gone in table.keys() - waiting:
                del table[gone]

    def _end_turns(self, now: float) -> None:
        for work, hold in list(self._holds.items()):
            if hold.until_unix_seconds <= now:
                self._turns[work] += 1
                length = hold.until_unix_seconds - hold.since_unix_seconds
                self._rests_until[work] = now + length
                del self._holds[work]

    def _chosen(
        self, snapshot: Snapshot, works: Sequence[WaitingWork], now: float
    ) -> Iterator[Hold]:
        """What is held, in turn."""
        due = [
            work
            for work in works
            if now - work.since_seconds >= self._patience
            and now >= self._rests_until.get(work.name, now)
        ]
        due.sort(key=lambda w: (-w.priority, w.name not in self._holds, self._turns[w.name]))
        due = due[:MOST_TRIED]
        if not due:
            return
        present = _with_only(snapshot, {work.name for work in due})
        root_of = _roots(snapshot)
        taken: set[str] = set()
        starting: dict[str, int] = {}
        for work in due:
            below = {node for node, root in root_of.items() if root not in taken}
            if not below:
                return
            # Who starts now goes first among equals, whom its hold would keep waiting, and they it.
            nodes = frozenset(n for n in below if starting.get(root_of[n]) != work.priority)
            before = self._holds.get(work.name)
            starts = _starts_now(present, work, nodes, before.nodes if before else ())
            if starts is not None:
                if before is not None or starts.is_wasteless:
                    starting |= {root_of[node]: work.priority for node in starts.hold.nodes}
                    yield self._in_turn(starts.hold, _Lack(0, 0), now)
                continue
            room = room_for(snapshot, work, nodes, before.nodes if before else ())
            if room is not None:
                taken |= {root_of[node] for node in room.hold.nodes}
                watts = _lacking_watts(snapshot, room.hold)
                yield self._in_turn(room.hold, _Lack(room.lacking_milli, watts), now)
            elif nodes == root_of.keys():
                self._rests_until[work.name] = now + min(self._patience, LOOKED_AGAIN_SECONDS)

    def _in_turn(self, hold: Hold, lack: _Lack, now: float) -> Hold:
        """The hold with when its turn began, and when it ends at the latest unless it comes closer.

        Args:
            hold: What is held now.
            lack: What of it is not free yet.
            now: Unix time.
        """
        work = hold.work
        progress = self._progress.get(work) if work in self._holds else None
        if progress is None:
            progress = _Progress(now, now, lack)
        elif lack.is_less_than(progress.least, hold):
            progress = _Progress(progress.since_seconds, now, lack)
        self._progress[work] = progress
        longer = 2 ** min(self._turns[work], 10)
        longest = min(LONGEST_AT_FIRST * longer, LONGEST_TURN)
        ends = (
            progress.since_seconds + longest * self._patience,
            progress.closer_seconds + min(longer, LONGEST_TURN) * self._patience,
        )
        turn = {
            "since_unix_seconds": int(progress.since_seconds),
            "until_unix_seconds": int(min(ends)) + 1,
        }
        return hold.model_copy(update=turn)


class _Lack(NamedTuple):
    """What of held room is not free yet: GPUs of its nodes, and watts of the worst domain."""

    gpu_milli: int
    watts: int

    def is_less_than(self, least: _Lack, hold: Hold) -> bool:
        """Whether the work came closer than it ever was in this turn."""
        step = CLOSER_WATTS_SHARE * max(hold.watts.values(), default=0)
        return self.gpu_milli < least.gpu_milli or self.watts < least.watts - step


class _Progress(NamedTuple):
    """Of one turn: when it began, and when least was lacking for the first time, Unix time."""

    since_seconds: float
    closer_seconds: float
    least: _Lack


def _lacking_watts(snapshot: Snapshot, hold: Hold) -> int:
    left = {room.name: room.free_watts for room in domain_rooms(snapshot, ())}
    return max((watts - left.get(name, watts) for name, watts in hold.watts.items()), default=0)


class Room(NamedTuple):
    """What work would take, and how many thousandths of GPUs of it others have now."""

    hold: Hold
    lacking_milli: int


class _Start(NamedTuple):
    """Work that has room now, and whether it leaves no GPUs of its nodes to others."""

    hold: Hold
    is_wasteless: bool


def _starts_now(
    present: Problem, work: WaitingWork, nodes: frozenset[str], before: Sequence[str]
) -> _Start | None:
    """Where work has room beside all that runs, on held nodes first; None for nowhere.

    Args:
        present: The snapshot with works that wait, this one too.
        work: Of them.
        nodes: That may be chosen.
        before: Those that were held for it last.
    """
    jobs = [job for job in present.jobs if _is_of(present, job, work)]
    allowed = np.array([name in nodes for name in present.node_names], dtype=np.bool_)
    kept = allowed & np.isin(np.array(present.node_names), list(before))
    for mask in (kept, allowed):
        packing = Packing(replace(present, eligible=present.eligible & mask), present.start)
        if mask.any() and jobs and _places_all(packing, jobs[0]):
            used = np.array(sorted({node for _, node in packing.assignment}))
            is_full = not packing.states.gpu_milli(used).any()
            return _Start(_hold(present, work, packing.assignment), is_full)
    return None


def _is_of(problem: Problem, job: Job, work: WaitingWork) -> bool:
    return work.name in (job.gang, *(problem.classes[job.classes[0]].uids if not job.gang else ()))


def _places_all(packing: Packing, job: Job) -> bool:
    """Book all of a gang, or one of identical pods."""
    if not job.gang:
        return packing.place(job.classes[0], 1) == 1
    fill(packing, [job])
    counts = placed_counts(packing.problem, packing.assignment)
    return all(counts[c] == packing.problem.counts[c] for c in job.classes)


def room_for(
    snapshot: Snapshot, work: WaitingWork, nodes: frozenset[str], before: Sequence[str] = ()
) -> Room | None:
    """Nodes and watts that work would take if who is in its way ended; None if it cannot fit.

    Nodes that have room for a member now come first, if they hold all, and among them those of
    before. Else those of before stay as long as they would do, and else those that lack least come.

    Args:
        snapshot: As it is.
        work: That waits in it.
        nodes: That may be chosen.
        before: Those that were held for it last.
    """
    in_the_way = [
        pod
        for pod in snapshot.pods
        if pod.node
        and pod.priority <= work.priority
        and gpu_value_milli(pod)
        and not (pod.gang and pod.gang == work.name)
    ]
    gone = without_pods(snapshot, in_the_way, waiting=False)
    problem = _with_only(gone, {work.name})
    if not problem.jobs or problem.blocked:
        return None
    occupied: Counter[str] = Counter()
    for pod in in_the_way:
        occupied[pod.node] += gpu_value_milli(pod)
    allowed = np.array([name in nodes for name in problem.node_names], dtype=np.bool_)
    has = np.array([occupied[name] for name in problem.node_names], dtype=np.int64)
    found = _first_fit(problem, allowed, has, before)
    if found is None:
        return None
    free = Packing(problem).states.gpu_milli(np.arange(len(has))) - has
    needs: Counter[int] = Counter()
    for (c, node), count in found.items():
        needs[node] += int(problem.gpu_milli[c]) * count
    lacking = sum(max(0, milli - int(free[node])) for node, milli in needs.items())
    return Room(_hold(problem, work, found), lacking)


def _with_only(snapshot: Snapshot, works: Set[str]) -> Problem:
    """Of what waits, these works alone."""
    kept = tuple(p for p in snapshot.pods if not p.state.waits or (p.gang or p.uid) in works)
    return compile_problem(with_parts(snapshot, pods=kept))


def _first_fit(
    problem: Problem, allowed: BoolArray, occupied: npt.NDArray[np.int64], before: Sequence[str]
) -> Assignment | None:
    """The work on as few and as good nodes as can be.

    Args:
        problem: Of the work alone.
        allowed: Shape (n,).
        occupied: MilliGPU of each node that whoever is in the way has, shape (n,).
        before: Nodes that were chosen last.
    """
    every = np.arange(len(problem.node_names))
    free = Packing(problem).states.gpu_milli(every) - occupied
    lacking = np.maximum(int(problem.gpu_milli.max()) - free, 0)
    kept = np.isin(np.array(problem.node_names), list(before))
    now = allowed & (lacking == 0)
    for mask in (now & kept, now, allowed & kept):
        if mask.any() and (found := _fit(problem, mask)) is not None:
            return found
    order = [n for n in np.lexsort((every, occupied, lacking)).tolist() if allowed[n]]
    if not order or _fit(problem, allowed) is None:
        return None

    def fits(count: int) -> bool:
        return _fit(problem, np.isin(every, order[:count])) is not None

    least = 1 + bisect_left(range(1, len(order)), True, key=fits)  # All of them do.
    return _fit(problem, np.isin(every, order[:least]))


def _fit(problem: Problem, nodes: BoolArray) -> Assignment | None:
    """All of the work on some nodes; None if they do not hold it."""
    part = replace(problem, eligible=problem.eligible & nodes)
    packing = Packing(part, part.start)
    fill(packing, part.jobs)
    counts = placed_counts(part, packing.assignment)
    return packing.assignment if counts == part.counts.tolist() else None


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


def _roots(snapshot: Snapshot) -> dict[str, str]:
    """The root of the power tree above each node; empty where there is none."""
    domains = {domain.name: domain for domain in snapshot.domains}
    of_domain = {"": ""} | {name: ancestors(domains, name)[-1] for name in domains}
    return {node.name: of_domain[node.domain] for node in snapshot.nodes}
