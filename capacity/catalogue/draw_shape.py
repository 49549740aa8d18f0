"""The draw of one cycle as a meter sees it: level, depth and period."""

from __future__ import annotations

from typing import Final

import numpy as np

from capacity.catalogue.workload_model import CyclePrice
from capacity.catalogue.workload_schema import DrawShape

SENSOR_SECONDS: Final = 0.1
"""Boards give a new instantaneous reading every 100 ms (own H200: 98 to 102 ms)."""


def draw_shape(cycle: CyclePrice, limit_watts: float) -> DrawShape:
    """Shares of the limit; what is shorter than the sensor's 100 ms is smoothed by it."""
    level = cycle.mean_watts
    return DrawShape(
        level=min(1.0, level / limit_watts),
        depth=min(1.0, _seen_range(cycle) / limit_watts),
        period_seconds=cycle.seconds,
    )


def _seen_range(cycle: CyclePrice) -> float:
    """Highest less lowest mean over any 100 ms of the cycle that repeats for ever."""
    seconds = np.array([phase.seconds for phase in cycle.phases])
    joules = seconds * np.array([phase.mean_watts for phase in cycle.phases])
    edges = np.concatenate([[0.0], np.cumsum(seconds)])
    energy = np.concatenate([[0.0], np.cumsum(joules)])
    period, whole = float(edges[-1]), float(energy[-1])

    def spent(until: float) -> float:
        turns, rest = divmod(until, period)
        return turns * whole + float(np.interp(rest, edges, energy))

    # The mean over a window of a signal in steps is extreme where a window begins or ends at one.
    starts = np.concatenate([edges, edges - SENSOR_SECONDS]) + period * np.ceil(
        SENSOR_SECONDS / period
    )
    means = [(spent(at + SENSOR_SECONDS) - spent(at)) / SENSOR_SECONDS for at in starts.tolist()]
    return max(means) - min(means)
