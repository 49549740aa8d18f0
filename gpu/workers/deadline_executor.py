"""Driver calls on several boards within one deadline, whatever any of them does.

A driver call can hang for ever, and a thread inside it cannot be ended. So calls run in daemon
threads; a board that does not answer by the deadline keeps its thread to itself and is asked
nothing more until its call returns. There is never more than one thread a board besides the shared
one (docs/adr/0005-one-worker-per-device.md). The agent reads through this, the actuator writes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from wattpack.clock import Clock, Wake
from wattpack.units import NS_PER_MS

T = TypeVar("T")

STALL_NS = 20 * NS_PER_MS
"""Four times the slowest call seen on an H200 (energy counter, 4.8 ms)."""

Abandoned = Callable[[], bool]
"""Whether the deadline has passed and nobody waits for the rest of a job any more."""

Job = Callable[[Abandoned], T]


class _Round(Generic[T]):
    """One round of jobs; late results land in their own, forgotten round."""

    def __init__(self, jobs: Mapping[str, Job[T]]) -> None:
        self.jobs = jobs
        self.todo = deque(jobs)
        self.open = set(jobs)
        self.results: dict[str, T | Exception] = {}
        self.over = False

    def abandoned(self) -> bool:
        return self.over


class _Worker(threading.Thread):
    """Does the jobs that it is given, one after the other, until it is given None."""

    def __init__(self, name: str, work: Callable[[_Round[Any], str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs: SimpleQueue[tuple[_Round[Any], deque[str]] | None] = SimpleQueue()
        self._work = work
        self.start()

    def run(self) -> None:
        while (given := self.jobs.get()) is not None:
            round_, keys = given
            while True:
                try:
                    key = keys.popleft()
                except IndexError:  # done, or taken over by other workers
                    break
                self._work(round_, key)


class DeadlineExecutor:
    """Runs at most one job a board at a time.

    One shared worker does the jobs in turn, which costs two thread switches a round. Once a board
    holds it up for ``stall_ns``, that board keeps it, and every board still to be asked gets a
    worker of its own.

    Args:
        clock: For the deadline.
        deadline_ns: After which a board without an answer counts as stuck in this round.
        stall_ns: How long one board may hold up the others; 0 asks all at the same time.
    """

    def __init__(self, clock: Clock, *, deadline_ns: int, stall_ns: int = STALL_NS) -> None:
        self._clock = clock
        self._deadline_ns = deadline_ns
        self._stall_ns = stall_ns
        self._wake: Wake = clock.new_wake()
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._shared: _Worker | None = None
        self._own: dict[str, _Worker] = {}

    def run(
        self, jobs: Mapping[str, Job[T]], began_ns: int | None = None
    ) -> dict[str, T | Exception]:
        """What each board's job gave or raised; a board that hangs is missing.

        Args:
            jobs: By board.
            began_ns: From when the deadline counts; now by default.
        """
        with self._lock:
            asked = {key: job for key, job in jobs.items() if key not in self._busy}
            self._busy.update(asked)
        round_ = _Round(asked)
        if asked:
            self._begin(round_)
            start_ns = self._clock.monotonic_ns() if began_ns is None else began_ns
            self._wait_for(round_, start_ns + self._deadline_ns)
        with self._lock:
            round_.over = True
            return dict(round_.results)

    def close(self) -> None:
        """Let every worker end; a stuck one ends with the process."""
        self._leave_shared()
        for worker in self._own.values():
            worker.jobs.put(None)
        self._own.clear()

    def _begin(self, round_: _Round[T]) -> None:
        if self._stall_ns == 0:
            self._spread(round_)
            return
        if self._shared is None:
            self._shared = _Worker("gpus", self._work)
        self._shared.jobs.put((round_, round_.todo))

    def _wait_for(self, round_: _Round[T], deadline_ns: int) -> None:
        answered = -1
        while True:
            with self._lock:
                still_open, progressed = bool(round_.open), len(round_.results) > answered
                answered = len(round_.results)
            at_ns = self._clock.monotonic_ns()
            if not still_open or at_ns >= deadline_ns:
                return
            if not progressed and round_.todo:
                self._leave_shared()
                self._spread(round_)
            wait_ns = self._stall_ns or deadline_ns
            self._clock.wait_until(min(deadline_ns, at_ns + wait_ns), self._wake)

    def _leave_shared(self) -> None:
        """Leave the shared worker to the board that holds it."""
        if self._shared is not None:
            self._shared.jobs.put(None)
            self._shared = None

    def _spread(self, round_: _Round[T]) -> None:
        """Each board that is still to be asked gets its own worker."""
        while True:
            try:
                key = round_.todo.popleft()
            except IndexError:
                return
            if key not in self._own:
                self._own[key] = _Worker(f"gpu-{key}", self._work)
            self._own[key].jobs.put((round_, deque([key])))

    def _work(self, round_: _Round[T], key: str) -> None:
        result: T | Exception
        try:
            result = round_.jobs[key](round_.abandoned)
        except Exception as error:
            # A defect in an adapter must look like a failing board, not like a hang.
            result = error
        with self._lock:
            self._busy.discard(key)
            round_.results[key] = result
            round_.open.discard(key)
            last = not round_.open
        if last:
            self._wake.set()
