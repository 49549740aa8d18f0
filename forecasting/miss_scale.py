"""What misses are measured by: one number a series, in its unit."""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.clean_history import Cleaned
from forecasting.series_source import Floats

MOST_LEVELS: Final = 200.0
"""A record is at most so many levels high: a client that idles for days has a level all the same.
Assumed."""

LEAST_CHANGE: Final = 0.02
"""Of the scale: a series that is the same every day changes at all. Assumed."""


def level_scale(values: Floats, day_steps: int) -> Floats:
    """The level that a series is divided by, always positive, shape (n_series, 1).

    Args:
        values: Shape (n_series, n_bins), no NaN.
        day_steps: Bins in a day.
    """
    recent = np.mean(np.abs(values[:, -3 * day_steps :]), axis=1, keepdims=True)
    whole = np.mean(np.abs(values), axis=1, keepdims=True)
    peak = np.max(np.abs(values), axis=1, keepdims=True)
    scale = np.maximum(np.maximum(recent, 0.2 * whole), peak / MOST_LEVELS)
    result: Floats = np.where(scale > 0, scale, 1.0)
    return result


def day_change(cleaned: Cleaned, scale: Floats, day_steps: int) -> Floats:
    """Mean change from one day to the next, what misses of peaks are measured by, (n_series,).

    At least a fiftieth of the scale, and a fourth of it (assumed) before there are two days.

    Args:
        cleaned: The history.
        scale: From ``miss_scale``.
        day_steps: Bins in a day.
    """
    changes = np.abs(cleaned.filled[:, day_steps:] - cleaned.filled[:, :-day_steps])
    n_bins = changes.shape[1]
    since = n_bins + day_steps - cleaned.length
    there = np.arange(n_bins) >= since[:, None]
    count = there.sum(axis=1)
    mean = np.sum(changes, axis=1, where=there) / np.maximum(count, 1)
    result: Floats = np.where(count > 0, np.maximum(mean, LEAST_CHANGE * scale), 0.25 * scale)
    return result


def miss_scale(cleaned: Cleaned, peaks: Floats, day_steps: int) -> Floats:
    """What a miss is measured by: the level, the promised peak, or a quarter of the record.

    The level alone is tiny for a client that idles; its misses would then inflate every other
    promise of the pool.
    """
    level = level_scale(cleaned.filled, day_steps)[:, 0]
    result: Floats = np.maximum(level, np.maximum(peaks[:, -1], 0.25 * cleaned.highest))
    return result
