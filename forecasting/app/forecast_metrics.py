"""What the forecaster exports: ``wattpack_forecast_*``, base units, one series per object."""

from __future__ import annotations

import math
import threading
from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from forecasting.app.figure_metrics import FigureMetrics
from forecasting.app.promise_metrics import PromiseMetrics
from forecasting.app.shown_forecast import ShownForecast, shown_as_stored, shown_of
from forecasting.app.token_metrics import TokenMetrics
from forecasting.round.target_forecast import TargetForecast
from forecasting.shards import WHOLE, Shard
from forecasting.targets import TargetKey
from wattpack.api.demand_forecast import ForecastLead
from wattpack.errors import InputError
from wattpack.replaced_gauge import ReplacedGauge

_LABELS = ("namespace", "name")


class _Count(NamedTuple):
    """Replicas of one object, and until when they are shown though nobody says so again."""

    replicas: float
    until_seconds: float


class ForecastMetrics:
    """Gauges that are replaced as a whole after each round.

    Args:
        registry: Where they are registered.
        shard: Which of several forecasters they are of.
    """

    def __init__(self, registry: CollectorRegistry | None = None, shard: Shard = WHOLE) -> None:
        self._shard = str(shard)
        self.registry = registry or CollectorRegistry()
        self._figures = FigureMetrics(self.registry)
        self._promises = PromiseMetrics(self.registry)
        self._tokens = TokenMetrics(self.registry)
        # An alert asks it who is to be forecast: never a moment without those who are.
        self._domains = ReplacedGauge(Gauge(
            "wattpack_forecast_domain_objects", "DemandForecasts that name this PowerDomain",
            ("domain", "shard"), registry=self.registry,
        ))  # fmt: skip
        self._rehearsing = Gauge(
            "wattpack_forecast_rehearsing_series",
            "Series whose history is still gone through: they have no record yet",
            registry=self.registry,
        )
        # Who scales must never see none: replaced without a gap.
        self._replicas = ReplacedGauge(Gauge(
            "wattpack_forecast_replicas",
            "Replicas that the target should have now, of those that ask for it (HPA, KEDA)",
            _LABELS, registry=self.registry,
        ))  # fmt: skip
        self._counts: dict[TargetKey, _Count] = {}
        self._shown: dict[TargetKey, ShownForecast] = {}
        self._away: frozenset[TargetKey] = frozenset()
        self._known: frozenset[TargetKey] = frozenset()
        self._lock = threading.Lock()
        self._round = Gauge(
            "wattpack_forecast_round_duration_seconds", "Duration of the last round",
            registry=self.registry,
        )  # fmt: skip
        self._last = Gauge(
            "wattpack_forecast_last_success_timestamp_seconds", "End of the last good round",
            ("shard",), registry=self.registry,
        )  # fmt: skip
        self._errors = Counter(
            "wattpack_forecast_errors", "Rounds or writes that failed, by kind of error",
            ("kind",), registry=self.registry,
        )  # fmt: skip

    def show(
        self,
        answers: Sequence[TargetForecast],
        duration_seconds: float,
        now_seconds: float,
        statuses: Mapping[TargetKey, Mapping[str, Any]] = MappingProxyType({}),
        leads: Mapping[TargetKey, ForecastLead] = MappingProxyType({}),
        stored: Mapping[TargetKey, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Replace all values by those of one good round; who is away keeps its last for a while.

        Args:
            answers: Of the round.
            duration_seconds: That it took.
            now_seconds: When it was, Unix time.
            statuses: What was written of the answers.
            leads: What each may need until a new replica works.
            stored: Statuses as they were read before.
        """
        live = {answer.target.key: _live(answer) for answer in answers}
        away = {a.target.key for a in answers if a.error and not isinstance(a.error, InputError)}
        self._away = frozenset(away)
        self._begin_with({key: stored[key] for key in away if key in stored})
        told = {
            a.target.key: shown_of(a, statuses.get(a.target.key, {}), leads.get(a.target.key))
            for a in answers
            if a.made is not None
        }
        told |= self._last_of(away, now_seconds)
        self._show(told, live.keys() - away, live, now_seconds)
        self._domains.show(_named_domains(answers, self._shard))
        self._rehearsing.set(sum(answer.awaits_record for answer in answers))
        self._round.set(duration_seconds)
        self._last.labels(self._shard).set(now_seconds)

    def age(self, stored: Mapping[TargetKey, Mapping[str, Any]], now_seconds: float) -> None:
        """No history came: objects that there are keep their last figures, marked, until too old.

        Args:
            stored: Their statuses as they were read.
            now_seconds: Unix time.
        """
        self._away = frozenset(stored)
        self._begin_with(stored)
        self._show(
            self._last_of(stored, now_seconds), frozenset(), dict.fromkeys(stored), now_seconds
        )

    def expire(self, now_seconds: float) -> None:
        """No round came, and nobody knows which objects there are: what is too old goes.

        Args:
            now_seconds: Unix time.
        """
        kept = self._last_of(self._shown, now_seconds)
        self._show(kept, frozenset(), dict.fromkeys(self._known), now_seconds)

    def _begin_with(self, stored: Mapping[TargetKey, Mapping[str, Any]]) -> None:
        """What an earlier process wrote is the last of whom this one has shown nothing yet."""
        for key in stored.keys() - self._shown.keys():
            if (found := shown_as_stored(stored[key])) is None:
                continue
            self._shown[key] = found
            if found.replicas is not None:
                with self._lock:
                    self._count(key, found.replicas, found.valid_until_seconds)

    def _last_of(
        self, keys: Iterable[TargetKey], now_seconds: float
    ) -> dict[TargetKey, ShownForecast]:
        """Figures that were shown last and are not too old."""
        return {
            key: one for key in keys
            if (one := self._shown.get(key)) is not None and now_seconds < one.valid_until_seconds
        }  # fmt: skip

    def _show(
        self,
        shown: dict[TargetKey, ShownForecast],
        fresh: Set[TargetKey],
        live: Mapping[TargetKey, tuple[int, int] | None],
        now_seconds: float,
    ) -> None:
        """Show these; of objects that are not fresh what was decided last, minutes included."""
        self._shown, self._known = shown, frozenset(live)
        self._figures.show(shown, self._away)
        statuses = {key: one.status for key, one in shown.items() if one.status}
        self._promises.show(statuses, live, now_seconds)
        self._tokens.show(statuses)
        with self._lock:
            self._counts = {
                key: count for key, count in self._counts.items()
                if key in live and key not in fresh and now_seconds < count.until_seconds
            }  # fmt: skip
            for key in fresh & shown.keys():
                if (replicas := shown[key].replicas) is not None:
                    self._count(key, replicas, shown[key].valid_until_seconds)
            self._show_counts()

    def show_replicas(self, counts: Mapping[TargetKey, float], until_seconds: float) -> None:
        """What was decided between two rounds; all others stay.

        Args:
            counts: Replicas by object.
            until_seconds: For how long they count at least, Unix time.
        """
        with self._lock:
            for key, replicas in counts.items():
                self._count(key, replicas, until_seconds)
            self._show_counts()

    def _count(self, key: TargetKey, replicas: float, until_seconds: float) -> None:
        before = self._counts.get(key)
        until_seconds = max(until_seconds, -math.inf if before is None else before.until_seconds)
        self._counts[key] = _Count(replicas, until_seconds)

    def _show_counts(self) -> None:
        self._replicas.show({(*key,): one.replicas for key, one in self._counts.items()})

    def failed(self, error: Exception) -> None:
        """Count one failure."""
        self._errors.labels(type(error).__name__).inc()


def _named_domains(answers: Sequence[TargetForecast], shard: str) -> dict[tuple[str, ...], float]:
    """How many forecasts each domain has, those that could not be made included."""
    targets = [answer.target for answer in answers]
    named = Counts(target.subject for target in targets if target.kind == "domain")
    return {(domain, shard): float(count) for domain, count in named.items()}


def _live(answer: TargetForecast) -> tuple[int, int] | None:
    """Windows and violations of promises that were really made."""
    live = answer.record.live
    return None if answer.made is None else (live.windows, live.violations[0])
