"""Keeps the book of forecasts beside what was measured, and answers for every domain.

The tick thread alone calls this; informers change the store's book under its lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.app.desired_state import ObjectStore
from controller.day_maximum import DayMaximum
from controller.tick_values import Transition
from forecasting.contradiction import MinuteDraws
from forecasting.forecast_book import Outlook, Question
from wattpack.units import NS_PER_SECOND

JUDGED_EVERY_NS = 10 * NS_PER_SECOND

#: What the decision feed says when the state of a domain's forecast changes.
_TOLD = {
    "Forecast": "ForecastInUse",
    "Fallback": "ForecastFallback",
    "NoForecast": "ForecastFallback",
    "Contradicted": "ForecastContradicted",
}


@dataclass(frozen=True, slots=True)
class Outlooks:
    """What is expected of each domain, and what changed since the last judgement.

    Attributes:
        by_domain: An answer for every domain, also where it is only the limit.
        transitions: Domains whose forecast won or lost its authority.
    """

    by_domain: Mapping[str, Outlook] = field(default_factory=dict)
    transitions: tuple[Transition, ...] = ()

    def p99_watts(self) -> dict[str, float]:
        """Peak of the coming window by domain, where anything better than the limit is known."""
        return {n: o.p99_watts for n, o in self.by_domain.items() if o.method != "limit"}


class ForecastReader:
    """What the tick may use of the forecasts, and how it says so.

    Args:
        store: Where informers keep the book.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._day_maximum = DayMaximum()
        self._minutes = MinuteDraws()
        self._key: tuple[object, ...] = ()
        self._outlooks: dict[str, Outlook] = {}

    def outlooks(self, ratings: Mapping[str, float], wall_time_ns: int) -> Outlooks:
        """An answer for every domain; judged every 10 s, and at once when a forecast changed.

        Args:
            ratings: What each domain cannot exceed, AC watts.
            wall_time_ns: Now.
        """
        key = (self._store.forecast_version, wall_time_ns // JUDGED_EVERY_NS, *ratings.items())
        if key == self._key:
            return Outlooks(self._outlooks)
        before, self._key = self._outlooks, key
        self._outlooks = self._judge(ratings, wall_time_ns / NS_PER_SECOND)
        return Outlooks(self._outlooks, tuple(_changes(before, self._outlooks)))

    def saw(self, measured_watts: Mapping[str, float], wall_time_ns: int) -> None:
        """Take in a tick's draws, of the domains whose draw was measured and not assumed."""
        self._day_maximum.add(measured_watts, wall_time_ns)
        self._minutes.add(measured_watts, wall_time_ns)

    def preload(self, hourly_watts: Mapping[str, Mapping[int, float]]) -> None:
        """Take in the recorded maxima of the day before this start, by domain and hour."""
        for name, hours in hourly_watts.items():
            self._day_maximum.preload(name, hours)

    def _judge(self, ratings: Mapping[str, float], now_seconds: float) -> dict[str, Outlook]:
        with self._store.lock:
            book = self._store.forecasts.judged(lambda d: self._minutes.of(d, now_seconds))
            self._store.forecasts = book
        return {
            name: book.of_domain(name, Question(now_seconds, watts, self._day_maximum.of(name)))
            for name, watts in ratings.items()
        }


def _changes(before: Mapping[str, Outlook], now: Mapping[str, Outlook]) -> list[Transition]:
    """Domains seen before whose forecast is in another state, with the reason."""
    return [
        Transition(name, "forecast", _TOLD[outlook.state], outlook.reason)
        for name, outlook in now.items()
        if name in before and _TOLD[before[name].state] != _TOLD[outlook.state]
    ]
