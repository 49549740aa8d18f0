"""Tokens of the requests that a round forecasts, for statuses and for decisions that count by them.

Lengths that cannot be read do not take the answer away: the last ones count, and the flag
``lengths-away`` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forecasting.clean_history import STALE_BINS, clean
from forecasting.forecast import EXTREME_FLAG, FALLBACKS, LIMIT, Forecast
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import DAY_SECONDS, Floats, SeriesId, SeriesSource
from forecasting.targets import TargetKey, TokenSource
from forecasting.tiers.records import HISTORY_DAYS
from forecasting.token_demand import RequestForecast, TokenDemand, token_demand
from forecasting.tokens import binned_lengths
from forecasting.told_lengths import LENGTHS_AWAY, LastLengths, ToldLengths
from wattpack.api.forecast_subject import ForecastTokens
from wattpack.errors import WattpackError
from wattpack.kube.port import JsonObject
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenOutlook:
    """Of one target's requests.

    Attributes:
        lengths: Of a request.
        demand: Tokens a second that are expected.
        now_rate: Newest measured tokens a second; NaN where nobody tells.
    """

    lengths: ToldLengths
    demand: TokenDemand
    now_rate: float


def token_outlooks(
    answers: Sequence[TargetForecast],
    source: SeriesSource,
    last: LastLengths,
    bodies: Mapping[TargetKey, JsonObject],
) -> dict[TargetKey, TokenOutlook]:
    """Of targets that ask for tokens and of whose requests anything is known.

    Args:
        answers: Of a round.
        source: The history.
        last: Lengths that count while the history tells none; what it tells is put there.
        bodies: Objects as they were read.
    """
    last.keep(answer.target.key for answer in answers)
    found = {}
    for answer in answers:
        made, key = answer.made, answer.target.key
        if made is None or answer.target.tokens is None or made.methods[answer.row] == LIMIT:
            continue
        known = last.of(answer.target, bodies.get(key, {}))
        try:
            outlook = _outlook(answer, made, answer.target.tokens, source, known)
        except WattpackError as error:
            log.warning("no tokens of %s: %s", key, error)
            continue
        if outlook is not None:
            last.put(answer.target, outlook.lengths)
            found[key] = outlook
    return found


def flagged(
    answers: Sequence[TargetForecast], outlooks: Mapping[TargetKey, TokenOutlook]
) -> list[TargetForecast]:
    """The answers with what their tokens add to their flags.

    ``lengths-away`` where lengths are asked for and none were told lately, but not in the first day
    of the requests: nobody has looked for lengths yet. ``extreme`` where tokens were cut.
    """
    return [
        replace(answer, source_flags=tuple(dict.fromkeys((*answer.source_flags, *beside))))
        if (beside := _flags(answer, outlooks.get(answer.target.key)))
        else answer
        for answer in answers
    ]


def _flags(answer: TargetForecast, outlook: TokenOutlook | None) -> tuple[str, ...]:
    made = answer.made
    if made is None or answer.target.tokens is None or made.methods[answer.row] == LIMIT:
        return ()
    extreme = () if outlook is None or not outlook.demand.is_extreme else (EXTREME_FLAG,)
    is_away = outlook is None or outlook.lengths.are_away
    return (*extreme, LENGTHS_AWAY) if is_away else extreme


def add_tokens(
    statuses: Mapping[TargetKey, dict[str, Any]],
    answers: Sequence[TargetForecast],
    outlooks: Mapping[TargetKey, TokenOutlook],
) -> None:
    """Fill ``tokens`` where a model stands behind the requests.

    Args:
        statuses: Of this round, changed here.
        answers: Of this round.
        outlooks: Of their tokens.
    """
    for answer in answers:
        key, made = answer.target.key, answer.made
        if key not in statuses or key not in outlooks or made is None:
            continue
        if made.methods[answer.row] not in FALLBACKS:
            statuses[key]["tokens"] = _status(outlooks[key]).to_json()


def _outlook(
    answer: TargetForecast,
    made: Forecast,
    asked: TokenSource,
    source: SeriesSource,
    last: ToldLengths | None,
) -> TokenOutlook | None:
    until, step = made.data_until_seconds, made.step_seconds
    start = until - HISTORY_DAYS * DAY_SECONDS // step * step

    def row(series: SeriesId) -> Floats:
        return np.asarray(source.fetch([series], start, until, step)[0], dtype=np.float64)

    requests = row(answer.target.series)
    tokens, lengths = np.full(len(requests), np.nan), None
    try:
        tokens = _believed(row(asked.series), step)
        p99, square = (
            None if series is None else _believed(row(series), step)
            for series in (asked.p99_series, asked.second_moment_series)
        )
        lengths = _lengths(_believed(requests, step), tokens, p99, square, (start, step))
    except WattpackError as error:
        log.warning("no lengths of %s: %s", answer.target.key, error)
    if lengths is None:
        if last is None:
            return None
        lengths = replace(last, are_away=True)
    forecast = RequestForecast(
        requests=requests,
        step_seconds=step,
        quantiles=made.quantiles[answer.row],
        levels=made.levels,
        peaks=made.peaks[answer.row],
    )
    now_rate = float(made.now[answer.row]) * lengths.of.mean
    if np.isfinite(tokens[-1]):
        now_rate = float(tokens[-1])
    demand = token_demand(forecast, lengths.of, _record(tokens, requests, lengths.of.mean))
    return TokenOutlook(lengths, demand, now_rate)


def _record(tokens: Floats, requests: Floats, mean_tokens: float) -> float:
    """Highest tokens a second of those that were told, else of the requests; infinite for none."""
    for rates in (tokens, requests * mean_tokens):
        if (highest := float(np.nanmax(rates, initial=0.0))) > 0.0:
            return highest
    return float("inf")


def _believed(row: Floats, step_seconds: int) -> Floats:
    """NaN for what no forecast of the series would rest on: nonsense, and a single wild bin."""
    known = clean(row[None], max(1, DAY_SECONDS // step_seconds)).known[0]
    result: Floats = np.where(known, row, np.nan)
    return result


def _lengths(
    requests: Floats,
    tokens: Floats,
    p99: Floats | None,
    square: Floats | None,
    bins: tuple[int, int],
) -> ToldLengths | None:
    """Of a history whose bins start at a time and are so many seconds wide."""
    found = binned_lengths(requests, tokens, p99, bins[1], square)
    if found is None:
        return None
    came = np.flatnonzero(requests > 0)
    told = np.flatnonzero((requests > 0) & np.isfinite(tokens))
    until_seconds = bins[0] + (int(told[-1]) + 1) * bins[1]
    return ToldLengths(found, until_seconds, bool(came[-1] - told[-1] > STALE_BINS))


def _status(outlook: TokenOutlook) -> ForecastTokens:
    of = outlook.lengths.of
    figures = (of.mean, of.second_moment, of.p99, *outlook.demand.peaks.tolist())
    mean, square, longest, p50, p95, p99 = (float(f"{figure:.6g}") for figure in figures)
    return ForecastTokens(
        mean=mean,
        second_moment=square,
        request_p99=longest,
        p50=p50,
        p95=p95,
        p99=p99,
        lengths_until=rfc3339(seconds_to_ns(outlook.lengths.until_seconds)),
    )
