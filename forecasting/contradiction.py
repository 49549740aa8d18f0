"""When measured draw contradicts a forecast, as a rule over minute means.

The forecast promises that the highest ten-minute mean of its window stays within its p99, except
in one window of a hundred. Minutes are what can be watched while the window runs: a forecast is
contradicted once seven of the last ten minutes lie above its p99.

False alarms: seven of ten is where a right forecast of six hours is contradicted about as often as
its level allows. On 20,000 simulated windows with an exactly known p99 it was 0.7 to 1.2 %, with a
memory of the load of 10 or 120 minutes and minute noise of 0 to 2 times the slow part; five of ten
would be 1.3 to 15 %, ten of ten 0.01 to 0.7 % (the first of these in
``tests/forecasting/test_contradiction.py``). Forecasts of the shipped kind miss their p99 in 1.9 %
of windows (measured on 21 real series), so an operator will see about twice that. A false
alarm costs the fall-back until the next issue.

Below: a low draw does not contradict the forecast of a peak, which may still come, and too high a
promise costs money and no safety; it is left to the coverage that the status reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WATCHED_MINUTES: Final = 10
"""One bin of the forecast: what its p99 speaks of is the mean of ten minutes."""

MINUTES_ABOVE: Final = 7
MINUTE_NS: Final = 60_000_000_000


class Minute(NamedTuple):
    """The mean draw of one whole minute; its start in Unix seconds."""

    start_seconds: float
    draw_watts: float


def minutes_above(minutes: Sequence[Minute], p99_watts: float) -> int:
    """How many of the newest ten minutes lie above the p99."""
    return sum(minute.draw_watts > p99_watts for minute in minutes[-WATCHED_MINUTES:])


def contradicts(minutes: Sequence[Minute], p99_watts: float) -> bool:
    """Whether these minutes contradict a forecast of that p99; see the module for the odds."""
    return minutes_above(minutes, p99_watts) >= MINUTES_ABOVE


@dataclass(slots=True)
class _Running:
    """The minute that is not over, and the ten before it."""

    minute: int
    total_watts: float = 0.0
    samples: int = 0
    whole: tuple[Minute, ...] = ()


@dataclass(slots=True)
class MinuteDraws:
    """Minute means by domain, kept for ten minutes."""

    _domains: dict[str, _Running] = field(default_factory=dict)

    def add(self, draws_watts: Mapping[str, float], wall_time_ns: int) -> None:
        """Take measured draws in; a clock that goes back forgets what lies ahead of it."""
        minute = wall_time_ns // MINUTE_NS
        for name, watts in draws_watts.items():
            running = self._domains.get(name)
            if running is None or minute < running.minute:
                running = self._domains[name] = _Running(minute)
            if minute > running.minute:
                self._close(running, minute)
            running.total_watts += watts
            running.samples += 1

    def of(self, domain: str, now_seconds: float) -> tuple[Minute, ...]:
        """Whole minutes of the last eleven, oldest first; the running one is not among them."""
        running = self._domains.get(domain)
        if running is None:
            return ()
        oldest = now_seconds - 60.0 * (WATCHED_MINUTES + 1)
        return tuple(m for m in running.whole if oldest <= m.start_seconds <= now_seconds)

    def _close(self, running: _Running, minute: int) -> None:
        mean = Minute(running.minute * 60.0, running.total_watts / running.samples)
        running.whole = (*running.whole, mean)[-WATCHED_MINUTES:]
        running.minute, running.total_watts, running.samples = minute, 0.0, 0
