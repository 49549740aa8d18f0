"""Reading all devices of a node without letting one stuck driver call stall the others.

A driver call can hang for ever, and a thread inside it cannot be ended. So devices are read in
daemon threads; a device that does not answer by the deadline is reported as ``GpuTimeout``, keeps
its thread to itself and is asked nothing more until its call returns. So there is never more than
one thread a device, and one while all is well (docs/adr/0005-one-worker-per-device.md).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NamedTuple, Protocol, TypeVar

from gpu.device import (
    GpuDevice,
    GpuError,
    GpuNoPermission,
    GpuNotSupported,
    GpuProcess,
    GpuReading,
    GpuTimeout,
    GpuUnavailable,
    PowerLimits,
)
from wattpack.clock import Clock, Wake
from wattpack.units import NS_PER_MS

T = TypeVar("T")

DEADLINE_NS = 80 * NS_PER_MS
"""Below the shortest sampling period (100 ms), far above a healthy read (a few ms)."""


STALL_NS = 20 * NS_PER_MS
"""Four times the slowest call seen on an H200 (energy counter, 4.8 ms)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one device gave in one round: values or an error, never both."""

    reading: GpuReading | None = None
    limits: PowerLimits | None = None
    max_clock_mhz: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    error: GpuError | None = None


class Extra(NamedTuple):
    """What to read beside power, and not in every round."""

    limits: bool = False
    processes: bool = False


NOTHING_EXTRA = Extra()


def read_device(device: GpuDevice, now_ns: int, extra: Extra) -> Outcome:
    """One device's outcome; driver errors become values."""
    try:
        reading = device.read(now_ns)
        return Outcome(
            reading,
            _offered(device.limits) if extra.limits else None,
            _offered(device.max_clock_mhz) if extra.limits else None,
            _offered(device.processes) if extra.processes else None,
        )
    except GpuError as error:
        return Outcome(error=error)


def _offered(call: Callable[[], T]) -> T | None:
    """The answer, or None from a board that does not offer it (a vGPU has no limits)."""
    try:
        return call()
    except (GpuNotSupported, GpuNoPermission):
        return None


class DeviceReader(Protocol):
    """Reads every device of a node once."""

    @property
    def devices(self) -> Sequence[GpuDevice]:
        """The devices, in the order of the outcomes."""
        ...

    def read_all(self, now_ns: int, extra: Extra = NOTHING_EXTRA) -> list[Outcome]:
        """One outcome a device, within the deadline."""
        ...

    def close(self) -> None:
        """Ask for nothing more."""
        ...


class InlineReader:
    """Reads in the caller's thread: for boards that cannot hang (simulated, recorded)."""

    def __init__(self, devices: Sequence[GpuDevice]) -> None:
        self.devices = tuple(devices)

    def read_all(self, now_ns: int, extra: Extra = NOTHING_EXTRA) -> list[Outcome]:
        """One outcome a device."""
        return [read_device(device, now_ns, extra) for device in self.devices]

    def close(self) -> None:
        """Nothing is held."""


class _Round:
    """One round of reading; late answers land in their own, forgotten round."""

    def __init__(self, now_ns: int, extra: Extra, slots: Sequence[int]) -> None:
        self.now_ns = now_ns
        self.extra = extra
        self.todo = deque(slots)
        self.open = set(slots)
        self.outcomes: dict[int, Outcome] = {}


class _Worker(threading.Thread):
    """Reads the slots that it is given, one after the other, until it is given None."""

    def __init__(self, name: str, read: Callable[[_Round, int], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs: SimpleQueue[tuple[_Round, deque[int]] | None] = SimpleQueue()
        self._read = read

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            round_, slots = job
            while True:
                try:
                    slot = slots.popleft()
                except IndexError:  # done, or taken over by other workers
                    break
                self._read(round_, slot)


class WorkerReader:
    """Reads all devices within a deadline, whatever any of them does.

    One shared worker reads the devices in turn, which costs two thread switches a round. Once a
    device holds it up for ``stall_ns``, that device keeps it as its own, and every device still
    to be read gets a worker of its own at once.

    Args:
        devices: Of one node.
        clock: For the deadline.
        deadline_ns: After which a device without an answer counts as stuck in this round.
        stall_ns: How long one device may hold up the others.
    """

    def __init__(
        self,
        devices: Sequence[GpuDevice],
        clock: Clock,
        *,
        deadline_ns: int = DEADLINE_NS,
        stall_ns: int = STALL_NS,
    ) -> None:
        self.devices = tuple(devices)
        self._clock = clock
        self._deadline_ns = deadline_ns
        self._stall_ns = stall_ns
        self._wake: Wake = clock.new_wake()
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._shared: _Worker | None = None

    def read_all(self, now_ns: int, extra: Extra = NOTHING_EXTRA) -> list[Outcome]:
        """One outcome a device: fresh, or ``GpuTimeout`` for a device whose call hangs."""
        with self._lock:
            asked = [i for i in range(len(self.devices)) if i not in self._busy]
            self._busy.update(asked)
        round_ = _Round(now_ns, extra, asked)
        if asked:
            self._start_shared().jobs.put((round_, round_.todo))
            self._wait_for(round_)
        with self._lock:
            return [round_.outcomes.get(i) or self._stuck(i) for i in range(len(self.devices))]

    def close(self) -> None:
        """Let the shared worker end; a stuck one ends with the process."""
        if self._shared is not None:
            self._shared.jobs.put(None)
            self._shared = None

    def _start_shared(self) -> _Worker:
        if self._shared is None:
            self._shared = _Worker("gpus", self._read)
            self._shared.start()
        return self._shared

    def _wait_for(self, round_: _Round) -> None:
        deadline_ns = round_.now_ns + self._deadline_ns
        answered = -1
        while True:
            with self._lock:
                still_open, progressed = bool(round_.open), len(round_.outcomes) > answered
                answered = len(round_.outcomes)
            at_ns = self._clock.monotonic_ns()
            if not still_open or at_ns >= deadline_ns:
                return
            if not progressed:
                self._spread(round_)
            self._clock.wait_until(min(deadline_ns, at_ns + self._stall_ns), self._wake)

    def _spread(self, round_: _Round) -> None:
        """Leave the shared worker to the device that holds it; the others get their own."""
        self.close()
        while True:
            try:
                slot = round_.todo.popleft()
            except IndexError:
                return
            worker = _Worker(f"gpu-{slot}", self._read)
            worker.start()
            worker.jobs.put((round_, deque([slot])))
            worker.jobs.put(None)

    def _read(self, round_: _Round, slot: int) -> None:
        try:
            outcome = read_device(self.devices[slot], round_.now_ns, round_.extra)
        except Exception as error:
            # A defect in an adapter must look like an unreadable device, not like a hang.
            outcome = Outcome(error=GpuUnavailable(f"{type(error).__name__}: {error}"))
        with self._lock:
            self._busy.discard(slot)
            round_.outcomes[slot] = outcome
            round_.open.discard(slot)
            last = not round_.open
        if last:
            self._wake.set()

    def _stuck(self, i: int) -> Outcome:
        uuid = self.devices[i].identity.uuid
        return Outcome(error=GpuTimeout(f"{uuid}: no answer from the driver; its call still hangs"))
