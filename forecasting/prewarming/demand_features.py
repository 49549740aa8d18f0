"""What the last minutes say of the next: levels, extremes and restlessness of the demand.

All are logarithms of ratios to the mean of the last three steps, so that services of any size learn
from one another. Days before are no features: they did not help at a start's horizon.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.series_source import Floats

NEWEST: Final = 3
"""Steps whose mean all else is divided by."""

MEANS: Final = (1, 5, 10, 20, 60, 180, 360, 1440)
MAXIMA: Final = (5, 10, 15, 30, 60, 180, 1440)
MINIMA: Final = (10, 30, 180)
RESTLESS: Final = (60, 360, 1440)
"""Steps looked back, of a minute each."""

FLOOR_SHARE: Final = 0.02
"""Of the usual rate, added before logarithms: from idle to busy is no infinite way."""

COUNT: Final = len(MEANS) + len(MAXIMA) + len(MINIMA) + len(RESTLESS) + 1


def usual_rate(rates: Floats) -> float:
    """What a service's rates are measured by: their mean, positive."""
    mean = float(np.mean(rates)) if len(rates) else 0.0
    return mean if mean > 0 else 1.0


def demand_features(rates: Floats, usual: float) -> tuple[Floats, Floats]:
    """Of every place, from the steps before it.

    Args:
        rates: Arrivals a second by step, shape (n_bins,).
        usual: ``usual_rate`` of the service.

    Returns:
        Features of shape (n_bins + 1, ``COUNT``), the last row for what comes next, and the
        logarithm of the level that they are relative to, shape (n_bins + 1,).
    """
    floor = FLOOR_SHARE * usual
    sums = np.concatenate([[0.0], np.cumsum(rates)])
    place = np.arange(len(rates) + 1)

    def mean(width: int) -> Floats:
        first = np.maximum(place - width, 0)
        result: Floats = (sums[place] - sums[first]) / np.maximum(place - first, 1)
        return result

    newest = mean(NEWEST)
    level = np.log(newest + floor)
    columns = [np.log(mean(width) + floor) - level for width in MEANS]
    columns += [np.log(_windows(newest, width).max(axis=1) + floor) - level for width in MAXIMA]
    columns += [np.log(_windows(newest, width).min(axis=1) + floor) - level for width in MINIMA]
    ten = np.log(mean(10) + floor)
    moved = np.abs(ten - ten[np.maximum(place - 10, 0)])
    changes = np.concatenate([[0.0], np.cumsum(moved)])
    for width in RESTLESS:
        first = np.maximum(place + 1 - width, 0)
        columns.append((changes[place + 1] - changes[first]) / (place + 1 - first))
    columns.append(level - np.log(usual))
    return np.stack(columns, axis=1), level


def _windows(newest: Floats, width: int) -> Floats:
    """The last ``width`` values at every place, its own included, shape (n, width)."""
    padded = np.concatenate([np.full(width - 1, newest[0]), newest])
    return np.lib.stride_tricks.sliding_window_view(padded, width)
