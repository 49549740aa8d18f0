"""The status of a DemandForecast object as the forecaster writes it."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from forecasting.binomial import share_at_most
from forecasting.calibration.promise_record import PromiseRecord, Tally
from forecasting.forecast import (
    FALLBACKS,
    LAST_DAY,
    LIMIT,
    LIMIT_VERSION,
    Forecast,
    level_index,
)
from forecasting.issued_account import IssuedAccount
from forecasting.lead_time import StepWindow, needed_within
from forecasting.peak_quantiles import NAMED_LEVELS, STATUS_LEVELS
from forecasting.round.target_forecast import TargetForecast
from forecasting.start_leads import Lead
from forecasting.targets import Target
from forecasting.tiers.last_day import LastDayMaximum
from wattpack.api.demand_forecast import (
    MAX_FORECAST_TIERS,
    DemandForecastStatus,
    ForecastCalibration,
    ForecastLead,
    ForecastRunning,
    ForecastTier,
    QuantilePath,
)
from wattpack.api.object_meta import Condition, ConditionStatus
from wattpack.errors import WattpackError
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

MISSED_ROUNDS: Final = 2
"""Rounds that the forecaster may miss before its last answer is too old: half an hour in all, with
bins and rounds of ten minutes."""

LONGEST_MESSAGE: Final = 4000
LONGEST_VERSION: Final = 128
MOST_FLAGS: Final = 16


def status_of(
    answer: TargetForecast,
    now_seconds: float,
    interval_seconds: float = 600.0,
    lead: ForecastLead | None = None,
) -> dict[str, Any]:
    """The status as the API takes it (camelCase, no NaN); figures only where there are any.

    Args:
        answer: From ``forecasting.round.forecast_round.step``.
        now_seconds: When it was made, Unix time.
        interval_seconds: Until the next round.
        lead: From ``needed_in_lead``, if it is known what runs there.
    """
    target, made = answer.target, answer.made
    if made is None:
        refusal = answer.error or WattpackError("no answer")
        return DemandForecastStatus(
            observed_generation=target.generation,
            conditions=conditions(target.generation, "SeriesRefused", str(refusal), accepted=False),
        ).to_json()
    method, until = made.methods[answer.row], float(made.observed_until_seconds[answer.row])
    window_end = made.data_until_seconds + target.horizon * target.step_seconds
    valid_until = min(until + target.step_seconds + MISSED_ROUNDS * interval_seconds, window_end)
    newest = float(made.now[answer.row])
    record = answer.record
    reason, message = _verdict(answer, made, now_seconds, valid_until)
    figures = _figures(answer, made) if has_figures(answer) else {}
    return DemandForecastStatus(
        observed_generation=target.generation,
        issued_at=_time(now_seconds),
        data_until=_time(until) if math.isfinite(newest) else None,
        valid_until=_time(valid_until) if figures else None,
        window_start=_time(made.data_until_seconds) if figures else None,
        method=method,
        fallback=method in FALLBACKS,
        now=_rounded(newest) if math.isfinite(newest) else None,
        lead=lead,
        coverage_p99=record.coverage()[0],
        coverage_n=record.total.windows,
        violations=record.total.violations[0],
        violation_bound95=_bound95(record.total),
        live_windows=record.live.windows,
        live_violations=record.live.violations[0],
        live_violation_bound95=_bound95(record.live),
        reserve_ratio=_ratio(record.total.reserve_ratios()[0]),
        live_reserve_ratio=_ratio(record.live.reserve_ratios()[0]),
        flags=list(answer.flags)[:MOST_FLAGS],
        conditions=conditions(target.generation, reason, message),
        **figures,
        **(_behind(answer, made) if figures else {}),
    ).to_json()


def _bound95(tally: Tally) -> float | None:
    """Upper 95 % bound of the share of windows above the p99; None without a window."""
    return share_at_most(tally.violations[0], tally.windows) if tally.windows else None


def needed_in_lead(
    answer: TargetForecast, lead: Lead | None, now_seconds: float
) -> ForecastLead | None:
    """What may be needed before a replica that is ordered now works; None where nobody knows.

    Without figures, or with a window that ends sooner, it has the lead time alone.
    """
    made = answer.made
    if lead is None or made is None:
        return None
    needed: dict[str, float] = {}
    window = StepWindow(made.data_until_seconds, answer.target.step_seconds)
    reach = made.data_until_seconds + answer.target.horizon * answer.target.step_seconds
    if has_figures(answer) and now_seconds + lead.seconds <= reach:
        for name, level in NAMED_LEVELS.items():
            path = made.quantiles[answer.row, :, level_index(made.levels, level)].tolist()
            needed[name] = _rounded(needed_within(window, path, now_seconds, lead.seconds))
    return ForecastLead(
        workload=lead.workload, seconds=round(lead.seconds, 1), kinds=lead.kinds, **needed
    )


def has_figures(answer: TargetForecast) -> bool:
    """Whether anything is known: no history and no ceiling give no figure, and above all no 0."""
    made = answer.made
    if made is None:
        return False
    return made.methods[answer.row] != LIMIT or answer.target.ceiling is not None


def conditions(
    generation: int, reason: str, message: str, *, accepted: bool = True
) -> list[Condition]:
    """Accepted and Ready; the process fills in the times of their last change.

    Args:
        generation: That was judged.
        reason: ``Forecast`` and ``Fallback`` are ready, everything else is not.
        message: Why, never empty.
        accepted: Whether the spec can be forecast at all.
    """
    ready = accepted and reason in ("Forecast", "Fallback")
    return [
        Condition(
            type=type_, status=ConditionStatus.TRUE if holds else ConditionStatus.FALSE,
            reason=why, message=words[:LONGEST_MESSAGE], observed_generation=generation,
        )
        for type_, holds, why, words in (
            ("Accepted", accepted, "Valid" if accepted else reason,
             "the spec can be forecast" if accepted else message or reason),
            ("Ready", ready, reason, message or reason),
        )
    ]  # fmt: skip


def _verdict(
    answer: TargetForecast, made: Forecast, now_seconds: float, valid_until: float
) -> tuple[str, str]:
    """Reason and message of the Ready condition."""
    method, record, target = made.methods[answer.row], answer.record, answer.target
    if method == LIMIT:
        return "NoHistory", _without_history(target, math.isfinite(made.now[answer.row]))
    if valid_until <= now_seconds:
        newest = _time(float(made.observed_until_seconds[answer.row]))
        return "HistoryStale", f"the newest observation ends at {newest}"
    if target.kind == "domain" and answer.peaks[-1] <= 0:
        return "NoPower", "a domain that never draws anything is not measured"
    message = f"{method}; p99: {_account(record).kept()}"
    message += f"; {', '.join(answer.flags)}" if answer.flags else ""
    now = float(made.now[answer.row])
    if target.ceiling is not None and now > target.ceiling:
        message += f"; all is cut at {_ceiling(target)}, below the newest value, {now:g}"
    elif target.ceiling is not None:
        message += f"; at most {_ceiling(target)}"
    return "Fallback" if method in FALLBACKS else "Forecast", message


def _account(record: PromiseRecord) -> IssuedAccount:
    """The counts of the p99's windows."""
    return IssuedAccount(
        windows=record.total.windows,
        violations=record.total.violations[0],
        live_windows=record.live.windows,
        live_violations=record.live.violations[0],
    )


