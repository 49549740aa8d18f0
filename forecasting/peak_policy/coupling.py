"""Joint paths: the ranks of past hours, the values of the forecast (Schaake shuffle).

Path j of every series takes its rank at each step from the same past origin. Errors of one hour
stay together over steps and series, so sums keep their correlation, while each step keeps the
distribution that was forecast for it.
Source: Clark et al., "The Schaake shuffle", Journal of Hydrometeorology 5 (2004), section 2c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from forecasting.forecast import checked_levels
from forecasting.series_source import Floats
from wattpack.errors import InputError

CHUNK_CELLS: Final = 200_000
"""Residuals ranked together: what stays in a core's cache; seven times as fast as 4 million."""

PATHS: Final = 200
"""Joint paths behind a peak: two of them lie above its 0.99 quantile."""

SEED: Final = 39
"""Of the order of equal residuals; any number would do, as long as it stays."""


def quantile_function(quantiles: Floats, levels: Sequence[float], at: Floats) -> Floats:
    """Values of the distributions at other levels: linear between those given.

    Beyond the outer levels the tails are exponential, with the slope between the last two levels;
    a single level is a point mass.

    Args:
        quantiles: Sorted over the last axis, shape (..., n_levels).
        levels: In (0, 1), ascending, of that last axis.
        at: In (0, 1), shape (n,).

    Returns:
        Shape (..., n).

    Raises:
        InputError: levels out of order or outside (0, 1), or of another number than the quantiles.
    """
    known = _levels_of(quantiles, levels)
    result: Floats = quantiles @ _interpolation(known, np.asarray(at, dtype=np.float64))
    return result


def path_levels(n: int) -> Floats:
    """Levels of the quantiles that n equally likely values are: the middles of as many parts."""
    result: Floats = (np.arange(n) + 0.5) / n
    return result


def ranked_quantiles(ranked: Floats, levels: Sequence[float]) -> Floats:
    """Quantiles of equally likely values that rise over the last axis.

    Shape (..., n) to (..., n_levels); tails as in ``quantile_function``.
    """
    known = tuple(path_levels(ranked.shape[-1]))
    return quantile_function(ranked, known, np.asarray(levels, dtype=np.float64))


def step_quantiles(paths: Floats, levels: Sequence[float]) -> Floats:
    """Quantiles of each step over the paths, (n, n_paths, horizon) to (n, horizon, n_levels)."""
    ranked = np.sort(paths, axis=1).transpose(0, 2, 1)
    return np.asarray(np.maximum(ranked_quantiles(ranked, levels), 0.0))


def peak_quantiles(paths: Floats, levels: Sequence[float]) -> Floats:
    """Quantiles of the highest step over the paths, (n, n_paths, horizon) to (n, n_levels)."""
    return ranked_quantiles(np.sort(paths.max(axis=2), axis=1), levels)


def tie_order() -> np.random.Generator:
    """The order of equal residuals, from its beginning."""
    return np.random.default_rng(SEED)


