"""The load predictors of NVIDIA Dynamo's planner, made again from what they are said to do.

Source: ai-dynamo/dynamo at 260b6ae, ``docs/components/planner`` and the defaults of its
configuration. Each answers with one point for the next interval; later steps are held flat there.
"""

from __future__ import annotations

import logging
import warnings
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Arima", "Constant", "Kalman", "Prophet"]

Floats = npt.NDArray[np.float64]

LEVEL_NOISE: Final = 1.0
TREND_NOISE: Final = 0.1
READING_NOISE: Final = 10.0
FIRST_VARIANCE: Final = 1000.0
PROPHET_WINDOW: Final = 50
PROPHET_BEGINS: Final = datetime(2024, 1, 1)
STEP: Final = timedelta(seconds=600)


class Constant:
    """The newest value."""

    def fit(self, past: Floats) -> None:
        """Nothing is kept."""

    def next(self, past: Floats) -> Floats:
        """Shape (n_series,), of (n_series, n_bins)."""
        found: Floats = past[:, -1].copy()
        return found


class Kalman:
    """Local linear trend with fixed noise: level 1.0, trend 0.1, reading 10.0."""

    def fit(self, past: Floats) -> None:
        """Nothing is kept."""

    def next(self, past: Floats) -> Floats:
        """Level after one more step, shape (n_series,); may be below 0, as theirs.

        The gain does not depend on the values, so all series share it.
        """
        level, trend = past[:, 0].copy(), np.zeros(len(past))
        move = np.array([[1.0, 1.0], [0.0, 1.0]])
        noise = np.diag([LEVEL_NOISE, TREND_NOISE])
        covariance = np.eye(2) * FIRST_VARIANCE
        for reading in past[:, 1:].T:
            level, covariance = level + trend, move @ covariance @ move.T + noise
            gain = covariance[:, 0] / (covariance[0, 0] + READING_NOISE)
            miss = reading - level
            level, trend = level + gain[0] * miss, trend + gain[1] * miss
            covariance = covariance - np.outer(gain, covariance[0])
        return level + trend


class Arima:
    """Automatic ARIMA without season, chosen once, then fed; of log(1+y) where it is (0, d, 0).

    Theirs is pmdarima's search; the same stepwise search of statsforecast stands in.
    """

    def __init__(self) -> None:
        self._models: list[tuple[Any, bool]] = []

    def fit(self, past: Floats) -> None:
        """Choose an order for each row; None for rows that never change."""
        self._models = [(None, False) if np.ptp(row) == 0 else _chosen(row) for row in past]

    def next(self, past: Floats) -> Floats:
        """Shape (n_series,); the newest value where the model fails."""
        found = past[:, -1].copy()
        for i, (model, logs) in enumerate(self._models):
            if model is None:
                continue
            given = np.log1p(past[i]) if logs else past[i]
            mean = float(model.forward(given, 1)["mean"][0])
            if np.isfinite(mean):
                found[i] = max(0.0, float(np.expm1(min(mean, 700.0))) if logs else mean)
        return found


def _chosen(row: Floats) -> tuple[Any, bool]:
    """The model and whether it is of logarithms."""
    from statsforecast.models import AutoARIMA

    model = AutoARIMA(ic="aic").fit(row)
    p, q = model.model_["arma"][:2]
    if p == 0 and q == 0:
        return AutoARIMA(ic="aic").fit(np.log1p(row)), True
    return model, False


class Prophet:
    """Prophet with its defaults on the newest 50 points, fitted anew at every step."""

    def fit(self, past: Floats) -> None:
        """Nothing is kept; its library's chatter is turned off."""
        for name in ("prophet", "prophet.plot", "cmdstanpy"):
            logger = logging.getLogger(name)
            logger.setLevel(logging.CRITICAL)
            # cmdstanpy gives a logger without a handler its own, and its own level, as it fits.
            if not logger.handlers:
                logger.addHandler(logging.NullHandler())

    def next(self, past: Floats) -> Floats:
        """Shape (n_series,), never below 0."""
        import pandas
        import prophet

        begins = PROPHET_BEGINS + STEP * (past.shape[1] - PROPHET_WINDOW)
        times = [begins + STEP * i for i in range(PROPHET_WINDOW + 1)]
        found = np.empty(len(past))
        for i, row in enumerate(past[:, -PROPHET_WINDOW:]):
            model = prophet.Prophet()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(pandas.DataFrame({"ds": times[:-1], "y": row}))
                made = model.predict(pandas.DataFrame({"ds": times[-1:]}))
            found[i] = max(0.0, float(made["yhat"].iloc[0]))
        return found
