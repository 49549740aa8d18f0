"""The highest draw of each domain in the last day: what a missing forecast falls back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

HOUR_NS: Final = 3_600_000_000_000
HOURS: Final = 24

MOST_MISSING_HOURS: Final = 4
"""Hours without a measured draw that a day may have and still speak for a day (assumed)."""


@dataclass(slots=True)
class DayMaximum:
    """Hourly maxima by domain; older hours are forgotten."""

    _hours: dict[int, dict[str, float]] = field(default_factory=dict)
    _since_ns: dict[str, int] = field(default_factory=dict)
    _now_ns: int = 0

    def add(self, draws_watts: Mapping[str, float], wall_time_ns: int) -> None:
        """Take one tick's measured draws in."""
        hour = wall_time_ns // HOUR_NS
        if hour not in self._hours:
            self._hours = {h: v for h, v in self._hours.items() if hour - HOURS < h <= hour}
        kept = self._hours.setdefault(hour, {})
        for name, watts in draws_watts.items():
            kept[name] = max(watts, kept.get(name, 0.0))
            self._since_ns[name] = min(wall_time_ns, self._since_ns.get(name, wall_time_ns))
        if wall_time_ns < self._now_ns:
            self._since_ns = dict.fromkeys(self._since_ns, wall_time_ns)
        self._now_ns = wall_time_ns

    def preload(self, domain: str, hourly_watts: Mapping[int, float]) -> None:
        """Take in the recorded maxima of earlier hours (since 1970), before the first tick."""
        for hour, watts in hourly_watts.items():
            self._hours.setdefault(hour, {})[domain] = watts
        if hourly_watts:
            self._since_ns[domain] = min(hourly_watts) * HOUR_NS

    def of(self, domain: str) -> float | None:
        """The highest draw of the last day; None unless it was measured for most of a day.

        The maximum of an hour after a restart says nothing about the afternoon.
        """
        seen = [hour[domain] for hour in self._hours.values() if domain in hour]
        since_ns = self._since_ns.get(domain, self._now_ns)
        if self._now_ns - since_ns < HOURS * HOUR_NS or len(seen) < HOURS - MOST_MISSING_HOURS:
            return None
        return max(seen)
