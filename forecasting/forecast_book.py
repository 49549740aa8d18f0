"""The forecasts that decisions may rest on, and what is used instead, with the reason.

``ForecastBook`` is a value and the only reader of DemandForecast objects: controller, planner and
(through the live view) the console ask it. It answers always: with the forecast while it can be
trusted, else with the highest draw of the last day plus an offset, else with the limit.

A PowerDomain belongs to the whole cluster, a DemandForecast to a namespace. Only forecasts of the
namespace that wattpack is installed in have authority over a domain; whoever may write there may
write domains' electricity anyway. If several speak of one domain the highest usable p99 counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from forecasting.contradiction import (
    WATCHED_MINUTES,
    Minute,
    contradicts,
    minutes_above,
)
from forecasting.forecast import ASSUMED_OFFSET, EXTREME
from forecasting.issued_forecast import (
    ForecastKey,
    IssuedForecast,
    UnfitForecast,
    read_forecast,
)
from forecasting.peak_quantiles import PeakQuantiles
from wattpack.times import rfc3339
from wattpack.units import require_number, seconds_to_ns

SKEW_SECONDS: Final = 60.0
"""How far another machine's clock may run ahead of ours."""

FORECAST_TRUSTED: Final = "ForecastTrusted"
"""Condition of a PowerDomain: the controller's verdict, which the planner follows."""

_ANY_LIMIT: Final = 1e15

