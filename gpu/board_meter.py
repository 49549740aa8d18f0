"""The port of the benchmark: one board read closely while one kernel runs on it.

Unlike ``gpu.device`` this pays for the energy counter at every sample, and it can write nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BoardState:
    """What the gate looks at before anything is measured.

    Attributes:
        max_clock_mhz: Highest SM clock of the type.
        processes: Processes with a context on the board.
        utilisation: Share of the last window with a kernel running, 0 to 1; None where not told.
    """

    product: str
    uuid: str
    vbios: str
    driver: str
    power_limit_watts: float
    default_limit_watts: float
    max_clock_mhz: int
    mig_enabled: bool
    processes: int
    utilisation: float | None


@dataclass(frozen=True, slots=True)
class BoardSample:
    """One look; None where the board does not tell.

    Attributes:
        energy_joules: The energy counter; it moves in steps (about 100 ms on Hopper).
        throttle_reasons: NVML clock event bits.
    """

    monotonic_ns: int
    instant_draw_watts: float | None
    energy_joules: float | None
    sm_clock_mhz: float | None
    temperature_celsius: float | None
    throttle_reasons: int


class BoardMeter(Protocol):
    """One board.

    Every method may raise any ``gpu.device.GpuError``.
    """

    def state(self) -> BoardState:
        """The board as the driver describes it now."""
        ...

    def sample(self, now_ns: int) -> BoardSample:
        """Power, energy, clock and temperature now."""
        ...
