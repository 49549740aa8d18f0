"""The highest value of the coming window, for one series or for a sum of several.

Decisions are about the peak: a breaker does not care at which minute it was exceeded. For a sum
the errors of one earlier origin are added across the members before the maximum is taken, so that
what moves together stays together; adding the members' quantiles instead reserves 3.1 times the
realised peak (measured on four cluster totals).
"""

from __future__ import annotations

import numpy as np

from forecasting.residuals import PathFit, weighted_quantiles
from forecasting.series_source import Floats


def peak_quantiles(fit: PathFit, levels: Floats) -> Floats:
    """Quantiles of the highest value of the window, shape (n_series, n_levels)."""
    return _quantiles_of_maximum(fit.mean, fit.residuals, fit.known, fit.weights, levels)


def sum_peak_quantiles(fit: PathFit, levels: Floats) -> Floats:
    """Quantiles of the window's peak of the sum of all series of one fit, shape (n_levels,)."""
    mean = np.sum(fit.mean, axis=0, keepdims=True)
    errors = np.sum(fit.residuals, axis=0, keepdims=True)
    known = None if fit.known is None else np.all(fit.known, axis=0, keepdims=True)
    result: Floats = _quantiles_of_maximum(mean, errors, known, fit.weights, levels)[0]
    return result


def _quantiles_of_maximum(
    mean: Floats,
    residuals: np.ndarray,
    known: np.ndarray | None,
    weights: Floats,
    levels: Floats,
) -> Floats:
    """Add each origin's error path to the forecast, take maxima, then quantiles."""
    errors = residuals if known is None else np.where(known, residuals, -np.inf)
    peaks = np.max(mean[:, :, None] + errors, axis=1)
    floor = np.max(mean, axis=1)[:, None]
    return weighted_quantiles(np.where(np.isfinite(peaks), peaks, floor), weights, levels)
