"""MSTL + AutoETS of statsforecast (an extra): decomposition by the day, smoothing of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

__all__ = ["MstlAutoEts"]

Floats = npt.NDArray[np.float64]

DAY: Final = 144
INTERVAL: Final = 80
"""Per cent of the interval that the deviation is read from; intervals there are Gaussian."""


class MstlAutoEts:
    """The model's order and parameters are found in ``fit``; newer history is run through them."""

    def __init__(self) -> None:
        self._models: list[Any] = []

    def fit(self, past: Floats) -> None:
        """Choose and estimate a model for each row of ``past``, (n_series, n_bins)."""
        from statsforecast.models import MSTL, AutoETS

        self._models = [
            MSTL(season_length=DAY, trend_forecaster=AutoETS(model="ZZN")).fit(row) for row in past
        ]

    def quantiles(self, past: Floats, horizon: int, levels: Sequence[float]) -> Floats:
        """Shape (n_series, horizon, n_levels)."""
        deviates = norm.ppf(np.asarray(levels))
        highest = norm.ppf(0.5 + INTERVAL / 200)
        rows = []
        for model, row in zip(self._models, past, strict=True):
            made = model.forward(row, horizon, level=[INTERVAL])
            deviation = (made[f"hi-{INTERVAL}"] - made["mean"]) / highest
            rows.append(made["mean"][:, None] + deviation[:, None] * deviates)
        return np.stack(rows)
