"""Forecasts that need no fit: the value of a day before, the newest value, maxima of past days.

Each has the errors of its training window around it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["LastValue", "SeasonalNaive", "multi_day_maxima"]

Floats = npt.NDArray[np.float64]

DAY = 144


class SeasonalNaive:
    """Same time yesterday; its errors are pooled over the steps, which all look back one day."""

    def fit(self, past: Floats) -> None:
        """Nothing is kept."""

    def quantiles(self, past: Floats, horizon: int, levels: Sequence[float]) -> Floats:
        """Shape (n_series, horizon, n_levels); ``past`` is (n_series, n_bins), horizon ≤ a day."""
        errors = np.quantile(past[:, DAY:] - past[:, :-DAY], levels, axis=1).T
        same_time = past[:, past.shape[1] - DAY :][:, :horizon]
        result: Floats = same_time[:, :, None] + errors[:, None, :]
        return result


class LastValue:
    """The newest value, each step with its own errors."""

    def fit(self, past: Floats) -> None:
        """Nothing is kept."""

    def quantiles(self, past: Floats, horizon: int, levels: Sequence[float]) -> Floats:
        """Shape (n_series, horizon, n_levels)."""
        errors = [
            np.quantile(past[:, k:] - past[:, :-k], levels, axis=1).T for k in range(1, horizon + 1)
        ]
        result: Floats = past[:, -1, None, None] + np.stack(errors, axis=1)
        return result


def multi_day_maxima(past: Floats, days: Sequence[int]) -> dict[int, Floats]:
    """The highest bin of so many last days, each of shape (n_series,)."""
    return {count: past[:, -count * DAY :].max(axis=1) for count in days}
