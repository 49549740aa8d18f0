"""Reading all devices of a node without letting one stuck driver call stall the others.

A driver call can hang for ever, and a thread inside it cannot be ended. So each device has one
daemon thread; a device whose thread does not answer by the deadline is reported as ``GpuTimeout``
and asked nothing more until its call returns. Threads never multiply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from queue import SimpleQueue
from typing import Protocol, TypeVar

from telemetry.device import (
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one device gave in one round: values or an error, never both."""

    reading: GpuReading | None = None
    limits: PowerLimits | None = None
    max_clock_mhz: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    error: GpuError | None = None


class Extra(Flag):
    """What to read beside power, and not in every round."""

    NOTHING = 0
    LIMITS = auto()
    PROCESSES = auto()


def read_device(device: GpuDevice, now_ns: int, extra: Extra) -> Outcome:
    """One device's outcome; driver errors become values."""
    try:
        reading = device.read(now_ns)
        wants_limits = bool(extra & Extra.LIMITS)
        return Outcome(
            reading,
            _offered(device.limits) if wants_limits else None,
            _offered(device.max_clock_mhz) if wants_limits else None,
            _offered(device.processes) if extra & Extra.PROCESSES else None,
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

    def read_all(self, now_ns: int, extra: Extra = Extra.NOTHING) -> list[Outcome]:
        """One outcome a device, within the deadline."""
        ...

    def close(self) -> None:
        """Ask for nothing more."""
        ...


class InlineReader:
    """Reads in the caller's thread: for boards that cannot hang (simulated, recorded)."""

    def __init__(self, devices: Sequence[GpuDevice]) -> None:
        self.devices = tuple(devices)

    def read_all(self, now_ns: int, extra: Extra = Extra.NOTHING) -> list[Outcome]:
        """One outcome a device."""
        return [read_device(device, now_ns, extra) for device in self.devices]

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Outcome]
    done: Callable[[int, Outcome], None]


class _Worker(threading.Thread):
    """The only thread that ever talks to one device."""

    def __init__(self, slot: int, name: str) -> None:
        super().__init__(name=f"gpu-{name}", daemon=True)
        self.slot = slot
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                outcome = job.work()
            except Exception as error:
                # A defect in an adapter must look like an unreadable device, not like a hang.
                outcome = Outcome(error=GpuUnavailable(f"{type(error).__name__}: {error}"))
            job.done(self.slot, outcome)


class WorkerReader:
    """Reads all devices at once, each in its own daemon thread, until a deadline.

    Args:
        devices: Of one node.
        clock: For the deadline.
        deadline_ns: After which a device counts as stuck in this round.
    """

    def __init__(
        self, devices: Sequence[GpuDevice], clock: Clock, *, deadline_ns: int = DEADLINE_NS
    ) -> None:
        self.devices = tuple(devices)
        self._clock = clock
        self._deadline_ns = deadline_ns
        self._wake: Wake = clock.new_wake()
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        self._awaited: set[int] = set()  # of this round; a stuck device is busy, not awaited
        self._outcomes: dict[int, Outcome] = {}
        self._workers = [_Worker(i, d.identity.uuid) for i, d in enumerate(self.devices)]
        for worker in self._workers:
            worker.start()

    def read_all(self, now_ns: int, extra: Extra = Extra.NOTHING) -> list[Outcome]:
        """One outcome a device: fresh, or ``GpuTimeout`` for a device whose call hangs."""
        asked = self._ask(now_ns, extra)
        deadline_ns = now_ns + self._deadline_ns
        while self._pending() and self._clock.monotonic_ns() < deadline_ns:
            self._clock.wait_until(deadline_ns, self._wake)
        with self._lock:
            self._awaited = set()
            return [
                self._outcomes[i] if i in asked and i in self._outcomes else self._stuck(i)
                for i in range(len(self.devices))
            ]

    def close(self) -> None:
        """Let idle threads end; a stuck one ends with the process."""
        for worker in self._workers:
            worker.jobs.put(None)

    def _ask(self, now_ns: int, extra: Extra) -> set[int]:
        with self._lock:
            asked = {i for i in range(len(self.devices)) if i not in self._busy}
            self._busy |= asked
            self._awaited = set(asked)
            self._outcomes.clear()
        for i in asked:
            device = self.devices[i]

            def work(device: GpuDevice = device) -> Outcome:
                return read_device(device, now_ns, extra)

            self._workers[i].jobs.put(_Job(work, self._done))
        return asked

    def _done(self, slot: int, outcome: Outcome) -> None:
        with self._lock:
            self._busy.discard(slot)
            self._awaited.discard(slot)
            self._outcomes[slot] = outcome
            last = not self._awaited
        if last:
            self._wake.set()

    def _pending(self) -> bool:
        with self._lock:
            return bool(self._awaited)

    def _stuck(self, i: int) -> Outcome:
        uuid = self.devices[i].identity.uuid
        return Outcome(error=GpuTimeout(f"{uuid}: no answer from the driver; its call still hangs"))
