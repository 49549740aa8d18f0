"""What the last minutes say of the next: levels, extremes and restlessness of the demand.

All are logarithms of ratios to the mean of the last three steps, so that services of any size learn
from one another. Days before are no features: they did not help at a start's horizon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.ndimage import maximum_filter1d, minimum_filter1d

from forecasting.series_source import Floats

NEWEST: Final = 3
"""Steps whose mean all else is divided by."""

MEANS: Final = (1, 2, 5, 7, 10, 20, 60, 180, 360, 1440)
MAXIMA: Final = (5, 10, 15, 30, 60, 180, 1440)
MINIMA: Final = (10, 30, 180)
RESTLESS: Final = (60, 360, 1440)
"""Steps looked back, of a minute each."""

SINGLE: Final = (5, 10, 20, 60)
"""Steps of which the highest, the lowest and the middle single one are told."""

EARLIER: Final = (3, 6, 9, 12)
"""Steps before which ``NEWEST`` have their mean told: whether a rise goes on."""

FLOOR_SHARE: Final = 0.02
"""Of the usual rate, added before logarithms: from idle to busy is no infinite way."""

COUNT: Final = (
    len(MEANS) + len(MAXIMA) + len(MINIMA) + len(RESTLESS) + 3 * len(SINGLE) + len(EARLIER) + 2
)

REACH: Final = max(*MEANS, *MAXIMA, *RESTLESS) + 20
"""Steps before a place beyond which nothing is looked at."""


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

    def mean(width: int, back: int = 0) -> Floats:
        until = np.maximum(place - back, 0)
        first = np.maximum(until - width, 0)
        result: Floats = (sums[until] - sums[first]) / np.maximum(until - first, 1)
        return result

    newest = mean(NEWEST)
    level = np.log(newest + floor)
    columns = [mean(width) for width in MEANS]
    columns += [_of_last(maximum_filter1d, newest, width) for width in MAXIMA]
    columns += [_of_last(minimum_filter1d, newest, width) for width in MINIMA]
    columns += _single(mean(1), mean(1, 1))
    columns += [mean(NEWEST, back) for back in EARLIER]
    ten = np.log(mean(10) + floor)
    moved = np.abs(ten - ten[np.maximum(place - 10, 0)])
    changes = np.concatenate([[0.0], np.cumsum(moved)])
    restless = []
    for width in RESTLESS:
        first = np.maximum(place + 1 - width, 0)
        restless.append((changes[place + 1] - changes[first]) / (place + 1 - first))
    # Differences of sums may fall below 0 by a last digit.
    ratios = np.log(np.maximum(np.stack(columns, axis=1), 0.0) + floor) - level[:, None]
    return np.column_stack([ratios, *restless, level - np.log(usual)]), level


def _single(one: Floats, before: Floats) -> list[Floats]:
    """Single steps: the one before the newest, and of each width highest, lowest and middle."""
    found = [before]
    for width in SINGLE:
        found += [_of_last(f, one, width) for f in (maximum_filter1d, minimum_filter1d)]
        padded = np.concatenate([np.full(width - 1, one[0]), one])
        windows = np.lib.stride_tricks.sliding_window_view(padded, width)
        found.append(np.partition(windows, width // 2, axis=1)[:, width // 2])
    return found


def _of_last(extreme: Callable[..., Floats], values: Floats, width: int) -> Floats:
    """Highest or lowest of the last ``width`` values at every place, its own included."""
    return extreme(values, width, mode="nearest", origin=(width - 1) // 2)
