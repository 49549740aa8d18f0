"""DemandForecasts of services as the console shows them: a row each, the worst first, and a fan.

Of PowerDomains the live view tells (``console.frames``): there measured draw judges a forecast.
Whatever the API server holds gives a row; what cannot be read is said in that row. Times are Unix
seconds, values in the unit of the forecast's series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from forecasting.issued_account import IssuedAccount, read_account
from forecasting.issued_forecast import HISTORY_UNAVAILABLE
from forecasting.passed_peaks import ABOVE_P99
from wattpack.api.conditions import find_condition
from wattpack.api.demand_forecast import DemandForecast
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.times import parse_rfc3339

__all__ = [
    "SHOWN_FORECASTS", "STATES", "ServiceForecast", "forecasts_view", "misses_too_often",
    "read_service_forecast", "steps_of",
]  # fmt: skip

#: Forecasts that are listed; the others are counted.
SHOWN_FORECASTS = 50

STATES = (
    "NotReady", "Expired", "Contradicted", "Missed", "Kept", "Fallback", "Flagged", "Forecast",
)  # fmt: skip
"""What is wrong with a forecast, the worst first; ``docs/console.md`` tells each."""

ALLOWED_SHARE = 2 * 0.01
"""Of windows above a p99: twice what it may, as the alert ForecastBudgetBurns has it."""

LUCK = 1.645
"""Standard deviations of a count of misses that are luck: 0.95 quantile of a normal, of the same
alert."""

LEAST_COVERAGE, JUDGED_WINDOWS = 0.95, 20
"""Of the alert ForecastCoverageLow."""


@dataclass(frozen=True, slots=True)
class ServiceForecast:
    """One row of the list.

    Attributes:
        name: Namespace and name of the object.
        subject: What is forecast: the workload, else the series.
        unit: Of all values.
        state: One of ``STATES``.
        why: The state in words; empty where it is in use and nothing is to be said.
        now: Newest value; None where none is known.
        p50: Median of the coming window's peak.
        p95: 0.95 quantile of it.
        p99: 0.99 quantile of it.
        method: Models of weight, or the fall-back.
        issued_seconds: When it was made.
        data_until_seconds: End of the newest observation.
        valid_until_seconds: Nothing may rest on it after this.
        account: How it did so far, and what it was made of.
        lead: Of a new replica; as the status has it, so are the two below.
        tokens: Of the requests.
        replicas: To have now.
    """

    name: str
    subject: str = ""
    unit: str = ""
    state: str = "NotReady"
    why: str = ""
    now: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    method: str = ""
    issued_seconds: float | None = None
    data_until_seconds: float | None = None
    valid_until_seconds: float | None = None
    account: IssuedAccount = field(default_factory=IssuedAccount)
    lead: JsonObject | None = None
    tokens: JsonObject | None = None
    replicas: JsonObject | None = None

    @property
    def namespace(self) -> str:
        """Of the object."""
        return self.name.partition("/")[0]

    def at(self, now_seconds: float) -> ServiceForecast:
        """The same at a time: it may be too old by then, which rules over all but not ready."""
        until = self.valid_until_seconds
        if self.state == "NotReady" or until is None or now_seconds <= until:
            return self
        return replace(self, state="Expired", why="no newer forecast came in time")


def forecasts_view(rows: Iterable[ServiceForecast], now_seconds: float) -> dict[str, object]:
    """What the page shows: the worst first, at most ``SHOWN_FORECASTS``, the others counted."""
    aged = sorted((row.at(now_seconds) for row in rows), key=_worst_first)
    return {
        "forecasts": [asdict(row) for row in aged[:SHOWN_FORECASTS]],
        "more": max(0, len(aged) - SHOWN_FORECASTS),
        "states": {
            state: count
            for state in STATES
            if (count := sum(row.state == state for row in aged))
        },
    }  # fmt: skip


def _worst_first(row: ServiceForecast) -> tuple[int, float, str]:
    windows, missed = row.account.live_windows, row.account.live_violations
    share = (missed or 0) / windows if windows else 0.0
    return STATES.index(row.state), -share, row.name


def misses_too_often(windows: int | None, missed: int | None) -> bool:
    """Whether so many live windows above their p99 are too many, by the alerts' rules.

    Args:
        windows: Live ones that are over; None where nobody counts.
        missed: Of them, those above.
    """
    if not windows or missed is None:
        return False
    if missed - LUCK * math.sqrt(missed) > ALLOWED_SHARE * windows:
        return True
    return windows >= JUDGED_WINDOWS and 1.0 - missed / windows < LEAST_COVERAGE


def read_service_forecast(body: JsonObject) -> ServiceForecast | None:
    """The row of a DemandForecast; None for one of a PowerDomain. Never an error."""
    metadata, spec = body.get("metadata") or {}, body.get("spec")
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    target = spec.get("target") if isinstance(spec, dict) else None
    if isinstance(target, dict) and target.get("powerDomain") is not None:
        return None
    try:
        forecast = DemandForecast.read(body)
    except InputError as error:
        why = f"unreadable: {error.field}: expected {error.expected}"
        return ServiceForecast(name, why=why[:300])
    status, subject = forecast.status, forecast.spec.target
    row = ServiceForecast(
        name=name,
        subject=subject.workload or subject.series[:200],
        unit=subject.unit,
        now=status.now,
        p50=status.p50,
        p95=status.p95,
        p99=status.p99,
        method=status.method or "",
        issued_seconds=_seconds(status.issued_at),
        data_until_seconds=_seconds(status.data_until),
        valid_until_seconds=_seconds(status.valid_until),
        account=read_account(body.get("status") or {}),
        lead=status.lead.to_json() if status.lead else None,
        tokens=status.tokens.to_json() if status.tokens else None,
        replicas=status.replicas.to_json() if status.replicas else None,
    )
    return _judged(row, forecast)


def steps_of(body: JsonObject) -> dict[str, object]:
    """The fan of a forecast: quantiles of its steps by level; none where it has none."""
    try:
        forecast = DemandForecast.read(body)
    except InputError:
        return {"start_seconds": None, "step_seconds": None, "levels": [], "values": []}
    paths = sorted(forecast.status.quantiles, key=lambda path: path.level)
    return {
        "start_seconds": _seconds(forecast.status.window_start),
        "step_seconds": forecast.spec.step_seconds,
        "levels": [path.level for path in paths],
        "values": [path.values for path in paths],
    }


def _judged(row: ServiceForecast, forecast: DemandForecast) -> ServiceForecast:
    """With its state but for its age."""
    status, account = forecast.status, row.account
    ready = find_condition(status.conditions, "Ready")
    if ready is None:
        return replace(row, why="no forecaster has judged it yet")
    said = f"{ready.reason}: {ready.message}"[:1000]
    is_kept = ready.reason == HISTORY_UNAVAILABLE and row.p99 is not None
    if ready.status.value != "True" and not is_kept:
        return replace(row, why=said)
    if status.observed_generation != forecast.generation:
        return replace(row, why="the forecast is of an earlier spec")
    if ABOVE_P99 in account.flags or _above(row.now, row.p99):
        why = "the newest value had passed the p99 of what comes"
        return replace(row, state="Contradicted", why=why)
    if misses_too_often(account.live_windows, account.live_violations):
        why = f"{account.live_violations} of {account.live_windows} live windows passed their p99"
        return replace(row, state="Missed", why=why)
    if is_kept:
        return replace(row, state="Kept", why=said)
    if status.fallback is not False:
        return replace(row, state="Fallback", why=f"the forecaster fell back to {row.method}")
    return replace(row, state="Flagged" if account.flags else "Forecast")


def _above(value: float | None, p99: float | None) -> bool:
    return value is not None and p99 is not None and value > p99


def _seconds(stamp: str | None) -> float | None:
    try:
        return parse_rfc3339(stamp or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return None
