"""The status of a DemandForecast object as the forecaster writes it."""

from __future__ import annotations

import math
from typing import Any

from forecasting.forecast_choice import FALLBACKS, level_index
from forecasting.forecast_round import TargetForecast
from wattpack.api.object_meta import Condition, ConditionStatus
from wattpack.api.planning import DemandForecastStatus, QuantilePath
from wattpack.api.times import rfc3339
from wattpack.units import seconds_to_ns


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
