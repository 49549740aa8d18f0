"""The draw of one cycle as a meter sees it: level, depth and period."""

from __future__ import annotations

from typing import Final

import numpy as np

from capacity.catalogue.priced_gpu import PricedGpu
from capacity.catalogue.workload_model import CyclePrice
from capacity.catalogue.workload_schema import DrawShape
from capacity.model.capping_loop import Floats, capping_loop

SENSOR_SECONDS: Final = 0.1
"""Boards give a new instantaneous reading every 100 ms (own H200: 98 to 102 ms)."""

TICK_SECONDS: Final = 0.02
SETTLE_SECONDS: Final = 4.0
"""Played before the shape is taken, and the longest of a phase that is played: beats of the capping
loop lose a third a second, and what is highest and lowest comes in a phase's first second."""

LEAST_SECONDS: Final = 2.0
"""Of which the shape is taken, and a whole cycle: two beats."""


def draw_shape(cycle: CyclePrice, gpu: PricedGpu, limit_watts: float | None = None) -> DrawShape:
    """Shares of the type's default limit; what is shorter than the sensor's 100 ms is smoothed.

    Args:
        limit_watts: What the board is held at; the default limit if None.
    """
    lowest, highest = seen_range(cycle, gpu, limit_watts)
    return DrawShape(
        level=min(1.0, cycle.mean_watts / gpu.limit_watts),
        depth=(highest - lowest) / gpu.limit_watts,
        period_seconds=cycle.seconds,
    )


def seen_range(
    cycle: CyclePrice, gpu: PricedGpu, limit_watts: float | None = None
) -> tuple[float, float]:
    """Lowest and highest mean watts of any 100 ms of the cycle that repeats for ever."""
    limit_watts = gpu.limit_watts if limit_watts is None else limit_watts
    demand = np.array([phase.uncapped_watts for phase in cycle.phases])
    if np.ptp(demand) == 0:
        return cycle.mean_watts, cycle.mean_watts
    seconds = np.minimum([phase.seconds for phase in cycle.phases], SETTLE_SECONDS)
    period = float(seconds.sum())
    settling = period * np.ceil(SETTLE_SECONDS / period)
    taken = max(period, LEAST_SECONDS) + SENSOR_SECONDS
    asked = _means(seconds, demand, settling + taken)
    loop = capping_loop(gpu.name)
    mean = np.array([float(seconds @ demand) / period])
    state = loop.settled(mean, limit_watts, TICK_SECONDS)
    _, drawn = loop.play(state, asked[:, np.newaxis], limit_watts)
    each = round(SENSOR_SECONDS / TICK_SECONDS)
    seen = np.convolve(drawn[round(settling / TICK_SECONDS) :, 0], np.full(each, 1 / each), "valid")
    return float(seen.min()), float(seen.max())


def _means(seconds: Floats, watts: Floats, until: float) -> Floats:
    """Mean of a signal in steps that repeats, in each tick, shape (n_ticks,)."""
    edges = np.concatenate([[0.0], np.cumsum(seconds)])
    joules = np.concatenate([[0.0], np.cumsum(seconds * watts)])
    at = TICK_SECONDS * np.arange(round(until / TICK_SECONDS) + 1)
    turns, rest = np.divmod(at, edges[-1])
    spent = turns * joules[-1] + np.interp(rest, edges, joules)
    return np.asarray(np.diff(spent) / TICK_SECONDS)
