"""Joint paths from step quantiles: values of the forecast, ranks of real hours.

Source: Schaake shuffle, Clark et al., Journal of Hydrometeorology 5 (2004), section 3. What is
ranked is the change since the origin and not the value: errors of a forecast follow changes.
"""

from __future__ import annotations

import numpy as np

from forecasting.series_source import Floats


def shuffle(values: Floats, horizon: int, n: int) -> np.ndarray:
    """Ranks of past changes: which of n order statistics path j takes at each step.

    Origins are spread evenly over the history and are the same for all series, so that errors of
    one hour stay together over steps and series.

    Args:
        values: Filled history, shape (n_series, n_bins).
        horizon: Steps ahead.
        n: Paths.

    Returns:
        Shape (n_series, n, horizon), whole numbers from 0 to n - 1. With a history shorter than two
        horizons all paths keep their rank over steps, which is the widest that peaks can be.
    """
    n_series, n_bins = values.shape
    last, first = n_bins - 1 - horizon, 0
    if last - first < horizon:
        rank = np.broadcast_to(np.arange(n)[:, None], (n, horizon))
        return np.broadcast_to(rank, (n_series, n, horizon))
    origins = np.rint(np.linspace(first, last, n)).astype(np.intp)
    at = origins[:, None] + np.arange(1, horizon + 1)
    changes = values[:, at] - values[:, origins][:, :, None]
    order = np.argsort(changes, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(n)[None, :, None], axis=1)
    return ranks


def joint_paths(quantiles: Floats, ranks: np.ndarray) -> Floats:
    """Paths whose step distributions are the quantiles.

    Args:
        quantiles: At levels (j + 1/2) / n, shape (n_series, horizon, n).
        ranks: From ``shuffle``, shape (n_series, n, horizon).

    Returns:
        Shape (n_series, n, horizon).
    """
    result: Floats = np.take_along_axis(quantiles.transpose(0, 2, 1), ranks, axis=1)
    return result
