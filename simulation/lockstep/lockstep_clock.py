"""The participants' side: a ``wattpack.clock.Clock`` whose time a conductor moves."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import suppress
from pathlib import Path

from simulation.lockstep.lockstep_errors import LockstepEndedError
from simulation.lockstep.shared_time import SharedTime
from wattpack.clock import Wake
from wattpack.units import NS_PER_SECOND

SOCKET_NAME = "conductor.sock"
TIME_NAME = "now"
DEFAULT_WALL_OFFSET_NS = 1_700_000_000 * NS_PER_SECOND


class _LockstepWake:
    """A handle that one thread waits on and any other thread of the process sets."""

    def __init__(self, clock: LockstepClock) -> None:
        self._clock = clock
        self.is_set = False
        self.waiting: int | None = None

    def set(self) -> None:
        """The waiting participant counts as running before this returns."""
        self._clock.wake(self)


class _Membership:
    """Lives in a thread's local storage: when the thread ends, its participant leaves."""

    def __init__(self, clock: LockstepClock, number: int) -> None:
        self._clock = clock
        self.number = number

    def __del__(self) -> None:
        self._clock.forget(self.number)


class LockstepClock:
    """One process's view of the simulated time. All threads of the process share it.

    Start other processes afresh (spawn), never by a fork of one that has such a clock.

    Args:
        connection: To the conductor.
        time: Shared with the conductor.
        name: Of the process, for the conductor's complaints.
        wall_offset_ns: Added to simulated time for ``wall_time_ns``.
        alone: Every message goes from a thread of this process to another one. The conductor is
            then only told whether any is under way, and not while the sender holds time anyway.
    """

    def __init__(
        self,
        connection: socket.socket,
        time: SharedTime,
        name: str,
        wall_offset_ns: int = DEFAULT_WALL_OFFSET_NS,
        *,
        alone: bool = False,
    ) -> None:
        self._connection = connection
        self._time = time
        self._wall_offset_ns = wall_offset_ns
        self._lock = threading.RLock()  # a garbage collection inside it may run _Membership.__del__
        self._numbers = itertools.count(1)
        self._events: dict[int, threading.Event] = {}
        self._local = threading.local()
        self._ended = False
        self._alone = alone
        self._under_way = 0
        self._told_under_way = 0
        self._send(f"name {name}")
        self._reader = threading.Thread(target=self._read, name="lockstep", daemon=True)
        self._reader.start()

    # -- Clock -----------------------------------------------------------------------------------

    def monotonic_ns(self) -> int:
        """The present simulated time, the same in every process."""
        return self._time.read()

    def wall_time_ns(self) -> int:
        """The present simulated time as a calendar time."""
        return self._time.read() + self._wall_offset_ns

    def new_wake(self) -> Wake:
        """A handle for ``wait_until``."""
        return _LockstepWake(self)

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        """Wait in simulated time; the calling thread becomes a participant.

        Raises:
            LockstepEndedError: when the conductor has gone.
        """
        if wake is not None and not isinstance(wake, _LockstepWake):
            raise TypeError("a wake belongs to the clock that made it")
        event = threading.Event()
        with self._lock:
            if wake is not None and wake.is_set:
                wake.is_set = False
                return True
            if deadline_ns <= self._time.read():
                return False
            if self._ended:
                raise LockstepEndedError("the conductor of simulated time has stopped")
            token = next(self._numbers)
            self._events[token] = event
            if wake is not None:
                wake.waiting = token
            self._tell_under_way()
            self._send(f"wait {self._number()} {token} {deadline_ns}")
        event.wait()
        with self._lock:
            self._events.pop(token, None)
            was_set = False
            if wake is not None:
                was_set, wake.is_set, wake.waiting = wake.is_set, False, None
            if not was_set and self._time.read() < deadline_ns:
                raise LockstepEndedError("the conductor of simulated time has stopped")
        return was_set

    def message_sent(self, count: int = 1) -> None:
        """Call before a message leaves; holds time until its receiver has handled it."""
        if not self._alone:
            self._send(f"sent {count}")
            return
        with self._lock:
            self._under_way += count
            # A participant that runs holds time by itself, until it waits or leaves.
            if getattr(self._local, "membership", None) is None:
                self._tell_under_way()

    def message_handled(self, count: int = 1) -> None:
        """Call when everything that a message caused has been said."""
        if not self._alone:
            self._send(f"handled {count}")
            return
        with self._lock:
            self._under_way -= count
            if self._told_under_way:
                self._tell_under_way()

    # -- membership ------------------------------------------------------------------------------

    def ready(self) -> None:
        """All loops of this process have begun: it no longer holds time by itself."""
        self._send("ready")

    def join(self) -> None:
        """Make the calling thread a participant that runs, before its first wait."""
        with self._lock:
            self._send(f"join {self._number()}")

    def leave(self) -> None:
        """The calling thread will not wait again."""
        membership = getattr(self._local, "membership", None)
        if membership is not None:
            self.forget(membership.number)
            del self._local.membership

    def close(self) -> None:
        """The process leaves; its waits end with ``LockstepEndedError``."""
        with self._lock:
            self._ended = True
            with suppress(OSError):  # the other end was faster
                self._connection.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join()
        self._connection.close()

    def forget(self, number: int) -> None:
        """Take a participant out."""
        with self._lock:
            if not self._ended:
                self._tell_under_way()
                self._send(f"leave {number}")

    def wake(self, handle: _LockstepWake) -> None:
        """Set a handle; whoever waits on it is announced as running first."""
        with self._lock:
            handle.is_set = True
            if handle.waiting is not None:
                event = self._events.get(handle.waiting)
                if event is not None and not event.is_set():
                    self._send(f"wake {handle.waiting}")
                    event.set()

    def _number(self) -> int:
        membership: _Membership | None = getattr(self._local, "membership", None)
        if membership is None:
            membership = _Membership(self, next(self._numbers))
            self._local.membership = membership
            name = threading.current_thread().name.replace(" ", "_")
            self._send(f"thread {membership.number} {name}")
        return membership.number

    def _tell_under_way(self) -> None:
        """Correct what the conductor believes of this process's own messages."""
        if (self._under_way > 0) == (self._told_under_way > 0):
            return
        if self._told_under_way:
            self._send(f"handled {self._told_under_way}")
            self._told_under_way = 0
        else:
            self._send(f"sent {self._under_way}")
            self._told_under_way = self._under_way

    def _send(self, line: str) -> None:
        with self._lock:
            if self._ended:
                return
            try:
                self._connection.sendall(line.encode() + b"\n")
            except OSError:
                self._end()

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                data = self._connection.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            with self._lock:
                for line in lines:
                    event = self._events.get(int(line))
                    if event is not None:
                        event.set()
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._ended = True
        for event in self._events.values():
            event.set()


def connect(directory: Path, name: str) -> LockstepClock:
    """Join a conductor that serves a directory.

    Args:
        directory: Where its socket and the shared time lie.
        name: Of this process.

    Raises:
        LockstepEndedError: if there is no conductor.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(directory / SOCKET_NAME))
        time = SharedTime(directory / TIME_NAME)
    except OSError as error:
        connection.close()
        raise LockstepEndedError(f"no conductor in {directory}: {error}") from error
    return LockstepClock(connection, time, name)
