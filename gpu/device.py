"""The device port: what wattpack needs to know of a GPU, whoever made it.

Adapters: ``gpu.nvml`` (real boards), ``gpu.simulated`` (boards of the twin),
``gpu.replay.replayed_device`` (recorded answers).

GpuError
├── GpuUnavailable         the device or its driver does not answer now; retry later
│   ├── GpuLost            fallen off the bus: needs a reset or a reboot
│   ├── GpuStale           it answers, but with power readings that are not of this moment
│   └── GpuTimeout         the driver call did not return within the deadline
├── GpuNotSupported        this board cannot do what was asked; never retry
├── GpuNoPermission        the process lacks the privilege; never retry
└── GpuInvalidArgument     the driver refused a value; never retry
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from wattpack.errors import PermanentError, TransientError, WattpackError
from wattpack.units import GpuUuid, require_number


class GpuError(WattpackError):
    """A device refused or failed a call."""


class GpuUnavailable(GpuError, TransientError):
    """The device or its driver does not answer now."""


class GpuLost(GpuUnavailable):
    """The device has fallen off the bus."""


class GpuStale(GpuUnavailable):
    """The device answers, but what it says of its power is not of this moment."""


class GpuTimeout(GpuUnavailable):
    """The driver call did not return within the deadline; its worker is stuck."""


class GpuNotSupported(GpuError, PermanentError):
    """This board or driver cannot do what was asked."""


class GpuNoPermission(GpuError, PermanentError):
    """The process lacks the privilege for this call."""


class GpuInvalidArgument(GpuError, PermanentError):
    """The driver refused a value."""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What does not change while the driver is loaded.

    Attributes:
        index: The driver's library counts by PCI bus.
        minor: Of the device file; not always the index. None where it is not told.
    """

    uuid: GpuUuid
    model: str
    index: int
    pci_bus_id: str = ""
    mig_enabled: bool = False
    minor: int | None = None


@dataclass(frozen=True, slots=True)
class PowerLimits:
    """The board's limits in watts; ``limit_watts`` is what was set, the enforced one rules now."""

    min_watts: float
    max_watts: float
    default_watts: float
    limit_watts: float
    enforced_limit_watts: float

    def __post_init__(self) -> None:
        watts = (
            self.min_watts,
            self.max_watts,
            self.default_watts,
            self.limit_watts,
            self.enforced_limit_watts,
        )
        # Read back for every board every second; a NaN fails the comparison like any nonsense.
        if all(type(w) is float and 0.0 < w < math.inf for w in watts):
            return
        for name in (
            "min_watts",
            "max_watts",
            "default_watts",
            "limit_watts",
            "enforced_limit_watts",
        ):
            require_number(name, getattr(self, name), exclusive_minimum=0.0, unit="W")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process with a context on the device."""

    pid: int
    memory_bytes: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One sample. None means that the board does not offer the value.

    Attributes:
        monotonic_ns: When the reading was taken, on the reader's clock.
        draw_watts: The board's own average (1 s on Ampere and newer except GA100).
        instant_draw_watts: The latest short window.
        energy_joules: Energy since driver load; may be carried forward by power where reading the
            counter costs much.
        utilisation: Share of the last window with a kernel running, 0 to 1.
        throttle_reasons: NVML clock event bit mask.
        ecc_uncorrected: Aggregate count of uncorrectable memory errors.
        xid_events: XID codes seen since the previous reading.
        counter_joules: The counter itself, where it was read for this reading.
        engine_activity: Share of the time with the compute engine at work; with the three below
            the mean of a minute that ended up to a minute ago. All four are known, or none.
        sm_activity: With warps on a multiprocessor, mean over the multiprocessors.
        tensor_activity: With the tensor pipe at work.
        dram_activity: Of the memory's bandwidth, in use.
    """

    monotonic_ns: int
    draw_watts: float
    instant_draw_watts: float | None = None
    energy_joules: float | None = None
    utilisation: float | None = None
    memory_utilisation: float | None = None
    memory_used_bytes: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    throttle_reasons: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    xid_events: tuple[int, ...] = field(default=())
    counter_joules: float | None = None
    engine_activity: float | None = None
    sm_activity: float | None = None
    tensor_activity: float | None = None
    dram_activity: float | None = None


class GpuDevice(Protocol):
    """One GPU.

    Every method may raise any ``GpuError``, and may block for ever: ``gpu.workers`` gives
    each device its own worker with a deadline.
    """

    @property
    def identity(self) -> GpuIdentity:
        """What does not change while the driver is loaded; no driver call."""
        ...

    def read(self, now_ns: int) -> GpuReading:
        """One sample, stamped with the caller's clock."""
        ...

    def limits(self) -> PowerLimits:
        """The limits as the driver holds them now."""
        ...

    def max_clock_mhz(self) -> int:
        """The highest SM clock that can be locked."""
        ...

    def processes(self) -> tuple[GpuProcess, ...]:
        """Processes with a context on the device."""
        ...

    def set_power_limit(self, watts: float) -> None:
        """Ask the board for a new limit; the caller reads back."""
        ...

    def lock_clocks(self, max_mhz: int) -> None:
        """Bound the SM clock by (lowest, max_mhz)."""
        ...

    def reset_clocks(self) -> None:
        """Remove the clock lock."""
        ...


class GpuDriver(Protocol):
    """The devices of one node."""

    def devices(self) -> tuple[GpuDevice, ...]:
        """All GPUs, ordered by index."""
        ...

    def close(self) -> None:
        """Let go of the driver; idempotent."""
        ...
