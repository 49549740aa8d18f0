"""What anybody gets without a model: the newest value, the same time yesterday, maxima of days.

The two paths have the errors of the days before around them. Gaps count nowhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

import numpy as np

from forecasting.series_source import Floats

MAXIMA_DAYS: Final = (1, 3, 7, 10)
"""Days whose highest bin stands for a peak."""


def seasonal_naive(past: Floats, horizon: int, levels: Sequence[float], day_bins: int) -> Floats:
    """Same time a day before, errors pooled over steps; shape (n_series, horizon, n_levels).

    Args:
        past: Shape (n_series, n_bins), NaN for gaps.
        horizon: Steps ahead; beyond a day the newest day is repeated.
        levels: Ascending.
        day_bins: Bins of a day.
    """
    if past.shape[1] <= day_bins:
        return np.full((len(past), horizon, len(levels)), np.nan)
    errors = _quantiles(past[:, day_bins:] - past[:, :-day_bins], levels)
    same_time = past[:, past.shape[1] - day_bins + np.arange(horizon) % day_bins]
    paths: Floats = np.maximum(same_time[:, :, None] + errors[:, None, :], 0.0)
    return paths


def last_value(past: Floats, horizon: int, levels: Sequence[float]) -> Floats:
    """The newest value, each step with its own errors; shape (n_series, horizon, n_levels)."""
    if past.shape[1] <= horizon:
        return np.full((len(past), horizon, len(levels)), np.nan)
    errors = np.stack(
        [_quantiles(past[:, k:] - past[:, :-k], levels) for k in range(1, horizon + 1)], axis=1
    )
    paths: Floats = np.maximum(past[:, -1, None, None] + errors, 0.0)
    return paths


def day_maxima(past: Floats, day_bins: int) -> Floats:
    """Highest bin of the last days, shape (n_series, 4); NaN where a day has none."""
    columns = []
    for days in MAXIMA_DAYS:
        newest = past[:, -days * day_bins :]
        highest = np.max(np.where(np.isfinite(newest), newest, -np.inf), axis=1, initial=-np.inf)
        columns.append(np.where(np.isfinite(highest), highest, np.nan))
    return np.stack(columns, axis=1)


def day_change(past: Floats, day_bins: int) -> Floats:
    """Mean change from one day to the next, by which losses are scaled; NaN below a day, (n,)."""
    change = np.abs(past[:, day_bins:] - past[:, :-day_bins])
    count = np.isfinite(change).sum(axis=1)
    total = np.nansum(change, axis=1)
    scale: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return scale


def _quantiles(errors: Floats, levels: Sequence[float]) -> Floats:
    """Of each row without its gaps, shape (n_series, n_levels); NaN for nothing but gaps."""
    if np.isfinite(errors).all():
        return np.quantile(errors, levels, axis=1).T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row of gaps is NaN, as it should be
        found: Floats = np.nanquantile(errors, levels, axis=1).T
    return found
