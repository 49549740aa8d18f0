"""The status of a DemandForecast object: writing it, and reading it with suspicion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forecasting.fallback import ASSUMED_OFFSET
from forecasting.forecast_choice import FALLBACKS, level_index
from forecasting.forecast_round import TargetForecast
from wattpack.api.object_meta import Condition, ConditionStatus
from wattpack.api.planning import DemandForecastStatus, QuantilePath
from wattpack.api.times import parse_rfc3339, rfc3339
from wattpack.units import require_number, seconds_to_ns

MAX_AGE_SECONDS: Final = 1800.0
"""Three rounds of the forecaster: older statuses are not used."""


def status_of(answer: TargetForecast, now_seconds: float) -> dict[str, Any]:
    """The status as the API takes it (camelCase, no NaN).

    Args:
        answer: From ``forecasting.forecast_round.step``.
        now_seconds: When it was made, Unix time.
    """
    target, made = answer.target, answer.made
    if made is None:
        condition = _ready(target.generation, False, "SeriesRefused", str(answer.error))
        return DemandForecastStatus(
            observed_generation=target.generation, conditions=[condition]
        ).to_json()
    method, flags = made.methods[answer.row], made.flags[answer.row]
    paths = [
        QuantilePath(
            level=level,
            values=[
                _rounded(v) for v in made.quantiles[answer.row, :, level_index(made.levels, level)]
            ],
        )
        for level in target.asked_levels
    ]
    peak = {level: _rounded(answer.peaks[level_index(made.levels, level)]) for level in made.levels}
    newest = float(made.now[answer.row])
    record = answer.record
    reason = {"last-24h-max": "Fallback", "limit": "NoHistory"}.get(method, "Forecast")
    message = f"{method}; coverage of p99 {record.windows - record.violations}/{record.windows}"
    message += f"; {', '.join(flags)}" if flags else ""
    return DemandForecastStatus(
        observed_generation=target.generation,
        issued_at=rfc3339(seconds_to_ns(now_seconds)),
        data_until=rfc3339(seconds_to_ns(made.data_until_seconds)),
        method=method,
        fallback=method in FALLBACKS,
        now=_rounded(newest) if math.isfinite(newest) else None,
        p50=peak[0.5],
        p95=peak[0.95],
        p99=peak[0.99],
        quantiles=paths,
        coverage_p99=1 - record.violations / record.windows if record.windows else None,
        coverage_n=record.windows,
        violations=record.violations,
        conditions=[_ready(target.generation, method != "limit", reason, message)],
    ).to_json()


def _ready(generation: int, ready: bool, reason: str, message: str) -> Condition:
    """The Ready condition; the process fills in the time of the last change."""
    status = ConditionStatus.TRUE if ready else ConditionStatus.FALSE
    return Condition(
        type="Ready", status=status, reason=reason, message=message[:4000],
        observed_generation=generation,
    )  # fmt: skip


def _rounded(value: float) -> float:
    """Six significant digits are more than any forecast has."""
    return float(f"{value:.6g}")


@dataclass(frozen=True, slots=True)
class UsableForecast:
    """What a decision may rest on.

    Attributes:
        p50: Median of the peak of the coming window.
        p99: 0.99 quantile of that peak.
        method: ``ridge``, ``last-value``, ``last-24h-max`` or ``limit``.
        is_fallback: Whether anything but a fresh model forecast stands behind it.
        reason: Why, in words for a log or an event.
        age_seconds: Age of the data behind it; infinite without a status.
    """

    p50: float
    p99: float
    method: str
    is_fallback: bool
    reason: str
    age_seconds: float


def usable_forecast(
    status: Mapping[str, Any] | None,
    now_seconds: float,
    *,
    limit: float,
    last_day_maximum: float | None = None,
    max_age_seconds: float = MAX_AGE_SECONDS,
) -> UsableForecast:
    """The forecast if it is fresh and sound, else the fallback, and which of them it is.

    Args:
        status: A DemandForecast's status as the API gives it, or None.
        now_seconds: Unix time.
        limit: What the series cannot exceed (rating, sum of limits); bounds every answer.
        last_day_maximum: Highest value that the caller saw in the last 24 h, if it knows one.
        max_age_seconds: Oldest data to accept.
    """
    require_number("limit", limit, minimum=0)
    if status:
        try:
            # The paths are long and not needed: parsing them would cost a controller's tick.
            short = {key: value for key, value in status.items() if key != "quantiles"}
            parsed = DemandForecastStatus.model_validate(short, extra="ignore")
            until = parse_rfc3339(parsed.data_until or "").timestamp()
        except ValueError as error:
            why, age = f"unreadable status ({str(error).splitlines()[0]})", math.inf
        else:
            age = max(0.0, now_seconds - until)
            why = _unfit(parsed, age, until - now_seconds, max_age_seconds)
            if not why and parsed.p50 is not None and parsed.p99 is not None:
                method = parsed.method or "ridge"
                simple = bool(parsed.fallback) or method in FALLBACKS
                return UsableForecast(
                    min(parsed.p50, limit), min(parsed.p99, limit), method, simple,
                    f"the forecaster fell back to {method}" if simple else "fresh forecast", age,
                )  # fmt: skip
    else:
        why, age = "no forecast", math.inf
    if last_day_maximum is not None:
        seen = require_number("lastDayMaximum", last_day_maximum, minimum=0)
        return UsableForecast(
            min(seen, limit), min(seen * (1 + ASSUMED_OFFSET), limit), "last-24h-max", True,
            f"{why}: last-24 h maximum plus {ASSUMED_OFFSET:.0%}", age,
        )  # fmt: skip
    return UsableForecast(limit, limit, "limit", True, f"{why} and no history: the limit", age)


def _unfit(status: DemandForecastStatus, age: float, ahead: float, max_age: float) -> str:
    """Why a readable status cannot be used; empty if it can."""
    if status.p50 is None or status.p99 is None:
        return "a status without p50 and p99"
    if not 0 <= status.p50 <= status.p99:
        return f"quantiles out of order ({status.p50:g}, {status.p99:g})"
    if ahead > 60:
        return f"a status from the future ({ahead:.0f} s)"
    if age > max_age:
        return f"the forecast's data is {age:.0f} s old"
    return ""
