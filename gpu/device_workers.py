"""Reading all devices of a node without letting one stuck driver call stall the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from gpu.deadline_executor import STALL_NS, Abandoned, DeadlineExecutor, Job
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
from wattpack.clock import Clock
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


class WorkerReader:
    """Reads all devices within a deadline, whatever any of them does.

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
        self.executor = DeadlineExecutor(clock, deadline_ns=deadline_ns, stall_ns=stall_ns)

    def read_all(self, now_ns: int, extra: Extra = NOTHING_EXTRA) -> list[Outcome]:
        """One outcome a device: fresh, or ``GpuTimeout`` for a device whose call hangs."""
        jobs: dict[str, Job[Outcome]] = {
            device.identity.uuid: partial(_read_for_executor, device, now_ns, extra)
            for device in self.devices
        }
        results = self.executor.run(jobs, now_ns)
        return [_outcome(device, results) for device in self.devices]

    def close(self) -> None:
        """Let the workers end; a stuck one ends with the process."""
        self.executor.close()


def _read_for_executor(
    device: GpuDevice, now_ns: int, extra: Extra, _abandoned: Abandoned
) -> Outcome:
    return read_device(device, now_ns, extra)


def _outcome(device: GpuDevice, results: Mapping[str, Outcome | Exception]) -> Outcome:
    uuid = device.identity.uuid
    result = results.get(uuid)
    if result is None:
        hangs = f"{uuid}: no answer from the driver; its call still hangs"
        return Outcome(error=GpuTimeout(hangs))
    if isinstance(result, Exception):
        return Outcome(error=GpuUnavailable(f"{type(result).__name__}: {result}"))
    return result
