"""Past errors of simple forecasts, and rows that can be handled together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from forecasting.residuals import RESIDUAL_DTYPE, decay_weights, weighted_quantiles
from forecasting.series_source import Floats
from forecasting.tiers.records import Records

ORIGIN_STRIDE: Final = 6
"""Every how many bins a past origin is taken; every third was not more accurate."""

MIN_ORIGINS: Final = 12

CHUNK_SERIES: Final = 200
"""Series handled together: about 100 MB of errors at 36 steps and 200 origins."""

POOLED_STEPS: Final = 6
"""Steps whose errors are pooled where errors hardly depend on the step."""


def row_groups(records: Records, least_bins: int) -> Iterator[tuple[np.ndarray, int]]:
    """Rows with the same whole number of days of history, in chunks, and that history's bins.

    Rows with fewer than ``least_bins`` bins are left out.
    """
    day_steps = records.day_steps
    days = records.length // day_steps
    fits = records.length >= least_bins
    for count in np.unique(days[fits]).tolist():
        bins = max(int(count) * day_steps, least_bins)
        rows = np.nonzero(fits & (days == count))[0]
        for part in np.array_split(rows, -(-len(rows) // CHUNK_SERIES)):
            yield part, bins


def past_origins(n_bins: int, horizon: int, first: int) -> np.ndarray:
    """Origins whose whole window is over, newest aligned with the end, oldest first."""
    return np.arange(n_bins - 1 - horizon, first - 1, -ORIGIN_STRIDE)[::-1]


def step_error_quantiles(
    errors: Floats, known: np.ndarray, ages: np.ndarray, step_seconds: int, levels: Floats
) -> Floats:
    """Quantiles of past errors with a half-life of three days.

    Args:
        errors: Shape (n_series, ..., n_origins).
        known: Where the target was observed, same shape.
        ages: Bins since each origin, shape (n_origins,).
        step_seconds: Width of a bin.
        levels: Ascending.

    Returns:
        Shape (n_series, ..., n_levels).
    """
    weights = decay_weights(ages.astype(np.float64), step_seconds)
    mask = None if known.all() else known
    return weighted_quantiles(errors.astype(RESIDUAL_DTYPE), weights, levels, mask)


def pooled_error_quantiles(
    errors: Floats, known: np.ndarray, ages: np.ndarray, step_seconds: int, levels: Floats
) -> Floats:
    """The same with errors pooled over a few steps, shape (n_series, 1, n_levels).

    Args:
        errors: Shape (n_series, horizon, n_origins).
        known: Where the target was observed, same shape.
        ages: Bins since each origin, shape (n_origins,).
        step_seconds: Width of a bin.
        levels: Ascending.
    """
    horizon = errors.shape[1]
    picked = np.unique(np.linspace(0, horizon - 1, POOLED_STEPS).astype(np.intp))
    flat = errors[:, picked].reshape(len(errors), 1, -1)
    mask = known[:, picked].reshape(flat.shape)
    return step_error_quantiles(flat, mask, np.tile(ages, len(picked)), step_seconds, levels)
