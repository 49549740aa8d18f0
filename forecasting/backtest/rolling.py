"""Rolling origins: the forecaster's own rounds at earlier times, each with what was known then.

    history ──► round at origin 1 ──► state ──► round at origin 2 ──► … ──► windows with what came

The rounds are those of the process (``forecasting.round``) with its state carried over; what lies
behind an origin is out of its reach, whatever it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from forecasting.backtest.plan import BacktestPlan, targets_of
from forecasting.backtest.references import day_change, day_maxima, last_value, seasonal_naive
from forecasting.backtest.window import DECILES, FAN_LEVELS, LEVELS, TierLoss, Window
from forecasting.forecast import FALLBACKS
from forecasting.forecast_status import has_figures, status_of
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import BIN_SECONDS, DAY_SECONDS, Floats, SeriesId, SeriesSource
from forecasting.tiers.records import HISTORY_DAYS
from wattpack.errors import InputError

LEAST_OBSERVED: Final = 0.5
"""Share of a window that must be known before its peak says anything, as in the process."""


class PastOnly:
    """A history of which nothing after ``now_seconds`` can be read.

    Args:
        source: The whole.

    Attributes:
        now_seconds: Moved on by whoever owns it.
    """

    def __init__(self, source: SeriesSource) -> None:
        self._source = source
        self.now_seconds = 0

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """As ``SeriesSource``.

        Raises:
            InputError: for a range that ends later than now.
        """
        if end_seconds > self.now_seconds:
            raise InputError("endSeconds", f"at most {self.now_seconds}", end_seconds)
        return self._source.fetch(series, start_seconds, end_seconds, step_seconds)


def rolling(
    plan: BacktestPlan, source: SeriesSource, state: ForecasterState, done: int = 0
) -> Iterator[tuple[ForecasterState, list[Window]]]:
    """The state after each origin and the origin's windows, oldest first.

    Args:
        plan: What to go through.
        source: The history.
        state: Of a forecaster that has learned nothing, or as it was after ``done`` origins.
        done: Origins that are not gone through again.

    Raises:
        WattpackError: when the history cannot be read at all.
    """
    past, targets = PastOnly(source), targets_of(plan)
    for origin in plan.origins[done:]:
        past.now_seconds = origin
        state, answers = step(state, float(origin), past, targets)
        yield state, _windows(plan, origin, source, answers)


def _windows(
    plan: BacktestPlan, origin: int, source: SeriesSource, answers: Sequence[TargetForecast]
) -> list[Window]:
    """What each answer was worth."""
    names = [answer.target.series for answer in answers]
    day_bins = DAY_SECONDS // plan.step_seconds
    start = max(0, origin - HISTORY_DAYS * DAY_SECONDS)
    before = _known(source.fetch(names, start, origin, plan.step_seconds))
    end = origin + plan.horizon * plan.step_seconds
    came = _known(source.fetch(names, origin, end, plan.step_seconds))
    naive = (
        seasonal_naive(before, plan.horizon, DECILES, day_bins),
        last_value(before, plan.horizon, DECILES),
    )
    maxima, scales = day_maxima(before, day_bins), day_change(before, day_bins)
    windows = []
    for i, answer in enumerate(answers):
        steps = _steps(answer)
        models = (None if steps is None else steps[:, : len(DECILES)], *(n[i] for n in naive))
        observed = np.isfinite(came[i])
        windows.append(
            Window(
                series=str(answer.target.series),
                origin_seconds=origin,
                method=_method(answer, origin),
                peaks=() if steps is None else _peaks(answer),
                peak=_peak(came[i]),
                maxima=tuple(map(_number, maxima[i])),
                scale=_number(scales[i]),
                bins=int(observed.sum()),
                total=float(np.sum(came[i][observed])),
                losses=tuple(quantile_loss(m, came[i]) for m in models),
                below=() if steps is None else _below(steps, came[i]),
                fan=() if steps is None else _fan(steps),
                tiers=_tiers(answer, came[i]),
            )
        )
    return windows


def quantile_loss(quantiles: Floats | None, came: Floats) -> float | None:
    """Sum over observed bins of 2·max(τe, (τ−1)e), mean over the deciles; None without answer.

    Args:
        quantiles: Shape (horizon, 9).
        came: Shape (horizon,), NaN for gaps.
    """
    known = np.isfinite(came)
    if quantiles is None or not np.isfinite(quantiles[known]).all():
        return None
    levels = np.array(DECILES)
    error = came[known, None] - quantiles[known]
    return float(np.mean(2 * np.maximum(levels * error, (levels - 1) * error), axis=1).sum())


def _tiers(answer: TargetForecast, came: Floats) -> tuple[TierLoss, ...]:
    """What each model said by itself, in the order of the process."""
    made, row = answer.made, answer.row
    if made is None or made.by_tier is None or made.methods[row] in FALLBACKS:
        return ()
    said = made.by_tier[:, row][..., _places(answer)[: len(DECILES)]].astype(np.float64)
    return tuple(
        TierLoss(tier.model.split("/")[0], round(float(weight), 4), quantile_loss(steps, came))
        for tier, weight, steps in zip(made.tiers, made.weights[row], said, strict=True)
    )


def _steps(answer: TargetForecast) -> Floats | None:
    """Published steps at ``LEVELS``, shape (horizon, 11); None without figures."""
    if answer.made is None or not has_figures(answer):
        return None
    steps: Floats = answer.made.quantiles[answer.row][:, _places(answer)]
    return steps


def _peaks(answer: TargetForecast) -> tuple[float, ...]:
    return tuple(_rounded(answer.peaks[place]) for place in _places(answer))


def _places(answer: TargetForecast) -> list[int]:
    known = answer.target.levels
    return [min(range(len(known)), key=lambda i: abs(known[i] - level)) for level in LEVELS]


def _below(steps: Floats, came: Floats) -> tuple[float, ...]:
    """Ties count half up to the median: zeros that were forecast to the digit would lift it."""
    known = np.isfinite(came)
    at_most = (came[known, None] <= steps[known]).sum(axis=0)
    less = (came[known, None] < steps[known]).sum(axis=0)
    halved = np.where(np.array(LEVELS) <= 0.5, (at_most + less) / 2, at_most)
    return tuple(float(count) for count in halved)


def _fan(steps: Floats) -> tuple[tuple[float, ...], ...]:
    chosen = steps[:, [LEVELS.index(level) for level in FAN_LEVELS]]
    return tuple(tuple(_rounded(value) for value in path) for path in chosen.T)


def _method(answer: TargetForecast, now_seconds: float) -> str:
    if answer.error is not None:
        return f"refused: {answer.error}"[:200]
    return str(status_of(answer, now_seconds).get("method", ""))


def _known(values: Floats) -> Floats:
    """Readings that can be: infinite and negative ones are gaps, as in the process."""
    return np.where(np.isfinite(values) & (values >= 0), values, np.nan)


def _peak(came: Floats) -> float | None:
    known = np.isfinite(came)
    return float(np.max(came[known])) if known.mean() >= LEAST_OBSERVED else None


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _rounded(value: float) -> float:
    """Six digits, as in a status."""
    return float(f"{value:.6g}")
