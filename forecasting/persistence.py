"""The newest value for every step, with its own past errors: hard to beat for steady series."""

from __future__ import annotations

import numpy as np

from forecasting.residuals import RESIDUAL_DTYPE, PathFit, decay_weights
from forecasting.series_source import Floats


def fit_last_value(
    values: Floats,
    horizon: int,
    step_seconds: int,
    origin_stride: int = 6,
    known: np.ndarray | None = None,
) -> PathFit:
    """Flat paths at the newest value with the errors of earlier origins.

    Args:
        values: Filled history longer than the horizon, shape (n_series, n_bins), no NaN.
        horizon: Steps ahead.
        step_seconds: Width of a bin.
        origin_stride: Every how many bins an earlier origin is taken.
        known: Where ``values`` was observed.
    """
    last = values.shape[1] - 1
    origins = np.arange(last - horizon, -1, -origin_stride)[::-1]
    target_at = origins[None, :] + np.arange(1, horizon + 1)[:, None]
    return PathFit(
        mean=np.repeat(values[:, -1:], horizon, axis=1),
        residuals=(values[:, target_at] - values[:, None, origins]).astype(RESIDUAL_DTYPE),
        weights=decay_weights((last - origins).astype(np.float64), step_seconds),
        known=None if known is None or known.all() else known[:, target_at],
    )
