"""What a domain meter teaches while boards swing: the mean of half a minute of readings.

While draws move it is not known which of them a reading has seen, so that a single one teaches
nothing. Boards of a training job move together, every few seconds, for days: what one reading of
them saw too early another saw too late, and their mean is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

__all__ = ["LessonPool", "no_readings_yet", "pooled"]

_WINDOW_SECONDS: Final = 30.0
_LEAST_READINGS: Final = 10


@dataclass(frozen=True, slots=True)
class LessonPool:
    """Readings of this half minute, each (n_domains,).

    Attributes:
        watts: Sum of what they showed beyond what is read.
        readings: How many.
        unsteady: How many of them while draws moved.
        seconds: Since the first.
    """

    watts: FloatArray
    readings: IntArray
    unsteady: IntArray
    seconds: FloatArray


def no_readings_yet(n_domains: int) -> LessonPool:
    """An empty pool of each domain."""
    none = np.zeros(n_domains, dtype=np.int64)
    return LessonPool(np.zeros(n_domains), none, none.copy(), np.zeros(n_domains))


def pooled(
    pool: LessonPool, new: BoolArray, steady: BoolArray, beyond_watts: FloatArray, seconds: float
) -> tuple[LessonPool, FloatArray, IntArray]:
    """The pool after a tick; means that teach, NaN for the others, and how much each counts.

    A mean teaches where draws moved at half of its readings at least: all of them are in it, and
    those that moved count.

    Args:
        pool: So far.
        new: Domains with a reading that is believed, of which all boards are known, (n_domains,).
        steady: Those whose draws do not move, (n_domains,).
        beyond_watts: What the reading shows beyond what is read, AC, (n_domains,).
        seconds: Since the last tick.
    """
    watts = pool.watts + np.where(new, beyond_watts, 0.0)
    readings, unsteady = pool.readings + new, pool.unsteady + (new & ~steady)
    passed = np.where(readings > 0, pool.seconds + seconds, 0.0)
    ends = passed >= _WINDOW_SECONDS
    teaches = ends & (readings >= _LEAST_READINGS) & (2 * unsteady >= readings)
    mean = np.where(teaches, watts / np.maximum(readings, 1), np.nan)
    kept = LessonPool(
        np.where(ends, 0.0, watts),
        np.where(ends, 0, readings),
        np.where(ends, 0, unsteady),
        np.where(ends, 0.0, passed),
    )
    return kept, mean, np.where(teaches, unsteady, 0)
