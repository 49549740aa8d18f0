"""Time as an argument: the only module that reads the machine's clocks.

``SystemClock``   real time, for every process on a node or in a cluster.
``ManualClock``   virtual time in one process: it moves only when told to; tests and benchmarks.
``LockstepClock`` (in ``simulation.lockstep``) virtual time over several processes: it moves when
                  every participant waits and no message is under way; the demo.

A loop that follows these three rules runs unchanged on all of them: it reads time only here, it
blocks only in ``wait_until``, and it wraps the handling of each message that crosses a process
boundary in ``message_sent`` / ``message_handled``.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from wattpack.units import NS_PER_SECOND


class Wake(Protocol):
    """A handle by which another thread ends a ``wait_until`` early."""

    def set(self) -> None:
        """Make the present or the next wait on this handle return at once."""
        ...


class Clock(Protocol):
    """What a component knows about time."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on a clock that never jumps; its origin has no meaning."""
        ...

    def wall_time_ns(self) -> int:
        """Nanoseconds since the Unix epoch; for people and records, never for decisions."""
        ...

    def new_wake(self) -> Wake:
        """A handle for ``wait_until``."""
        ...

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        """Block until the monotonic clock reaches the deadline or the handle is set.

        Returns:
            True if the handle was set (it is cleared), False if the deadline was reached.
        """
        ...

    def message_sent(self, count: int = 1) -> None:
        """Say that messages to another participant are under way (lockstep only)."""
        ...

    def message_handled(self, count: int = 1) -> None:
        """Say that messages from another participant were handled (lockstep only)."""
        ...


class _EventWake:
    """A wake for real and manual clocks."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        self.event.set()


class SystemClock:
    """Real time."""

    def monotonic_ns(self) -> int:
        """Time since boot, counted through suspend where the system offers it."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_time_ns(self) -> int:
        """The system's calendar time."""
        return time.time_ns()

    def new_wake(self) -> Wake:
        """A handle backed by a thread event."""
        return _EventWake()

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        """Sleep until the deadline or the handle."""
        remaining_seconds = max(0, deadline_ns - self.monotonic_ns()) / NS_PER_SECOND
        if wake is None:
            time.sleep(remaining_seconds)
            return False
        if not isinstance(wake, _EventWake):
            raise TypeError("a wake belongs to the clock that made it")
        was_set = wake.event.wait(remaining_seconds)
        wake.event.clear()
        return was_set

    def message_sent(self, count: int = 1) -> None:
        """Real time needs no book-keeping."""

    def message_handled(self, count: int = 1) -> None:
        """Real time needs no book-keeping."""


class ManualClock:
    """Virtual time that moves only by ``advance_to`` or by a wait, in one thread.

    ``wait_until`` jumps to the deadline: with one thread there is nobody else to wait for.

    Args:
        start_ns: The first reading of ``monotonic_ns``.
        wall_offset_ns: Added to the reading to give ``wall_time_ns``.
    """

    def __init__(
        self, start_ns: int = 0, wall_offset_ns: int = 1_700_000_000 * NS_PER_SECOND
    ) -> None:
        self._now_ns = start_ns
        self._wall_offset_ns = wall_offset_ns

    def monotonic_ns(self) -> int:
        """The present virtual time."""
        return self._now_ns

    def wall_time_ns(self) -> int:
        """The present virtual time, as a calendar time."""
        return self._now_ns + self._wall_offset_ns

    def advance_to(self, now_ns: int) -> None:
        """Move the clock; it never goes back."""
        if now_ns < self._now_ns:
            raise ValueError(f"time cannot go back from {self._now_ns} to {now_ns}")
        self._now_ns = now_ns

    def advance_seconds(self, seconds: float) -> None:
        """Move the clock forward by a duration."""
        self.advance_to(self._now_ns + round(seconds * NS_PER_SECOND))

    def new_wake(self) -> Wake:
        """A handle backed by a thread event."""
        return _EventWake()

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        """Jump to the deadline, unless the handle is set."""
        if isinstance(wake, _EventWake) and wake.event.is_set():
            wake.event.clear()
            return True
        self._now_ns = max(self._now_ns, deadline_ns)
        return False

    def message_sent(self, count: int = 1) -> None:
        """One thread handles each message where it is sent."""

    def message_handled(self, count: int = 1) -> None:
        """One thread handles each message where it is sent."""
