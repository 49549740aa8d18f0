"""Domain meters out of Prometheus, asked in the background: the tick only takes what lies there.

PowerDomain spec.meter ──> thread, every 2 s ──query──> Prometheus
                               └──> newest readings ──read()──> tick
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from controller.app.tick_loop import MeterSource
from controller.app.told_once import ToldOnce
from forecasting.prometheus.query import BadAnswerError, QueryApi, number
from wattpack.clock import Clock
from wattpack.errors import InputError, WattpackError
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND, seconds_to_ns

log = logging.getLogger(__name__)
PERIOD_NS = 2 * NS_PER_SECOND
DEADLINE_SECONDS = 2.0
HIGHEST_WATTS = 1e9


@dataclass(frozen=True, slots=True)
class _Reading:
    query: str
    watts: float
    time_ns: int
    max_age_ns: int


class Question(Protocol):
    """What one meter is asked; ``MeterSpec`` and ``FeedShareSpec`` are such."""

    @property
    def prometheus_query(self) -> str:
        """PromQL of one series; empty for no meter."""
        ...

    @property
    def max_age_seconds(self) -> float:
        """Older readings count as missing."""
        ...


@dataclass(frozen=True, slots=True)
class Metered:
    """What the meters of one thread read.

    Attributes:
        thread: Its name.
        field: Of a PowerDomain, for messages.
        unit: What a reading is.
        highest: A reading.
        period_ns: Between two questions.
        large_rise: A reading of so many times the one before is told at once.
    """

    thread: str
    field: str
    unit: str
    highest: float
    period_ns: int
    large_rise: float = float("inf")


DOMAIN_WATTS = Metered("meters", "spec.meter", "AC watts from 0 to 1e9", HIGHEST_WATTS, PERIOD_NS)
# Of 16 feeds at most one that is lost adds a fifteenth to each of the others.
FEED_SHARES = Metered(
    "feeds", "spec.redundancy.feedShare", "a share from 0 to 1", 1.0, PERIOD_NS // 2, 1.03
)


class PrometheusMeters(PeriodicThread, MeterSource):
    """The newest reading of each domain that has a meter.

    Args:
        api: Prometheus, path ``query``.
        clock: Time stamps of readings are brought onto its monotonic side.
        specs: The meters that domains have now.
        what: What they read.
        risen: Told of a large rise, from this thread.
    """

    def __init__(
        self,
        api: QueryApi,
        clock: Clock,
        specs: Callable[[], Mapping[str, Question]],
        what: Metered = DOMAIN_WATTS,
        risen: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(clock, what.thread, what.period_ns)
        self._api, self._specs, self._what, self._risen = api, specs, what, risen
        self._readings: dict[str, _Reading] = {}
        self._told = ToldOnce(
            log, "no reading of the meter of %s: %s", "the meter of %s reads again"
        )

    def read(self) -> Mapping[str, tuple[float, int]]:
        """Readings that are not older than their meter's ``maxAgeSeconds``; never waits."""
        now_ns = self._clock.monotonic_ns()
        return {
            name: (reading.watts, reading.time_ns)
            for name, reading in self._readings.items()
            if now_ns - reading.time_ns <= reading.max_age_ns
        }

    def stop(self, patience_seconds: float = 2 * DEADLINE_SECONDS) -> None:
        """End the thread; an open question is waited for, at most its deadline."""
        super().stop(patience_seconds)
        self._api.close()

    def run_once(self) -> int:
        """Ask every meter; the pause that keeps the rhythm whatever the answers took."""
        due_ns = self._clock.monotonic_ns() + self._what.period_ns
        self.ask_all()
        return max(1, due_ns - self._clock.monotonic_ns())

    def ask_all(self) -> None:
        """Ask every meter once; one that does not answer keeps its last reading, which ages.

        A reading of another query is another meter's: who mends a query that read kW as W must not
        be shown its figures any more.
        """
        specs = {name: spec for name, spec in self._specs().items() if spec.prometheus_query}
        queries = {name: spec.prometheus_query for name, spec in specs.items()}
        before = {n: r for n, r in self._readings.items() if queries.get(n) == r.query}
        fresh = dict(before)
        for name, spec in specs.items():
            if self._stopping:
                return
            try:
                fresh[name] = self._ask(spec)
            except WattpackError as error:
                self._told.tell(name, str(error))
            else:
                self._told.tell(name, "")
        # Replaced whole: the tick reads it from another thread.
        self._readings = fresh
        known = ((reading.watts, before.get(name)) for name, reading in fresh.items())
        if any(b is not None and watts > self._what.large_rise * b.watts for watts, b in known):
            self._risen()

    def _ask(self, spec: Question) -> _Reading:
        """One meter's newest reading.

        Raises:
            WattpackError: no answer, or one that is no reading of its kind.
        """
        query, now_ns = spec.prometheus_query, self._clock.monotonic_ns()
        now_seconds = self._clock.wall_time_ns() / NS_PER_SECOND
        watts = self._one(query, now_seconds)
        # The answer's own stamp is the time of the question; the sample's has to be asked for.
        stamp_seconds = self._one(f"timestamp({query})", now_seconds)
        if not 0.0 <= watts <= self._what.highest:
            raise InputError(f"{self._what.field}.prometheusQuery", self._what.unit, watts, query)
        age_seconds = now_seconds - stamp_seconds
        if not -spec.max_age_seconds <= age_seconds <= spec.max_age_seconds:
            expected = f"a reading of the last {spec.max_age_seconds:g} s"
            raise InputError(self._what.field, expected, f"one {age_seconds:.0f} s old", query)
        # A clock that is ahead of ours must not make a reading one of the future.
        time_ns = now_ns - max(0, seconds_to_ns(age_seconds))
        return _Reading(query, watts, time_ns, seconds_to_ns(spec.max_age_seconds))

    def _one(self, query: str, at_seconds: float) -> float:
        body = self._api.ask({"query": query, "time": f"{at_seconds:.3f}"}, query)
        return number(_single_value(body, query, f"{self._what.field}.prometheusQuery"), query)


def _single_value(body: Any, query: str, field: str) -> str:  # noqa: ANN401 - JSON
    """The value text of an instant query that gives one series, or a scalar."""
    data = body.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(result, list):
        raise BadAnswerError(f"{query}: expected a result")
    if data.get("resultType") == "scalar":
        pair: Any = result
    elif data.get("resultType") == "vector":
        if len(result) != 1:
            expected = "an expression that gives one series"
            raise InputError(field, expected, f"{len(result)} series", query)
        pair = result[0].get("value") if isinstance(result[0], dict) else None
    else:
        raise BadAnswerError(f"{query}: expected a vector")
    if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)):
        raise BadAnswerError(f"{query}: not a [time, text] pair")
    return pair[1]
