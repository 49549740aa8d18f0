"""The highest draw of each domain in the last day: what a missing forecast falls back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HOUR_NS = 3_600_000_000_000
HOURS = 24


@dataclass(slots=True)
class DayMaximum:
    """Hourly maxima by domain; older hours are forgotten."""

    _hours: dict[int, dict[str, float]] = field(default_factory=dict)

    def add(self, draws_watts: Mapping[str, float], wall_time_ns: int) -> None:
        """Take one tick's draws in."""
        hour = wall_time_ns // HOUR_NS
        if hour not in self._hours:
            self._hours = {h: v for h, v in self._hours.items() if hour - HOURS < h <= hour}
        kept = self._hours.setdefault(hour, {})
        for name, watts in draws_watts.items():
            kept[name] = max(watts, kept.get(name, 0.0))

    def of(self, domain: str) -> float | None:
        """The highest draw of the domain, None if it was never seen."""
        seen = [hour[domain] for hour in self._hours.values() if domain in hour]
        return max(seen, default=None)
