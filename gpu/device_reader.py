"""Reading all devices of a node: what one round gives of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from gpu.device import (
    GpuDevice,
    GpuError,
    GpuNoPermission,
    GpuNotSupported,
    GpuProcess,
    GpuReading,
    PowerLimits,
)

T = TypeVar("T")


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
