"""Token demand of a request series: its calibrated forecast as paths, times lengths.

    step quantiles ─► joint paths of requests ─┐
    bins of requests and tokens ─► lengths ────┴─► joint paths of tokens ─► steps, and their peaks

Beside the forecast of requests: what a step's tokens stray by chance, few long requests among many,
is on top of what the requests stray.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.clean_history import clean
from forecasting.forecast import EXTREME
from forecasting.past_changes import past_changes
from forecasting.peak_policy.coupling import PATHS, couple, ranked_quantiles, step_quantiles
from forecasting.peak_quantiles import STATUS_LEVELS
from forecasting.series_source import DAY_SECONDS, Floats
from forecasting.tokens import LengthStatistics, token_paths

SEED: Final = 39
"""Any number would do, as long as it stays: the same history gives the same answer."""


@dataclass(frozen=True, slots=True)
class TokenDemand:
    """What requests will ask for, tokens a second.

    Attributes:
        peaks: Quantiles at ``STATUS_LEVELS`` of the highest step, (3,).
        steps: Quantiles of each step at the forecast's levels, (horizon, n_levels).
        is_extreme: Whether they were cut at ``EXTREME`` times the record.
    """

    peaks: Floats
    steps: Floats
    is_extreme: bool


@dataclass(frozen=True, slots=True)
class RequestForecast:
    """Of one series.

    Attributes:
        requests: History, a second, (n_bins,); NaN for gaps.
        step_seconds: Width of a bin and of a step.
        quantiles: Of each step, calibrated, (horizon, n_levels).
        levels: Ascending.
        peaks: Of the window's highest step, (n_levels,): no path is above the highest of them.
    """

    requests: Floats
    step_seconds: int
    quantiles: Floats
    levels: Sequence[float]
    peaks: Floats


def token_demand(
    forecast: RequestForecast, lengths: LengthStatistics, record: float
) -> TokenDemand:
    """Tokens that the forecast's requests will be.

    Args:
        forecast: Of the requests.
        lengths: Of one of them.
        record: Highest tokens a second of the history, infinite where nobody knows it.
    """
    step = forecast.step_seconds
    cleaned = clean(forecast.requests[None], max(1, DAY_SECONDS // step))
    horizon = len(forecast.quantiles)
    errors = past_changes(
        cleaned.filled, cleaned.length, horizon, max(1, DAY_SECONDS // step), PATHS
    )
    rates = couple(forecast.quantiles[None], forecast.levels, errors, PATHS)
    rates = np.clip(rates, 0.0, forecast.peaks[-1])
    mean, square = np.array([lengths.mean]), np.array([lengths.second_moment])
    drawn = token_paths(rates, mean, square, step, SEED)
    highest = np.sort(drawn[0].max(axis=1))
    peaks = ranked_quantiles(highest, STATUS_LEVELS)
    steps = step_quantiles(drawn, forecast.levels)[0]
    most = EXTREME * record
    return TokenDemand(
        np.maximum.accumulate(np.clip(peaks, 0.0, most)),
        np.minimum(steps, most),
        bool(peaks.max() > most or steps.max() > most),
    )
