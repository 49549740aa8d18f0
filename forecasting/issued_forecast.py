"""One DemandForecast as the API gives it, read with suspicion.

Read tolerantly: fields that this version does not know are ignored. What the object says about
itself is judged here, once; what depends on the question (time, limit, measured draw) is judged by
``forecasting.forecast_book``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from forecasting.issued_account import IssuedAccount, read_account
from forecasting.peak_quantiles import NAMED_LEVELS, PeakQuantiles
from wattpack.api.demand_forecast import (
    DEFAULT_HORIZON_SECONDS,
    DEFAULT_STEP_SECONDS,
    MAX_FORECAST_STEPS,
)
from wattpack.api.forecast_subject import WATT_UNITS
from wattpack.errors import InputError
from wattpack.times import LAST_TIME_SECONDS, parse_rfc3339
from wattpack.units import require_number

DEFAULT_VALIDITY_SECONDS: Final = 1800.0
"""Validity of a status that states none: one bin of ten minutes and two missed rounds."""

MAX_LEVELS: Final = 21

HISTORY_UNAVAILABLE: Final = "HistoryUnavailable"
"""Reason of an object that is not ready because its history could not be read this round."""


class ForecastKey(NamedTuple):
    """Which object: names alone repeat between namespaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ForecastPath:
    """One level over the window.

    Attributes:
        level: In (0, 1).
        values: One a step, in the unit of the series.
    """

    level: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class IssuedLead:
    """What is needed before a replica that is ordered now works.

    Attributes:
        workload: Of what runs there, what takes longest to start.
        seconds: Within which a new replica of it works, 19 times in 20.
        p99: Highest step within it, level 0.99; None if the window ends sooner.
    """

    workload: str
    seconds: float
    p99: float | None


@dataclass(frozen=True, slots=True)
class IssuedForecast:
    """A forecast that is sound in itself. Times are Unix seconds, values in the series' unit.

    Attributes:
        key: Namespace and name.
        domain: PowerDomain that it speaks of; empty for a workload or a plain series.
        issued_seconds: When it was made.
        data_until_seconds: End of the newest observation behind it.
        valid_until_seconds: When it says itself that it is too old.
        window_start_seconds: Start of the first step.
        window_end_seconds: End of the last step.
        now_value: Newest observation, None if it has none.
        p50: Median of the window's peak.
        p95: 0.95 quantile of the window's peak.
        p99: 0.99 quantile of the window's peak.
        method: What made it.
        is_fallback: The forecaster itself fell back.
        step_seconds: Width of a step.
        paths: Ascending by level.
        running: Peak of what runs now, without work that may start on free boards; None where the
            peak above knows of no free boards.
        request_tokens: Mean length of a request; None where nobody told.
        lead: None where nobody said what runs there. Nothing is decided by it.
        account: How it did so far and what it was made of. Nothing is decided by it.
    """

    key: ForecastKey
    domain: str
    issued_seconds: float
    data_until_seconds: float
    valid_until_seconds: float
    window_start_seconds: float
    window_end_seconds: float
    now_value: float | None
    p50: float
    p95: float
    p99: float
    method: str
    is_fallback: bool
    step_seconds: int
    paths: tuple[ForecastPath, ...]
    running: PeakQuantiles | None = None
    request_tokens: float | None = None
    lead: IssuedLead | None = None
    account: IssuedAccount = field(default_factory=IssuedAccount)


@dataclass(frozen=True, slots=True)
class UnfitForecast:
    """A forecast that no question may be answered with, and why."""

    key: ForecastKey
    domain: str
    reason: str


def read_forecast(body: Mapping[str, Any]) -> IssuedForecast | UnfitForecast:
    """What the object says, or why it cannot be used; never an error, whatever the object holds."""
    metadata = _mapping(body.get("metadata"))
    key = ForecastKey(str(metadata.get("namespace", "")), str(metadata.get("name", "")))
    spec = _mapping(body.get("spec"))
    target = _mapping(spec.get("target"))
    named = target.get("powerDomain")
    domain = named if isinstance(named, str) else ""
    try:
        return _issued(key, domain, metadata, spec, _mapping(body.get("status")))
    except InputError as error:
        return UnfitForecast(key, domain, f"{error.field}: expected {error.expected}")


def _issued(
    key: ForecastKey,
    domain: str,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
) -> IssuedForecast:
    """The sound forecast.

    Raises:
        InputError: naming the first field that rules it out.
    """
    _require_standing(domain, metadata, spec, status)
    p50, p95, p99 = (_positive(status, level) for level in NAMED_LEVELS)
    if not p50 <= p95 <= p99:
        raise InputError("status.p99", f"p50 <= p95 <= p99, not {p50:g}, {p95:g}, {p99:g}")
    issued, data_until = _time(status, "issuedAt"), _time(status, "dataUntil")
    start = _time(status, "windowStart") if "windowStart" in status else data_until
    horizon = _seconds(spec, "horizonSeconds", DEFAULT_HORIZON_SECONDS)
    step = _seconds(spec, "stepSeconds", DEFAULT_STEP_SECONDS)
    stated = (
        _time(status, "validUntil")
        if "validUntil" in status
        else data_until + DEFAULT_VALIDITY_SECONDS
    )
    now_value = status.get("now")
    return IssuedForecast(
        key=key,
        domain=domain,
        issued_seconds=issued,
        data_until_seconds=data_until,
        valid_until_seconds=stated,
        window_start_seconds=start,
        window_end_seconds=start + horizon,
        now_value=None if now_value is None else require_number("status.now", now_value, minimum=0),
        p50=p50,
        p95=p95,
        p99=p99,
        method=str(status.get("method") or "unnamed")[:64],
        is_fallback=status.get("fallback") is not False,
        step_seconds=step,
        paths=_paths(status.get("quantiles", ())),
        running=_running(status.get("running"), PeakQuantiles(p50, p95, p99)),
        request_tokens=_request_tokens(_mapping(status.get("tokens"))),
        lead=_lead(_mapping(status.get("lead"))),
        account=read_account(status),
    )


