"""How the hours of the past went, aligned in time over series: the order that joint paths take.

What is ranked is the change since an origin after the mean day is taken out: the daily rise and
fall is known beforehand and would else look like a shock that all series share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forecasting.series_source import Floats


def past_changes(
    filled: Floats, length: NDArray[np.intp], horizon: int, day_steps: int, most: int
) -> Floats:
    """Changes over a window from origins spread evenly over the history.

    Args:
        filled: History without gaps, shape (n_series, n_bins).
        length: Bins of each series' history, shape (n_series,); what lies before is unknown.
        horizon: Steps of a window.
        day_steps: Bins in a day.
        most: Origins at most.

    Returns:
        Shape (n_series, n_origins, horizon), oldest first, at least one origin, NaN from before a
        series began; zeros from a history of under a window.
    """
    n_series, n_bins = filled.shape
    if n_bins <= horizon:
        return np.zeros((n_series, 1, horizon))
    rest = filled - _mean_day(filled, day_steps)
    count = min(most, n_bins - horizon)
    origins = np.unique(np.rint(np.linspace(0, n_bins - 1 - horizon, count)).astype(np.intp))
    at = origins[:, None] + np.arange(1, horizon + 1)
    changes: Floats = rest[:, at] - rest[:, origins][:, :, None]
    changes[origins[None, :] < (n_bins - length)[:, None]] = np.nan
    return changes


def _mean_day(filled: Floats, day_steps: int) -> Floats:
    """The mean of each time of day over the whole days at the end, repeated over all bins."""
    n_series, n_bins = filled.shape
    days = n_bins // day_steps
    if days < 2:
        return np.zeros_like(filled)
    whole = filled[:, n_bins - days * day_steps :].reshape(n_series, days, day_steps)
    back = np.arange(n_bins) - (n_bins - days * day_steps)
    result: Floats = whole.mean(axis=1)[:, back % day_steps]
    return result