def couple(
    quantiles: Floats,
    levels: Sequence[float],
    residual_paths: Floats,
    n: int | None = None,
    order: np.random.Generator | None = None,
) -> Floats:
    """Joint paths whose ranks are those of past hours and whose marginals are the forecast's.

    Path j has, at every step of every series, the rank that the error of past origin j had among
    all origins. The n values of a step are its quantiles at (r - 0.5) / n. An error that is not
    known counts as a middling one. Equal errors (an idle series) are ranked by chance, alike at all
    steps of a series, not alike over series.

    Args:
        quantiles: Step quantiles, sorted over levels, shape (n_series, horizon, n_levels).
        levels: In (0, 1), ascending.
        residual_paths: Errors at past origins, the same origins for every series, oldest first, NaN
            where unknown; any unit, since only ranks count; shape (n_series, n_origins, horizon).
        n: How many paths. The newest origins are taken; above n_origins they are repeated. None
            takes each origin once.
        order: Of equal errors; who couples series part by part gives the same to each part and gets
            the paths of one call. None begins anew.

    Returns:
        Shape (n_series, n, horizon).

    Raises:
        InputError: shapes that do not fit, no origins, ``n`` below 1, levels out of order.
    """
    n_series, horizon, _ = quantiles.shape
    known = _levels_of(quantiles, levels)
    fits = residual_paths.ndim == 3 and residual_paths.shape[::2] == (n_series, horizon)
    if not fits or residual_paths.shape[1] == 0:
        wanted = f"an array of ({n_series}, at least 1, {horizon})"
        raise InputError("residual_paths", wanted, residual_paths.shape)
    n_origins = residual_paths.shape[1]
    count = n_origins if n is None else n
    if count < 1:
        raise InputError("n", "at least one path", n)
    # Path n-1 is the newest origin, before it the older ones, and round again.
    origins = np.arange(n_origins - count, n_origins) % n_origins
    interpolation = _interpolation(known, path_levels(count))
    draw = tie_order() if order is None else order
    paths = np.empty((n_series, count, horizon))
    rows = max(1, CHUNK_CELLS // (count * horizon))
    for start in range(0, n_series, rows):
        part = slice(start, min(start + rows, n_series))
        errors = _known_errors(residual_paths[part])[:, :, origins]
        shuffle = draw.permuted(np.tile(np.arange(count), (len(errors), 1)), axis=1)
        ranked = quantiles[part] @ interpolation
        paths[part] = _reordered(ranked, errors, shuffle).transpose(0, 2, 1)
    return paths


def _reordered(ranked: Floats, errors: np.ndarray, shuffle: np.ndarray) -> Floats:
    """Values in the order of the errors; both (n_series, horizon, n), shuffle (n_series, n).

    Errors (single precision) and their turn in the shuffle are packed into one whole number each:
    all differ, so the order is the same on every machine, and plain numbers sort ten times as fast
    as places do.
    """
    turn = np.argsort(shuffle, axis=1)
    bits = (errors + np.float32(0.0)).view(np.int32)
    # Negative floats grow with their bits falling; without the sign these are turned round.
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    packed = (bits.astype(np.int64) << 32) | turn[:, None, :]
    packed.sort(axis=2)
    turns = packed & 0xFFFFFFFF
    first_of_row = (np.arange(len(shuffle)) * shuffle.shape[1])[:, None, None]
    places = shuffle.ravel()[turns + first_of_row]
    result = np.empty_like(ranked)
    np.put_along_axis(result, places, ranked, axis=2)
    return result


def _known_errors(residual_paths: Floats) -> np.ndarray:
    """Errors with gaps at the median of their step, shape (n_series, horizon, n_origins)."""
    # Half the width sorts twice as fast, and ranks need no more.
    errors = residual_paths.transpose(0, 2, 1).astype(np.float32)
    gaps = ~np.isfinite(errors)
    if gaps.any():
        errors[gaps] = np.nan
        empty = gaps.all(axis=2)
        errors[empty] = 0.0
        middle = np.nanmedian(errors, axis=2, keepdims=True)
        errors = np.where(np.isnan(errors), middle, errors)
    return errors


def _interpolation(levels: Floats, at: Floats) -> Floats:
    """Weights of the quantiles in the values at other levels, shape (n_levels, n).

    Linear in the quantiles throughout, tails included, so that one product does all series.
    """
    n_levels = len(levels)
    weights = np.zeros((n_levels, len(at)))
    column = np.arange(len(at))
    if n_levels == 1:
        weights[0] = 1.0
        return weights
    left = np.clip(np.searchsorted(levels, at, side="right") - 1, 0, n_levels - 2)
    share = (at - levels[left]) / (levels[left + 1] - levels[left])
    above, below = at > levels[-1], at < levels[0]
    # In an exponential tail a quantile grows with -log(1 - level).
    step = np.log((1 - levels[-2]) / (1 - levels[-1]))
    share = np.where(above, 1 + np.log((1 - levels[-1]) / (1 - at)) / step, share)
    step = np.log(levels[1] / levels[0])
    share = np.where(below, -np.log(levels[0] / at) / step, share)
    weights[left, column] = 1 - share
    weights[left + 1, column] += share
    return weights


def _levels_of(quantiles: Floats, levels: Sequence[float]) -> Floats:
    """Ascending levels in (0, 1), as many as there are quantiles."""
    known = checked_levels(levels)
    if len(known) != quantiles.shape[-1]:
        raise InputError("levels", f"one for each of {quantiles.shape[-1]} quantiles", len(known))
    return known