def _require_standing(
    domain: str,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
) -> None:
    """The object is alive, speaks of its newest spec in watts, and calls itself ready.

    One whose history is away for a round keeps its figures until they are too old.
    """
    if metadata.get("deletionTimestamp"):
        raise InputError("metadata.deletionTimestamp", "an object that is not being deleted")
    unit = _mapping(spec.get("target")).get("unit", WATT_UNITS[0])
    if domain and unit not in WATT_UNITS:
        raise InputError("spec.target.unit", f"{WATT_UNITS[0]} for a powerDomain, not {unit!r:.40}")
    if not status:
        raise InputError("status", "a first forecast; there is none yet")
    conditions = [_mapping(condition) for condition in _list(status.get("conditions"))]
    ready = next((c for c in conditions if c.get("type") == "Ready"), _mapping(None))
    if ready.get("status") != "True" and ready.get("reason") != HISTORY_UNAVAILABLE:
        why = " ".join(str(ready.get(part, "")) for part in ("reason", "message")).strip()
        raise InputError("status.conditions", f"Ready=True; it says: {why or 'nothing':.200}")
    spoken, wanted = status.get("observedGeneration", 0), metadata.get("generation", 0)
    if isinstance(spoken, int) and isinstance(wanted, int) and spoken < wanted:
        raise InputError(
            "status.observedGeneration", f"a status of the newest spec, {wanted}, not of {spoken}"
        )


def _paths(given: object) -> tuple[ForecastPath, ...]:
    """The step quantiles: finite, never negative, of one length, rising with the level."""
    paths = []
    for entry in _list(given)[: MAX_LEVELS + 1]:
        level = require_number(
            "status.quantiles.level", _mapping(entry).get("level"), minimum=0, maximum=1
        )
        values = tuple(
            require_number("status.quantiles.values", value, minimum=0)
            for value in _list(_mapping(entry).get("values"))[: MAX_FORECAST_STEPS + 1]
        )
        paths.append(ForecastPath(level, values))
    if len(paths) > MAX_LEVELS or any(len(path.values) > MAX_FORECAST_STEPS for path in paths):
        raise InputError(
            "status.quantiles", f"at most {MAX_LEVELS} paths of {MAX_FORECAST_STEPS} steps"
        )
    for low, high in pairwise(paths):
        fits = low.level < high.level and len(low.values) == len(high.values)
        if not fits or any(a > b for a, b in zip(low.values, high.values, strict=True)):
            raise InputError("status.quantiles", "equally long paths that rise with the level")
    return tuple(paths)


def _running(given: object, whole: PeakQuantiles) -> PeakQuantiles | None:
    """The peak of what runs, never above the whole; the whole stands in for one without sense."""
    if given is None:
        return None
    try:
        made = PeakQuantiles(
            *(_positive(_mapping(given), level, "status.running") for level in NAMED_LEVELS)
        )
    except InputError:
        return None
    if not made.p50 <= made.p95 <= made.p99:
        return None
    return PeakQuantiles(*(min(own, most) for own, most in zip(made, whole, strict=True)))


def _request_tokens(given: Mapping[str, Any]) -> float | None:
    """The mean length; one that makes no sense is left out, the forecast stands without it."""
    try:
        return require_number("status.tokens.mean", given.get("mean"), exclusive_minimum=0)
    except InputError:
        return None


def _lead(given: Mapping[str, Any]) -> IssuedLead | None:
    """The lead time; one that makes no sense is left out, the forecast stands without it."""
    workload, needed = given.get("workload"), given.get("p99")
    if not isinstance(workload, str) or not workload:
        return None
    try:
        seconds = require_number("status.lead.seconds", given.get("seconds"), minimum=0)
        p99 = None if needed is None else require_number("status.lead.p99", needed, minimum=0)
    except InputError:
        return None
    return IssuedLead(workload[:253], seconds, p99)


def _positive(status: Mapping[str, Any], name: str, of: str = "status") -> float:
    return require_number(f"{of}.{name}", status.get(name), exclusive_minimum=0)


def _seconds(spec: Mapping[str, Any], name: str, default: int) -> int:
    return int(
        require_number(f"spec.{name}", spec.get(name, default), minimum=1, maximum=7 * 86400)
    )


def _time(status: Mapping[str, Any], name: str) -> float:
    """A time of the status, Unix seconds."""
    text = status.get(name)
    try:
        seconds = parse_rfc3339(text if isinstance(text, str) else "").timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(f"status.{name}", "an RFC 3339 time", text) from error
    return require_number(f"status.{name}", seconds, minimum=0, maximum=LAST_TIME_SECONDS)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()
