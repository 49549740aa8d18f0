"""Exponential smoothing ETS(A,N,A) and AutoReg of statsmodels, with their Gaussian quantiles.

Parameters are estimated in ``fit``; ``quantiles`` runs them over the newest history.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

__all__ = ["AutoRegressive", "SeasonalSmoothing", "gaussian"]

Floats = npt.NDArray[np.float64]

DAY: Final = 144
LAGS: Final = (1, 2, 3, 6, 36, 144)


def gaussian(mean: Floats, deviation: Floats, levels: Sequence[float]) -> Floats:
    """Quantiles of normal distributions, (..., H) and (..., H) to (..., H, L)."""
    result: Floats = mean[..., None] + deviation[..., None] * norm.ppf(np.asarray(levels))
    return result


class _Smoothing(Protocol):
    """What is used of statsmodels' ``ETSModel``."""

    start_params: Floats
    param_names: list[str]
    fit: Callable[..., Any]
    smooth: Callable[[Floats], Any]


class SeasonalSmoothing:
    """ETS(A,N,A), period of a day, heuristic initial states."""

    def __init__(self) -> None:
        self._parameters: list[Floats] = []

    def fit(self, past: Floats) -> None:
        """Estimate the smoothing parameters of each row of ``past``, (n_series, n_bins)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows of zeros converge nowhere
            self._parameters = [np.asarray(_model(row).fit(disp=False).params) for row in past]

    def quantiles(self, past: Floats, horizon: int, levels: Sequence[float]) -> Floats:
        """Shape (n_series, horizon, n_levels)."""
        mean, deviation = np.empty((2, len(past), horizon))
        for i, row in enumerate(past):
            model = _model(row)
            found = model.smooth(self._updated(model, i))
            mean[i] = np.asarray(found.forecast(horizon))
            error = np.sqrt(np.mean(np.square(np.asarray(found.resid)[DAY:])))
            alpha = float(found.smoothing_level)
            # Hyndman et al., Forecasting with Exponential Smoothing (2008), table 6.1, one period.
            deviation[i] = error * np.sqrt(1 + alpha**2 * np.arange(horizon))
        return gaussian(mean, deviation, levels)

    def _updated(self, model: _Smoothing, i: int) -> Floats:
        """Smoothing parameters of the fit; initial states of the newest window."""
        given = np.array(model.start_params, dtype=np.float64)
        smoothing = [name.startswith("smoothing") for name in model.param_names]
        given[smoothing] = self._parameters[i][smoothing]
        return given


def _model(row: Floats) -> _Smoothing:
    import pandas
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    # A plain array has no index, which the model's own predictions need.
    made: _Smoothing = ETSModel(
        pandas.Series(row), error="add", seasonal="add", seasonal_periods=DAY,
        initialization_method="heuristic",
    )  # fmt: skip
    return made


class AutoRegressive:
    """AutoReg with lags of 10, 20 and 30 minutes, 1 and 6 hours, and a day."""

    def __init__(self) -> None:
        self._weights = np.empty((0, len(LAGS) + 1))
        self._errors = np.empty(0)

    def fit(self, past: Floats) -> None:
        """Estimate the weights and the errors' deviation of each row."""
        from statsmodels.tsa.ar_model import AutoReg

        found = [AutoReg(row, lags=list(LAGS)).fit() for row in past]
        self._weights = np.array([result.params for result in found])
        self._errors = np.array([np.sqrt(result.sigma2) for result in found])

    def quantiles(self, past: Floats, horizon: int, levels: Sequence[float]) -> Floats:
        """Shape (n_series, horizon, n_levels)."""
        path = np.concatenate([past[:, -max(LAGS) :], np.empty((len(past), horizon))], axis=1)
        response = np.zeros((len(past), max(LAGS) + horizon))
        response[:, max(LAGS)] = 1.0
        for at in range(max(LAGS), max(LAGS) + horizon):
            before = [at - lag for lag in LAGS]
            weights = self._weights[:, 1:]
            path[:, at] = self._weights[:, 0] + (weights * path[:, before]).sum(axis=1)
            if at > max(LAGS):
                response[:, at] = (weights * response[:, before]).sum(axis=1)
        spread = np.sqrt(np.cumsum(np.square(response[:, max(LAGS) :]), axis=1))
        return gaussian(path[:, max(LAGS) :], self._errors[:, None] * spread, levels)
