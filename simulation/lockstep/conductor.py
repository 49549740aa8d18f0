"""The conductor's side: who waits for what, what is under way, and when time may move."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from simulation.lockstep.lockstep_clock import SOCKET_NAME, TIME_NAME, LockstepClock
from simulation.lockstep.lockstep_errors import LockstepStalledError
from simulation.lockstep.shared_time import SharedTime
from wattpack.clock import Clock, SystemClock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND, require_number, seconds_to_ns

STALL_SECONDS = 60.0
"""Wall time without any sign of life after which the conductor gives up."""

SETTLE_SECONDS = 0.2
"""Wall time of silence after which messages of a process that has left count as lost."""

LENIENT_SECONDS = 5.0
"""Wall time after a process has left in which its lost messages are looked for."""


@dataclass(slots=True)
class _Participant:
    name: str
    token: int = 0
    deadline_ns: int | None = None  # None: runs


@dataclass(slots=True)
class _Process:
    connection: socket.socket
    name: str = "a new process"
    rest: bytes = b""
    holds: bool = True
    sent: int = 0
    handled: int = 0
    participants: dict[int, _Participant] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pace:
    """How simulated time goes by wall time.

    Attributes:
        speed: Ceiling in simulated seconds a wall second; None for none.
        stall_seconds: Wall time without a sign of life after which ``Conductor.run`` raises.
        wall: Real time; a test passes its own.
    """

    speed: float | None = None
    stall_seconds: float = STALL_SECONDS
    wall: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if self.speed is not None:
            require_number("speed", self.speed, exclusive_minimum=0.0, unit="simulated s a wall s")


class Conductor:
    """Moves simulated time for all who joined; one thread runs ``run``.

    Args:
        directory: Where other processes find the socket and the shared time; None for threads of
            this process only.
        pace: How time goes by wall time.
        start_ns: First simulated time.
        processes: Time stands until this many processes have joined and are ready.
        before_release: Called with each new time while everybody still waits: the plant's step.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        pace: Pace | None = None,
        start_ns: int = 0,
        processes: int = 1,
        before_release: Callable[[int], None] | None = None,
    ) -> None:
        pace = pace or Pace()
        self._speed = pace.speed
        self._expected = processes
        self._joined = 0
        self._before_release = before_release
        self._stall_ns = seconds_to_ns(pace.stall_seconds)
        self._wall = pace.wall
        path = None if directory is None else directory / TIME_NAME
        self._time = SharedTime(path, create=True)
        self._time.write(start_ns)
        self._selector = selectors.DefaultSelector()
        self._processes: list[_Process] = []
        self._lenient_until_ns = -1
        self._under_way = 0
        self._stopping = threading.Event()
        self._poke_end, self._poked_end = socket.socketpair()
        self._selector.register(self._poked_end, selectors.EVENT_READ, "poke")
        self._listener: socket.socket | None = None
        if directory is not None:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(directory / SOCKET_NAME))
            self._listener.listen(64)
            self._selector.register(self._listener, selectors.EVENT_READ, "listener")
        self._adding = threading.Lock()
        self._new: list[socket.socket] = []
        self.advances = 0

    @property
    def now_ns(self) -> int:
        """The present simulated time."""
        return self._time.read()

    def clock(self, name: str, *, alone: bool = False) -> LockstepClock:
        """A clock for threads of this process; counts as one process.

        Args:
            name: For complaints.
            alone: No message that is told to this clock comes from or goes to another one.
        """
        ours, theirs = socket.socketpair()
        with self._adding:
            self._new.append(ours)
        self._poke_end.send(b"x")
        return LockstepClock(theirs, self._time, name, alone=alone)

    def stop(self) -> None:
        """Let ``run`` return; from any thread."""
        self._stopping.set()
        with suppress(OSError):
            self._poke_end.send(b"x")

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Conduct until ``stop``.

        Raises:
            LockstepStalledError: if something holds time for too long.
        """
        moved_ns = heard_ns = self._wall.monotonic_ns()
        try:
            while not self._stopping.is_set():
                timeout, target_ns = self._judge(moved_ns, heard_ns)
                if timeout is None and target_ns is not None:
                    if not self._receive(0.0):  # nothing was said since the judgement
                        moved_ns = self._wall.monotonic_ns()
                        self._advance(target_ns)
                    heard_ns = self._wall.monotonic_ns()
                elif self._receive(timeout):
                    heard_ns = self._wall.monotonic_ns()
        finally:
            self._close()

    def _judge(self, moved_ns: int, heard_ns: int) -> tuple[float | None, int | None]:
        """How long to listen first (None: not at all), and the time to move to."""
        now_ns = self._wall.monotonic_ns()
        quiet_ns = now_ns - heard_ns
        target_ns = self._earliest()
        if target_ns is None or self._holders():
            return self._patience(quiet_ns), None
        if self._under_way != 0:
            if now_ns > self._lenient_until_ns and self._under_way > 0:
                return self._patience(quiet_ns), None
            wait_ns = seconds_to_ns(SETTLE_SECONDS) - quiet_ns
            if wait_ns > 0:
                return wait_ns / NS_PER_SECOND, None
            self._under_way = 0
        if self._speed is not None:
            due_ns = moved_ns + round((target_ns - self._time.read()) / self._speed)
            if due_ns > now_ns:
                return (due_ns - now_ns) / NS_PER_SECOND, target_ns
        return None, target_ns

    def _patience(self, quiet_ns: int) -> float:
        """Seconds to listen before the next look, while something holds time."""
        if self._joined < self._expected or not self._processes:
            return 1.0
        if quiet_ns > self._stall_ns:
            raise LockstepStalledError(self._complaint())
        return min(1.0, (self._stall_ns - quiet_ns) / NS_PER_SECOND + 0.001)

    def _earliest(self) -> int | None:
        if self._joined < self._expected:
            return None
        deadlines = [
            p.deadline_ns
            for process in self._processes
            for p in process.participants.values()
            if p.deadline_ns is not None
        ]
        return min(deadlines, default=None)

    def _holders(self) -> list[str]:
        """Names of what is not waiting."""
        names = [f"{process.name} (not ready)" for process in self._processes if process.holds]
        for process in self._processes:
            names += [
                f"{process.name}/{p.name} (runs)"
                for p in process.participants.values()
                if p.deadline_ns is None
            ]
        return names

    def _complaint(self) -> str:
        counts = ", ".join(f"{p.name} sent {p.sent} handled {p.handled}" for p in self._processes)
        who = ", ".join(self._holders()) or "nobody runs"
        return (
            f"simulated time stands at {self._time.read() / NS_PER_SECOND:.3f} s: held by {who}; "
            f"{self._under_way} messages under way ({counts})"
        )

    def _advance(self, target_ns: int) -> None:
        if self._before_release is not None:
            self._before_release(target_ns)
        self._time.write(target_ns)
        self.advances += 1
        for process in tuple(self._processes):
            go = [p for p in process.participants.values() if _due(p, target_ns)]
            for participant in go:
                participant.deadline_ns = None
            if go:
                text = "".join(f"{participant.token}\n" for participant in go)
                try:
                    process.connection.sendall(text.encode())
                except OSError:
                    self._drop(process)

    # -- messages --------------------------------------------------------------------------------

    def _receive(self, timeout: float | None) -> bool:
        """Take in everything that has been said; whether there was anything."""
        ready = self._selector.select(timeout)
        heard = False
        for key, _ in ready:
            if key.data == "poke":
                self._poked_end.recv(4096)
                self._take_new()
            elif key.data == "listener":
                assert self._listener is not None
                self._add(self._listener.accept()[0])
            else:
                self._hear(key.data)
            heard = True
        return heard

    def _take_new(self) -> None:
        with self._adding:
            new, self._new = self._new, []
        for connection in new:
            self._add(connection)

    def _add(self, connection: socket.socket) -> None:
        process = _Process(connection)
        self._processes.append(process)
        self._joined += 1
        self._selector.register(connection, selectors.EVENT_READ, process)

    def _hear(self, process: _Process) -> None:
        try:
            data = process.connection.recv(1 << 20)
        except OSError:
            data = b""
        *lines, process.rest = (process.rest + data).split(b"\n")
        try:
            for line in lines:
                self._obey(process, line.decode())
        except (InputError, UnicodeDecodeError):
            data = b""  # garbage: the process is treated as gone
        if not data:
            self._drop(process)

    def _obey(self, process: _Process, line: str) -> None:
        verb, *words = line.split(" ")
        if verb == "name" and words:
            process.name = words[0]
            return
        if verb == "thread" and len(words) == 2:
            process.names[_integer(words[0], line)] = words[1]
            return
        numbers = [_integer(word, line) for word in words]
        if verb == "wait" and len(numbers) == 3:
            participant = self._participant(process, numbers[0])
            participant.token, participant.deadline_ns = numbers[1], numbers[2]
        elif verb == "wake" and len(numbers) == 1:
            for participant in process.participants.values():
                if participant.token == numbers[0]:
                    participant.deadline_ns = None
        elif verb == "join" and len(numbers) == 1:
            self._participant(process, numbers[0]).deadline_ns = None
        elif verb == "leave" and len(numbers) == 1:
            process.participants.pop(numbers[0], None)
        elif verb == "sent" and len(numbers) == 1:
            process.sent += numbers[0]
            self._under_way += numbers[0]
        elif verb == "handled" and len(numbers) == 1:
            process.handled += numbers[0]
            self._under_way -= numbers[0]
        elif verb == "ready" and not numbers:
            process.holds = False
        else:
            raise InputError("line", "a lockstep message", line)

    def _participant(self, process: _Process, number: int) -> _Participant:
        name = process.names.get(number, str(number))
        return process.participants.setdefault(number, _Participant(name))

    def _drop(self, process: _Process) -> None:
        if process in self._processes:
            self._processes.remove(process)
            self._selector.unregister(process.connection)
            process.connection.close()
            lenient_ns = seconds_to_ns(LENIENT_SECONDS)
            self._lenient_until_ns = self._wall.monotonic_ns() + lenient_ns

    def _close(self) -> None:
        self._take_new()
        for process in tuple(self._processes):
            self._drop(process)
        if self._listener is not None:
            self._listener.close()
        self._selector.close()
        self._poke_end.close()
        self._poked_end.close()


def _due(participant: _Participant, now_ns: int) -> bool:
    return participant.deadline_ns is not None and participant.deadline_ns <= now_ns


def _integer(word: str, line: str) -> int:
    if not word.lstrip("-").isdigit() or len(word) > 20:
        raise InputError("line", "integers after the verb", line)
    return int(word)
