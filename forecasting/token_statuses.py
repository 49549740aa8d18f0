"""Adds the tokens of their requests to the statuses of a round's series that ask for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forecasting.forecast import FALLBACKS, Forecast
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import DAY_SECONDS, Floats, SeriesId, SeriesSource
from forecasting.targets import TargetKey, TokenSource
from forecasting.tiers.records import HISTORY_DAYS
from forecasting.token_demand import RequestForecast, TokenDemand, token_demand
from wattpack.api.forecast_subject import ForecastTokens
from wattpack.errors import WattpackError

log = logging.getLogger(__name__)


def add_tokens(
    statuses: Mapping[TargetKey, dict[str, Any]],
    answers: Sequence[TargetForecast],
    source: SeriesSource,
) -> None:
    """Fill ``tokens`` where a model stands behind the requests and lengths can be read.

    Args:
        statuses: Of this round, changed here.
        answers: Of this round.
        source: The history; what it does not give leaves a status without tokens.
    """
    for answer in answers:
        made, asked, key = answer.made, answer.target.tokens, answer.target.key
        if made is None or asked is None or key not in statuses:
            continue
        if made.methods[answer.row] in FALLBACKS:
            continue
        try:
            found = _demand(answer, made, asked, source)
        except WattpackError as error:
            log.warning("no tokens of %s: %s", key, error)
            continue
        if found is not None:
            statuses[key]["tokens"] = _status(found).to_json()


def _demand(
    answer: TargetForecast, made: Forecast, asked: TokenSource, source: SeriesSource
) -> TokenDemand | None:
    until, step = made.data_until_seconds, made.step_seconds
    start = until - HISTORY_DAYS * DAY_SECONDS // step * step

    def row(series: SeriesId) -> Floats:
        return np.asarray(source.fetch([series], start, until, step)[0], dtype=np.float64)

    forecast = RequestForecast(
        requests=row(answer.target.series),
        step_seconds=step,
        quantiles=made.quantiles[answer.row],
        levels=made.levels,
        peaks=made.peaks[answer.row],
    )
    p99, second_moment = (
        None if series is None else row(series)
        for series in (asked.p99_series, asked.second_moment_series)
    )
    return token_demand(forecast, row(asked.series), p99, second_moment)


def _status(found: TokenDemand) -> ForecastTokens:
    figures = (found.mean, found.second_moment, found.p99, *found.peaks.tolist())
    mean, square, longest, p50, p95, p99 = (float(f"{figure:.6g}") for figure in figures)
    return ForecastTokens(
        mean=mean, second_moment=square, request_p99=longest, p50=p50, p95=p95, p99=p99
    )
