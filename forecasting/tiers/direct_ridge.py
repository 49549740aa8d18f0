"""Direct ridge regression of every series and step, the tier that always answers.

The mathematics are in ``forecasting.ridge``.
"""

from __future__ import annotations

import numpy as np

from forecasting.residuals import point_quantiles
from forecasting.ridge import fit_ridge, min_bins
from forecasting.series_source import Floats
from forecasting.tiers.past_errors import row_groups
from forecasting.tiers.tier import Tier


class Ridge(Tier):
    """One small regression per series and step ahead, with its past errors."""

    model = "ridge/2"

    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        records = self.records
        day_steps = records.day_steps
        result = np.full((len(records.series), horizon, len(levels)), np.nan)
        if horizon > day_steps:
            return result
        for rows, bins in row_groups(records, min_bins(horizon, day_steps)):
            fitted = fit_ridge(
                records.filled[rows, -bins:],
                horizon,
                records.step_seconds,
                day_steps,
                known=records.known[rows, -bins:],
            )
            result[rows] = point_quantiles(fitted, levels)
        result[records.known[:, -day_steps:].mean(axis=1) < 0.5] = np.nan
        return result
