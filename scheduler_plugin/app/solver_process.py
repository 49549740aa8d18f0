"""The solver in its own process: it keeps a deadline, and whatever becomes of it there is a plan.

The child is started once and kept. It sends the greedy plan first and the final plan last; whatever
the parent holds when the child hangs, crashes or runs out of memory is the answer, after the
parent's own checker has agreed to it. Such a child is killed, and the next one starts at once,
so that the next cycle finds it ready. One that had no CPU is only late: it is let live, since a new
one would have to read all of the snapshot with as little CPU.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from scheduler_plugin.app.solver_child import Answer, Failure, SolverChild
from scheduler_plugin.app.solver_pipe import SolverRequest
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import SearchSettings, plan, refused
from wattpack.clock import Clock
from wattpack.container_cpus import available_cpus
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["ChildSettings", "Failure", "InProcessPlanner", "Planner", "ProcessPlanner"]

GRACE_SECONDS: Final = 0.5
"""After the deadline, before the child is taken for stuck."""

START_SECONDS: Final = 10.0
"""Of CPU for the child's imports, which take 1 s, and again for its first, whole snapshot."""

READY_SECONDS: Final = 3.0
"""That a cycle waits for them: it has to end well within the Lease's renew deadline of 10 s."""

HERE_SECONDS: Final = 0.5
"""For the causes of a plan that had to be made in the parent."""

MEMORY_MIB: Final = 1024
"""A contended cluster of 5,000 nodes takes a quarter of it."""


class Planner(Protocol):
    """Something that turns a snapshot into a plan in bounded time."""

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        """A plan that the checker accepted, possibly one that places nothing.

        Args:
            snapshot: What is known.
            moves: Whether running pods that have a price may leave their nodes.
        """
        ...


class InProcessPlanner:
    """The planner in the caller's thread: deterministic, for the twin, tests and offline use."""

    def __init__(self, deadline_seconds: float = 1.0, seed: int = 0, workers: int = 1) -> None:
        self._deadline_seconds = deadline_seconds
        self._seed = seed
        self._workers = workers

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        """The plan of ``scheduler_plugin.solve``."""
        return plan(
            snapshot,
            deadline_seconds=self._deadline_seconds,
            seed=self._seed,
            settings=SearchSettings(workers=self._workers, moves=moves),
        )


def _command(memory_mib: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "scheduler_plugin.app.solver_worker", str(memory_mib))


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """The child and how long it is waited for.

    Attributes:
        command: What to start; tests give one that hangs or dies.
        start_seconds: Of CPU, until it says that it is ready, and again for its first answer.
        grace_seconds: Beyond the deadline.
        ready_seconds: That a cycle waits until it is ready.
    """

    command: tuple[str, ...] = _command(MEMORY_MIB)
    start_seconds: float = START_SECONDS
    grace_seconds: float = GRACE_SECONDS
    ready_seconds: float = READY_SECONDS

    @classmethod
    def bounded(cls, memory_mib: int) -> ChildSettings:
        """The solver with so much memory; 0 for no limit of its own."""
        return cls(_command(memory_mib))


class ProcessPlanner:
    """The planner in a child that is kept, and replaced after any trouble.

    Args:
        clock: For the deadline; the child reads the system's, so in production this is that.
        deadline_seconds: What a cycle may take, from the snapshot to the plan.
        seed: Of the search.
        workers: Of CP-SAT, at most as many as the container has CPUs.
        child: What is started.
        failed: Told of each cycle without a final plan.

    Attributes:
        failures: How many were replaced.
        late: How many answers came too late of a child that had not had enough CPU.
        incumbent_seconds: When the first plan of the last cycle came; None if none came.
    """

    def __init__(
        self,
        clock: Clock,
        deadline_seconds: float = 1.0,
        seed: int = 0,
        workers: int = 1,
        child: ChildSettings | None = None,
        failed: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._seed, self._workers = seed, min(workers, available_cpus())
        self._settings = child or ChildSettings()
        self._failed = failed
        self._lock = threading.Lock()
        self._child: SolverChild | None = None
        self._is_closed = False
        self.failures = self.late = 0
        self.incumbent_seconds: float | None = None

    @property
    def child_pid(self) -> int | None:
        """Of the child that runs now."""
        child = self._child
        return None if child is None else child.pid

    def start(self) -> SolverChild | None:
        """The child, which is started if there is none, without waiting for it; None if closed."""
        with self._lock:
            if self._child is None and not self._is_closed:
                self._child = SolverChild(self._settings.command, self._clock)
            return self._child

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        """The child's last good plan; the greedy one computed here if it sent none."""
        answer = self._ask(snapshot, moves)
        if answer.failure is Failure.LATE:
            self.late += 1
            self._failed(answer.failure)
        elif answer.failure is not None:
            self._replace(answer.failure)
        return self._accepted(snapshot, answer)

    def close(self) -> None:
        """Kill the child for good, also in the middle of a plan: that one is computed here."""
        with self._lock:
            self._is_closed = True
        self._kill()

    def _kill(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _replace(self, failure: Failure) -> None:
        if not self._is_closed:
            self.failures += 1
            self._failed(failure)
        self._kill()
        self.start()

    def _ask(self, snapshot: Snapshot, moves: bool) -> Answer:
        self.incumbent_seconds = None
        running = self._child
        if running is not None and running.has_failed:
            self._replace(Failure.CRASH)
        child = self.start()
        if child is None:
            return Answer()
        start_seconds = self._settings.start_seconds
        ready_ns = self._clock.monotonic_ns() + seconds_to_ns(self._settings.ready_seconds)
        if not child.is_ready(ready_ns):
            is_slow = child.is_starved(start_seconds)
            return child.answer(Failure.LATE if is_slow else Failure.NOT_READY)
        began_ns = self._clock.monotonic_ns()
        deadline_ns = began_ns + seconds_to_ns(self._deadline_seconds)
        request = SolverRequest(
            child.sender.change(snapshot),
            self._deadline_seconds,
            deadline_ns,
            self._seed,
            self._workers,
            moves,
        )
        grace_seconds = self._settings.grace_seconds
        allowed = self._workers * (self._deadline_seconds + grace_seconds)
        # A new child has all of the snapshot to read, whatever the deadline.
        allowed += 0.0 if child.has_answered else start_seconds
        answer = child.ask(request, deadline_ns + seconds_to_ns(grace_seconds), allowed)
        if answer.incumbent is not None:
            self.incumbent_seconds = (answer.incumbent_ns - began_ns) / NS_PER_SECOND
        return answer

    def _accepted(self, snapshot: Snapshot, answer: Answer) -> Plan:
        """The best of what came that the checker agrees to."""
        digest = snapshot.digest()
        refusals: tuple[str, ...] = ()
        for candidate in (answer.final, answer.incumbent):
            if candidate is None:
                continue
            wrong = complaints(snapshot, candidate, digest=digest)
            if not wrong:
                return candidate.model_copy(update={"refusals": candidate.refusals + refusals})
            refusals += wrong
        if refusals:
            return refused(snapshot, digest, refusals)
        settings = SearchSettings(clock=self._clock, explain_seconds=HERE_SECONDS)
        return plan(snapshot, deadline_seconds=0.0, settings=settings, digest=digest)
