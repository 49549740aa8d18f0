"""One solver process as its parent sees it: asked, read by a thread of its own, killed."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import IO

from scheduler_plugin.app.process_load import cpu_seconds, wants_cpu
from scheduler_plugin.app.solver_pipe import FINAL, INCUMBENT, OUT_OF_MEMORY, READY, SolverRequest
from scheduler_plugin.documents.plan_document import Plan, parse_plan
from scheduler_plugin.documents.snapshot_limits import MAX_TEXT_BYTES
from scheduler_plugin.documents.snapshot_stream import SnapshotSender
from wattpack.clock import Clock
from wattpack.errors import InputError

__all__ = ["Answer", "Failure", "SolverChild"]


class Failure(StrEnum):
    """Why there was no final plan. All but ``late`` end the child."""

    NOT_READY = "not_ready"
    LATE = "late"
    HANG = "hang"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    NONSENSE = "nonsense"


@dataclass(slots=True)
class Answer:
    """What has come back to one request so far, and what went wrong.

    Attributes:
        incumbent: The newest of them.
        incumbent_ns: When the first of them came.
    """

    number: int = 0
    incumbent: Plan | None = None
    incumbent_ns: int = 0
    final: Plan | None = None
    failure: Failure | None = None


class SolverChild:
    """A process that is started here.

    Args:
        command: What to start.
        clock: For waiting.

    Attributes:
        sender: What the child has been told of snapshots.
        has_answered: Whether a final plan ever came.
    """

    def __init__(self, command: tuple[str, ...], clock: Clock) -> None:
        self.sender = SnapshotSender()
        self.has_answered = False
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
        self._answer = Answer()
        self._owes = False
        self._cpu_before = 0.0
        self._is_ready = False
        self._reader = threading.Thread(target=self._read, name="planner-reader", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def has_failed(self) -> bool:
        """It has ended, or what it says makes no sense."""
        with self._lock:
            return self._answer.failure is not None

    def is_ready(self, until_ns: int) -> bool:
        """Whether it says so by then."""
        return self._is_ready or self._wait(until_ns, lambda: self._is_ready)

    def ask(self, request: SolverRequest, until_ns: int, allowed_cpu_seconds: float) -> Answer:
        """Whatever the child says until it is done, dies, or time is up.

        Args:
            request: The question.
            until_ns: When time is up.
            allowed_cpu_seconds: Of one that is only late (``is_starved``).
        """
        if not self._owes:
            self._cpu_before = cpu_seconds(self.pid)
        with self._lock:
            number = self._answer.number + 1
            self._answer = Answer(number, failure=self._answer.failure)
            self._owes = True
        numbered = replace(request, number=number)
        threading.Thread(target=self._write, args=(numbered,), daemon=True).start()
        self._wait(until_ns, lambda: self._answer.final is not None)
        return self.answer(Failure.LATE if self.is_starved(allowed_cpu_seconds) else Failure.HANG)

    def is_starved(self, allowed_cpu_seconds: float) -> bool:
        """Whether it wants CPU and had less than it may since it last answered, or was started."""
        spent = cpu_seconds(self.pid) - self._cpu_before
        return spent < allowed_cpu_seconds and wants_cpu(self.pid)

    def answer(self, otherwise: Failure) -> Answer:
        """What there is now; without a final plan it has a failure, ``otherwise`` where none is."""
        with self._lock:
            last = self._answer
            failure = None if last.final is not None else last.failure or otherwise
            return replace(last, failure=failure)

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
        stream = self._process.stdout
        # No plan is longer; what begins like one and never ends must not fill this process.
        while stream is not None and (line := stream.readline(MAX_TEXT_BYTES)):
            if not self._take(line):
                break
        with self._lock:
            if self._answer.failure is None:
                self._answer.failure = Failure.CRASH
        self._wake.set()

    def _take(self, line: bytes) -> bool:
        """Keep one message; False for one that ends the conversation."""
        kind, _, rest = line.decode(errors="replace").rstrip("\n").partition(" ")
        number, _, text = rest.partition(" ")
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
            self._keep(kind, received, is_late=number != str(self._answer.number))
        self._wake.set()
        return failure is None

    def _keep(self, kind: str, received: Plan | None, *, is_late: bool) -> None:
        """What answers an earlier request says only that the child works."""
        if kind == FINAL:
            self.has_answered = True
        if is_late:
            return
        if kind == INCUMBENT:
            if self._answer.incumbent is None:
                self._answer.incumbent_ns = self._clock.monotonic_ns()
            self._answer.incumbent = received
        elif kind == FINAL:
            self._answer.final = received
            self._owes = False


def _close_quietly(stream: IO[bytes]) -> None:
    """A pipe to a dead process may fail while flushing; nothing is lost by that."""
    try:
        stream.close()
    except OSError:
        return
