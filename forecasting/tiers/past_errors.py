"""Past errors of simple forecasts, and rows that can be handled together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from forecasting.residuals import (
    RESIDUAL_DTYPE,
    countable,
    decay_weights,
    spread_over_steps,
    weighted_quantiles,
)
from forecasting.series_source import Floats
from forecasting.tiers.records import Records

ORIGIN_STRIDE: Final = 6
"""Every how many bins a past origin is taken; every third was not more accurate."""

MIN_ORIGINS: Final = 12

CHUNK_SERIES: Final = 200
"""Series handled together: about 100 MB of errors at 36 steps and 200 origins."""

POOLED_STEPS: Final = 6
"""Steps whose errors are pooled where errors hardly depend on the step."""


def row_groups(
    records: Records,
    least_bins: int,
    chunk: int = CHUNK_SERIES,
    among: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, int]]:
    """Rows with equally long histories, in whole quarters of a day, and the bins of those.

    Args:
        records: Whose rows.
        least_bins: Rows with a shorter history are left out.
        chunk: Most rows of a group.
        among: Rows to look at; None is all.
    """
    rows = np.arange(len(records.series)) if among is None else among
    quarter = max(1, records.day_steps // 4)
    length = records.length[rows]
    rows, length = rows[length >= least_bins], length[length >= least_bins]
    bins = np.maximum(length // quarter * quarter, least_bins)
    for count in np.unique(bins).tolist():
        alike = rows[bins == count]
        for part in np.array_split(alike, -(-len(alike) // chunk)):
            yield part, int(count)


def past_origins(n_bins: int, horizon: int, first: int) -> np.ndarray:
    """Origins whose whole window is over, newest aligned with the end, oldest first."""
    return np.arange(n_bins - 1 - horizon, first - 1, -ORIGIN_STRIDE)[::-1]


def step_error_quantiles(
    errors: Floats, known: np.ndarray, ages: np.ndarray, step_seconds: int, levels: Floats
) -> Floats:
    """Quantiles of past errors with a half-life of three days; see ``spread_over_steps``.

    Args:
        errors: Shape (n_series, n_steps, n_origins).
        known: Where the target was observed, same shape.
        ages: Bins since each origin, shape (n_origins,).
        step_seconds: Width of a bin.
        levels: Ascending.

    Returns:
        Shape (n_series, n_steps, n_levels).
    """
    weights = decay_weights(ages.astype(np.float64), step_seconds)
    if known.all():
        return weighted_quantiles(errors.astype(RESIDUAL_DTYPE), weights, levels)
    counted = countable(known)
    result = weighted_quantiles(errors.astype(RESIDUAL_DTYPE), weights, levels, counted)
    spread_over_steps(result, counted)
    return result


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
