"""What a simulated board is made of: its constants, and how its power follows its clock.

Figures marked "assumed" are model inputs, not measurements.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError
from wattpack.units import GpuUuid, NodeName, require_number

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
PowerAtClock = Callable[[Floats, Floats, Floats, Floats], Floats]
"""(clock_mhz, max_clock_mhz, demand_watts, idle_watts), each (n,) -> watts (n,) at that clock."""

_UUIDS = uuid.uuid5(uuid.NAMESPACE_DNS, "simulated.gpu.wattpack.io")


def node_boards(node: NodeName, count: int, model: str) -> list[BoardSpec]:
    """The boards that a node without GPUs pretends to have.

    Limits as NVML gives them for an H200 SXM; idle power 75 W is assumed.
    UUIDs follow from the node's name: two nodes never show the same board, and all processes of
    one node show the same ones.
    """
    return [
        BoardSpec(
            uuid=GpuUuid(f"GPU-{uuid.uuid5(_UUIDS, f'{node}/{index}')}"),
            model=model,
            node=node,
            index=index,
            idle_watts=75.0,
            default_limit_watts=700.0,
            min_limit_watts=200.0,
            max_limit_watts=700.0,
            max_clock_mhz=1980,
        )
        for index in range(count)
    ]


SENSOR_WINDOW_SECONDS = 1.0
"""nvmlDeviceGetPowerUsage: 1 s average on Ampere and newer except GA100 (NVML API reference)."""

SAMPLE_PERIOD_SECONDS = 0.1
SAMPLE_SECONDS = 0.025
"""A sampled sensor: the mean of 25 ms, anew each 100 ms. Source: arXiv 2312.02741 (A100, H100).
That H200s and older boards do the same is assumed; ours' samples scatter as such ones would."""

SENSOR_GAIN_SPREAD = 0.05
"""Largest relative gain error of a board's sensor. Source: arXiv 2312.02741."""

WORST_EXCESS = 0.05
"""Steady draw above what the type holds, on the worst boards: what I1 and I2 count with."""

WORST_SHARE = 0.05
"""Share of boards that hold 2 % (Zeus A40 sweep, median) to ``WORST_EXCESS`` more. Assumed."""

BELOW_KNEE_EXCESS = 0.09
"""Above the limit at the lowest limit, beside what the type holds at any: 1.08 x the limit on an
H200, 1.10 x on an H100. Source: Zeus A40 sweep, 100 W of 300: 1.02 at p50, 1.15 at p90."""

CLOCK_POWER_EXPONENT = 2.2
"""Dynamic power over clock, P ~ f^2.2, between f (fixed voltage) and f^3. Assumed.
The plant's own, on purpose: it judges what agent and controller assume."""


class PowerSensor(StrEnum):
    """What a board's two power fields, the average and the latest window, show.

    ``averaged``: the last second's mean, and the mean of the last tick of at most 100 ms.
    ``averaged_and_sampled``: the last second's mean, and the newest sample (Ampere and newer).
    ``sampled``: the newest sample, since the board has no average (GA100 and older).
    """

    AVERAGED = "averaged"
    AVERAGED_AND_SAMPLED = "averaged_and_sampled"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True)
class BoardSpec:
    """One board's constants.

    Attributes:
        knee_watts: Limit below which regulation gets worse; 0 means 55 % of the default limit.
        hold_watts: Least power to which the board can bring a full load; 0 means 90 % of min.
        sensor: What its power fields show.
    """

    uuid: GpuUuid
    model: str
    node: NodeName
    index: int
    idle_watts: float
    default_limit_watts: float
    min_limit_watts: float
    max_limit_watts: float
    max_clock_mhz: int
    min_clock_mhz: int = 210
    knee_watts: float = 0.0
    hold_watts: float = 0.0
    sensor: PowerSensor = PowerSensor.AVERAGED

    def __post_init__(self) -> None:
        for name in ("idle_watts", "knee_watts", "hold_watts"):
            require_number(name, getattr(self, name), minimum=0.0)
        require_number("min_limit_watts", self.min_limit_watts, exclusive_minimum=0.0, unit="W")
        require_number("max_clock_mhz", self.max_clock_mhz, minimum=self.min_clock_mhz, unit="MHz")
        low, default, high = self.min_limit_watts, self.default_limit_watts, self.max_limit_watts
        if not low <= default <= high:
            raise InputError(
                "default_limit_watts", "min <= default <= max in W", (low, default, high)
            )


def power_at_clock(
    clock_mhz: Floats, max_clock_mhz: Floats, demand_watts: Floats, idle_watts: Floats
) -> Floats:
    """Watts (n,) that a load of ``demand_watts`` at full clock draws at ``clock_mhz``.

    The default model; the twin passes the capacity model's instead.
    """
    share = np.minimum(1.0, clock_mhz / max_clock_mhz) ** CLOCK_POWER_EXPONENT
    dynamic: Floats = np.maximum(0.0, demand_watts - idle_watts) * share
    return np.asarray(np.minimum(demand_watts, idle_watts) + dynamic, dtype=np.float64)
