"""The solver in its own process: it keeps a deadline, and whatever becomes of it there is a plan.

The child is started once and kept. It sends the greedy plan first and the final plan last; whatever
the parent holds when the child hangs, crashes or runs out of memory is the answer, after the
parent's own checker has agreed to it. Such a child is killed, and the next one starts at once,
so that the next cycle finds it ready.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Final, Protocol

from scheduler_plugin.app.solver_pipe import (
    FINAL,
    INCUMBENT,
    OUT_OF_MEMORY,
    READY,
    SolverRequest,
)
from scheduler_plugin.checker import complaints
from scheduler_plugin.plan_document import Plan, parse_plan
from scheduler_plugin.snapshot import Snapshot
from scheduler_plugin.snapshot_stream import SnapshotSender
from scheduler_plugin.solve import SearchSettings, plan, refused
from wattpack.clock import Clock
from wattpack.container_cpus import available_cpus
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["ChildSettings", "Failure", "InProcessPlanner", "Planner", "ProcessPlanner"]

GRACE_SECONDS: Final = 0.5
"""After the deadline, before the child is taken for stuck."""

START_SECONDS: Final = 10.0
"""For the child's imports, below 2 s, and again for its first snapshot, which it gets whole."""

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


class Failure(StrEnum):
    """What became of a child that gave no final plan."""

    NOT_READY = "not_ready"
    HANG = "hang"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    NONSENSE = "nonsense"


def _command(memory_mib: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "scheduler_plugin.app.solver_worker", str(memory_mib))


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """The child and how long it is waited for.

    Attributes:
        command: What to start; tests give one that hangs or dies.
        start_seconds: Until it says that it is ready, and once more for its first answer.
        grace_seconds: Beyond the deadline.
    """

    command: tuple[str, ...] = _command(MEMORY_MIB)
    start_seconds: float = START_SECONDS
    grace_seconds: float = GRACE_SECONDS

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
        failed: Told of each child that gave no final plan.

    Attributes:
        failures: How many they were.
        incumbent_seconds: When the first plan of the last cycle came that had one.
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
        self._child: _Child | None = None
        self.failures = 0
        self.incumbent_seconds = 0.0

    @property
    def child_pid(self) -> int | None:
        """Of the child that runs now."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start the child, if there is none, without waiting for it."""
        if self._child is None:
            self._child = _Child(self._settings.command, self._clock)

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        """The child's last good plan; the greedy one computed here if it sent none."""
        answer = self._ask(snapshot, moves)
        if answer.failure is not None:
            self._replace(answer.failure)
        return self._accepted(snapshot, answer)

    def close(self) -> None:
        """Kill the child; the next plan starts a new one."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _replace(self, failure: Failure) -> None:
        self.failures += 1
        self._failed(failure)
        self.close()
        self.start()

    def _ask(self, snapshot: Snapshot, moves: bool) -> _Answer:
        if self._child is not None and self._child.has_failed:
            self._replace(Failure.CRASH)
        self.start()
        assert self._child is not None
        ready_ns = self._clock.monotonic_ns() + seconds_to_ns(self._settings.start_seconds)
        if not self._child.is_ready(ready_ns):
            return self._child.answer(Failure.NOT_READY)
        began_ns = self._clock.monotonic_ns()
        deadline_ns = began_ns + seconds_to_ns(self._deadline_seconds)
        request = SolverRequest(
            self._child.sender.change(snapshot),
            self._deadline_seconds,
            deadline_ns,
            self._seed,
            self._workers,
            moves,
        )
        # A new child has all of the snapshot to read, whatever the deadline.
        slack_seconds = self._settings.grace_seconds
        slack_seconds += 0.0 if self._child.has_answered else self._settings.start_seconds
        answer = self._child.ask(request, deadline_ns + seconds_to_ns(slack_seconds))
        if answer.incumbent is not None:
            self.incumbent_seconds = (answer.incumbent_ns - began_ns) / NS_PER_SECOND
        return answer

    def _accepted(self, snapshot: Snapshot, answer: _Answer) -> Plan:
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


@dataclass(slots=True)
class _Answer:
    """What has come back so far, and what went wrong."""

    incumbent: Plan | None = None
    incumbent_ns: int = 0
    final: Plan | None = None
    failure: Failure | None = None


class _Child:
    """One child process and the thread that reads it."""

    def __init__(self, command: tuple[str, ...], clock: Clock) -> None:
        self.sender = SnapshotSender()
        self._clock = clock
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal goes to the whole group: the child ends when its pipe closes.
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._wake = clock.new_wake()
        self._answer = _Answer()
        self._is_ready = False
        self.has_answered = False
        self._reader = threading.Thread(target=self._read, name="planner-reader", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def is_ready(self, until_ns: int) -> bool:
        """Whether it says so by then."""
        return self._is_ready or self._wait(until_ns, lambda: self._is_ready)

    @property
    def has_failed(self) -> bool:
        """It has ended, or what it says makes no sense."""
        with self._lock:
            return self._answer.failure is not None

    def ask(self, request: SolverRequest, until_ns: int) -> _Answer:
        """Whatever the child says until it is done, dies, or time is up."""
        with self._lock:
            self._answer = _Answer(failure=self._answer.failure)
        threading.Thread(target=self._write, args=(request,), daemon=True).start()
        self._wait(until_ns, lambda: self._answer.final is not None)
        return self.answer(Failure.HANG)

    def answer(self, otherwise: Failure) -> _Answer:
        """What there is now; without a final plan it has a failure, ``otherwise`` where none is."""
        with self._lock:
            last = self._answer
            failure = None if last.final is not None else last.failure or otherwise
            return _Answer(last.incumbent, last.incumbent_ns, last.final, failure)

    def kill(self) -> None:
        """End the process and wait for its reader."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                _close_quietly(stream)

    def _wait(self, until_ns: int, is_there: Callable[[], bool]) -> bool:
        """Until it is there (True), the child has failed or time is up."""
        while True:
            with self._lock:
                if is_there() or self._answer.failure is not None:
                    return is_there()
            if not self._clock.wait_until(until_ns, self._wake):
                with self._lock:
                    return is_there()

    def _write(self, request: SolverRequest) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(request.to_bytes())
                self._process.stdin.flush()
        except (OSError, ValueError):
            # The child is gone; its reader has seen the end of the stream and says so.
            self._wake.set()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if not self._take(line):
                break
        with self._lock:
            if self._answer.failure is None:
                self._answer.failure = Failure.CRASH
        self._wake.set()

    def _take(self, line: bytes) -> bool:
        """Keep one message; False for one that ends the conversation."""
        kind, _, text = line.decode(errors="replace").rstrip("\n").partition(" ")
        received, failure = None, None
        if kind in (INCUMBENT, FINAL):
            try:
                received = parse_plan(text, "solver process")
            except InputError:
                failure = Failure.NONSENSE
        elif kind != READY:
            failure = Failure.OUT_OF_MEMORY if kind == OUT_OF_MEMORY else Failure.NONSENSE
        with self._lock:
            self._is_ready = self._is_ready or kind == READY
            self._answer.failure = failure
            if kind == INCUMBENT:
                self._answer.incumbent = received
                self._answer.incumbent_ns = self._clock.monotonic_ns()
            elif kind == FINAL:
                self._answer.final = received
                self.has_answered = True
        self._wake.set()
        return failure is None


def _close_quietly(stream: IO[bytes]) -> None:
    """A pipe to a dead process may fail while flushing; nothing is lost by that."""
    try:
        stream.close()
    except OSError:
        return