COVERED_SECONDS: Final = 3600.0
"""What users ask about reaches this far ahead; a window that ends sooner does not answer it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a user asks of a domain's forecast.

    Attributes:
        now_seconds: Unix time.
        limit_watts: What the domain cannot exceed (its rating); bounds every answer.
        day_maximum_watts: Highest measured draw of the last day; None with less than a day.
        ahead_seconds: How far ahead the answer has to reach.
    """

    now_seconds: float
    limit_watts: float
    day_maximum_watts: float | None = None
    ahead_seconds: float = COVERED_SECONDS

    def __post_init__(self) -> None:
        require_number("limit_watts", self.limit_watts, minimum=0)
        if self.day_maximum_watts is not None:
            require_number("day_maximum_watts", self.day_maximum_watts, minimum=0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The answer.

    Attributes:
        p50_watts: Median of the coming window's peak.
        p95_watts: 0.95 quantile of it.
        p99_watts: 0.99 quantile of it.
        method: Of the forecaster, or ``last-24h-max`` or ``limit``.
        reason: Why this and nothing better, in words; never empty.
        state: ``Forecast``, ``Fallback`` (ours or the forecaster's), ``Contradicted`` or
            ``NoForecast``.
        source: The forecast behind it; None for a fall-back of our own.
    """

    p50_watts: float
    p95_watts: float
    p99_watts: float
    method: str
    reason: str
    state: str
    source: IssuedForecast | None = None

    @property
    def is_fallback(self) -> bool:
        """Whether anything but a trusted model forecast stands behind it."""
        return self.state != "Forecast"

    @property
    def peak(self) -> PeakQuantiles:
        """Of everything that may draw there, free boards at work included.

        Only a forecast tells what lies below its p99: a fall-back says the same at every risk.
        """
        told = PeakQuantiles(self.p50_watts, self.p95_watts, self.p99_watts)
        return told.certain() if self.is_fallback else told

    @property
    def running_peak(self) -> PeakQuantiles:
        """The same of what runs now, for whoever counts by itself what it starts."""
        if self.source is None or self.source.running is None:
            return self.peak
        running = self.source.running.cut(self.p99_watts)
        return running.certain() if self.is_fallback else running


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An issue that measured draw has contradicted, and how."""

    issued_seconds: float
    message: str


@dataclass(frozen=True, slots=True)
class ForecastBook:
    """All forecasts by namespace and name.

    Attributes:
        authority: The namespace whose forecasts count for domains.
        entries: What each object says.
        contradicted: Newest contradicted issue of each forecast that has not been believed since.
    """

    authority: str
    entries: Mapping[ForecastKey, IssuedForecast | UnfitForecast] = field(default_factory=dict)
    contradicted: Mapping[ForecastKey, Contradiction] = field(default_factory=dict)

    @classmethod
    def of(cls, authority: str, bodies: Iterable[Mapping[str, Any]]) -> ForecastBook:
        """The book of these DemandForecast objects."""
        read = (read_forecast(body) for body in bodies)
        return cls(authority, {entry.key: entry for entry in read})

    def with_object(self, body: Mapping[str, Any]) -> ForecastBook:
        """The book after an object appeared or changed."""
        entry = read_forecast(body)
        return replace(self, entries={**self.entries, entry.key: entry})

    def without(self, key: ForecastKey) -> ForecastBook:
        """The book after an object was deleted."""
        return replace(
            self,
            entries={k: v for k, v in self.entries.items() if k != key},
            contradicted={k: v for k, v in self.contradicted.items() if k != key},
        )

    def judged(self, minutes_of: Callable[[str], tuple[Minute, ...]]) -> ForecastBook:
        """The book after measured minutes were held against the forecasts of domains.

        An issue is judged by the minutes after its data. A contradicted one stays so; the issue
        after it is believed only if it covers the last ten minutes.

        Args:
            minutes_of: Measured minutes of a domain, oldest first.
        """
        found = {}
        for key, issue in self.entries.items():
            before = self.contradicted.get(key)
            if isinstance(issue, UnfitForecast) or not self._rules(issue):
                found.update({key: before} if before is not None else {})
                continue
            if before is not None and before.issued_seconds == issue.issued_seconds:
                found[key] = before
                continue
            minutes = minutes_of(issue.domain)
            if before is None:
                minutes = tuple(m for m in minutes if m.start_seconds >= issue.data_until_seconds)
            if contradicts(minutes, issue.p99):
                found[key] = Contradiction(issue.issued_seconds, _contradiction(issue, minutes))
        return self if found == self.contradicted else replace(self, contradicted=found)

    def of_domain(self, domain: str, question: Question) -> Outlook:
        """What to expect of a domain; always an answer within the limit, with its reason."""
        candidates = sorted(
            (e for e in self.entries.values() if self._rules(e) and e.domain == domain),
            key=lambda entry: entry.key,
        )
        sound, why = [], []
        for entry in candidates:
            objection = self._objection(entry, question)
            if objection or isinstance(entry, UnfitForecast):
                why.append(f"{entry.key}: {objection}")
            else:
                sound.append(entry)
        if sound:
            return _trusted(max(sound, key=lambda issue: issue.p99), question.limit_watts)
        disproved = any(entry.key in self.contradicted for entry in candidates)
        state = "Contradicted" if disproved else "Fallback" if candidates else "NoForecast"
        return _instead(state, "; ".join(why) or self._nothing(domain), question)

    def of_demand(self, key: ForecastKey, now_seconds: float) -> IssuedForecast | str:
        """The newest issue of a series that is no domain's, or why nothing can rest on it.

        Args:
            key: The DemandForecast; its own namespace may ask, no authority is needed.
            now_seconds: Unix time.
        """
        entry = self.entries.get(key)
        if entry is None:
            return f"there is no DemandForecast {key}"
        asked = Question(now_seconds, limit_watts=_ANY_LIMIT, ahead_seconds=0.0)
        objection = self._objection(entry, asked)
        if objection or isinstance(entry, UnfitForecast):
            return f"{key}: {objection}"
        return f"{key} is a domain's, in watts" if entry.domain else entry

    def _rules(self, entry: IssuedForecast | UnfitForecast) -> bool:
        """Whether it may speak of a domain at all."""
        return bool(entry.domain) and entry.key.namespace == self.authority

    def _objection(self, entry: IssuedForecast | UnfitForecast, question: Question) -> str:
        """Why it cannot answer this question; empty if it can."""
        if isinstance(entry, UnfitForecast):
            return entry.reason
        now = question.now_seconds
        ahead = max(entry.issued_seconds, entry.data_until_seconds, entry.window_start_seconds)
        if ahead > now + SKEW_SECONDS:
            return f"comes from the future ({_at(ahead)})"
        if now > entry.valid_until_seconds:
            return f"was valid until {_at(entry.valid_until_seconds)}"
        if now - entry.data_until_seconds > entry.window_end_seconds - entry.window_start_seconds:
            return f"its data end at {_at(entry.data_until_seconds)}, older than its window is long"
        if entry.window_end_seconds < now + question.ahead_seconds:
            asked = f"less than {question.ahead_seconds:.0f} s from now"
            return f"its window ends at {_at(entry.window_end_seconds)}, {asked}"
        if entry.p99 > EXTREME * question.limit_watts:
            return (
                f"p99 of {entry.p99:g} W is over {EXTREME:g} times the limit of "
                f"{question.limit_watts:g} W"
            )
        disproved = self.contradicted.get(entry.key)
        return disproved.message if disproved is not None else ""

    def _nothing(self, domain: str) -> str:
        elsewhere = [str(e.key) for e in self.entries.values() if e.domain == domain]
        if elsewhere:
            return (
                f"no forecast in namespace {self.authority}; {elsewhere[0]} has no authority over "
                "a domain"
            )
        return f"no forecast in namespace {self.authority}"


def _trusted(issue: IssuedForecast, limit_watts: float) -> Outlook:
    """The answer that a usable forecast gives."""
    said = f"{issue.key}: the forecaster fell back to {issue.method}"
    return Outlook(
        p50_watts=min(issue.p50, limit_watts),
        p95_watts=min(issue.p95, limit_watts),
        p99_watts=min(issue.p99, limit_watts),
        method=issue.method,
        reason=said if issue.is_fallback else f"{issue.key}: {issue.method}",
        state="Fallback" if issue.is_fallback else "Forecast",
        source=issue,
    )


def _instead(state: str, why: str, question: Question) -> Outlook:
    """The documented fall-back: last day's maximum plus an offset, or the limit."""
    limit, seen = question.limit_watts, question.day_maximum_watts
    if seen is None:
        reason = f"{why}; less than a day of draws: the limit"
        return Outlook(limit, limit, limit, "limit", reason, state)
    high = min(seen * (1 + ASSUMED_OFFSET), limit)
    reason = f"{why}; last-24 h maximum plus {ASSUMED_OFFSET:.0%}"
    return Outlook(min(seen, limit), high, high, "last-24h-max", reason, state)


def _at(seconds: float) -> str:
    """Absolute, so that the words stand still while time goes on."""
    return rfc3339(seconds_to_ns(seconds))


def _contradiction(issue: IssuedForecast, minutes: tuple[Minute, ...]) -> str:
    highest = max(minute.draw_watts for minute in minutes[-WATCHED_MINUTES:])
    count = minutes_above(minutes, issue.p99)
    return (
        f"contradicted: draw above its p99 of {issue.p99:.0f} W in {count} of the last "
        f"{min(len(minutes), WATCHED_MINUTES)} minutes, highest minute {highest:.0f} W"
    )