def _without_history(target: Target, has_values: bool) -> str:
    found = "less than a day of values" if has_values else "no value in ten days"
    told = _ceiling(target)
    bound = f"no {told}: nothing can be said" if target.ceiling is None else f"{told} stands in"
    return f"{found} of {target.series[:200]!r}, {bound}"


def _ceiling(target: Target) -> str:
    """The ceiling as whoever asked calls it; what is asked by a command is no object."""
    named = target.ceiling_name or ("spec.ceilingWatts" if target.namespace else "--ceiling")
    return named if target.ceiling is None else f"{named} of {target.ceiling:g}"


def _figures(answer: TargetForecast, made: Forecast) -> dict[str, Any]:
    """Peaks and paths."""
    peak = {level: _rounded(answer.peaks[level_index(made.levels, level)]) for level in made.levels}
    paths = [
        QuantilePath(
            level=level,
            values=[
                _rounded(v) for v in made.quantiles[answer.row, :, level_index(made.levels, level)]
            ],
        )
        for level in answer.target.asked_levels
    ]
    whole = {name: peak[level] for name, level in NAMED_LEVELS.items()}
    return {**whole, "quantiles": paths, "running": _running(answer, made)}


def _running(answer: TargetForecast, made: Forecast) -> ForecastRunning | None:
    """Peaks of what runs now, rising; None where nobody knows the boards."""
    if made.running is None:
        return None
    places = [level_index(made.levels, level) for level in STATUS_LEVELS]
    found = np.maximum.accumulate(made.running[answer.row, places])
    if not np.isfinite(found).all():
        return None
    p50, p95, p99 = map(_rounded, found.tolist())
    return ForecastRunning(p50=p50, p95=p95, p99=p99)


def _behind(answer: TargetForecast, made: Forecast) -> dict[str, Any]:
    """Version, end of the data behind it, and how it was corrected; of models their weights, too.

    The last day's maximum is corrected as its pool is, by errors that are looked up anew each
    round. A limit rests on no data, and nothing corrects it.
    """
    method = made.methods[answer.row]
    if method == LIMIT:
        return {"model_version": LIMIT_VERSION, "calibration": ForecastCalibration()}
    if method == LAST_DAY:
        return {
            "model_version": LastDayMaximum.model,
            "fitted_until": _time(float(made.observed_until_seconds[answer.row])),
            "calibration": _calibration(answer, made),
        }
    weighed = sorted(
        zip(made.weights[answer.row].tolist(), made.tiers, strict=True),
        key=lambda pair: (-pair[0], pair[1].model),
    )
    used = [(weight, tier) for weight, tier in weighed if weight > 0][:MAX_FORECAST_TIERS]
    return {
        "tiers": [
            ForecastTier(name=tier.model.split("/")[0], weight=round(weight, 3))
            for weight, tier in used
        ],
        "model_version": "+".join(tier.model for _, tier in used)[:LONGEST_VERSION],
        "fitted_until": _time(min(tier.fitted_until_seconds for _, tier in used)),
        "calibration": _calibration(answer, made),
    }


def _calibration(answer: TargetForecast, made: Forecast) -> ForecastCalibration:
    """What corrected the peak."""
    until = int(made.calibrated_until_seconds[answer.row])
    return ForecastCalibration(
        live_windows=answer.pool_live_windows,
        rehearsed_windows=answer.pool_rehearsed_windows,
        offset_p99=_rounded(float(made.peak_shifts[answer.row])),
        updated_at=_time(until) if until else None,
    )


def _ratio(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _time(seconds: float) -> str:
    return rfc3339(seconds_to_ns(seconds))


def _rounded(value: float) -> float:
    """Six significant digits are more than any forecast has."""
    return float(f"{value:.6g}")
