"""What the forecaster exports: ``wattpack_forecast_*``, base units, one series per object."""

from __future__ import annotations

import math
import threading
from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from forecasting.app.promise_metrics import PromiseMetrics
from forecasting.app.token_metrics import TokenMetrics
from forecasting.forecast import FALLBACKS
from forecasting.forecast_status import has_figures
from forecasting.peak_quantiles import NAMED_LEVELS
from forecasting.round.target_forecast import TargetForecast
from forecasting.shards import WHOLE, Shard
from forecasting.targets import TargetKey
from wattpack.api.demand_forecast import ForecastLead
from wattpack.replaced_gauge import ReplacedGauge

_LABELS = ("namespace", "name")


class ForecastMetrics:
    """Gauges that are replaced as a whole after each round.

    Args:
        registry: Where they are registered.
        shard: Which of several forecasters they are of.
    """

    def __init__(self, registry: CollectorRegistry | None = None, shard: Shard = WHOLE) -> None:
        self._shard = str(shard)
        self.registry = registry or CollectorRegistry()
        self._peak = Gauge(
            "wattpack_forecast_peak",
            "Quantile of the highest value of the window, in the unit of the series",
            (*_LABELS, "level"), registry=self.registry,
        )  # fmt: skip
        self._now = Gauge(
            "wattpack_forecast_observed",
            "Newest observed bin, in the unit of the series",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        self._promises = PromiseMetrics(self.registry)
        self._tokens = TokenMetrics(self.registry)
        self._fallback = Gauge(
            "wattpack_forecast_fallback", "1 if the answer is not a model forecast",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        # An alert asks it who is to be forecast: never a moment without those who are.
        self._domains = ReplacedGauge(Gauge(
            "wattpack_forecast_domain_objects", "DemandForecasts that name this PowerDomain",
            ("domain", "shard"), registry=self.registry,
        ))  # fmt: skip
        self._data_until = Gauge(
            "wattpack_forecast_data_timestamp_seconds", "End of the newest observed bin, Unix time",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        self._rehearsing = Gauge(
            "wattpack_forecast_rehearsing_series",
            "Series whose history is still gone through: they have no record yet",
            registry=self.registry,
        )
        self._lead = Gauge(
            "wattpack_forecast_lead_seconds",
            "Until a new replica of what runs there works (p95 of the slowest start)",
            (*_LABELS, "workload"), registry=self.registry,
        )  # fmt: skip
        self._lead_peak = Gauge(
            "wattpack_forecast_lead_peak",
            "Quantile of the highest step within the lead time, in the unit of the series",
            (*_LABELS, "level"), registry=self.registry,
        )  # fmt: skip
        # An alert waits for hours, and who scales must never see none: replaced without a gap.
        self._flags = ReplacedGauge(Gauge(
            "wattpack_forecast_flags", "1 for each flag that a forecast carries",
            (*_LABELS, "flag"), registry=self.registry,
        ))  # fmt: skip
        self._replicas = ReplacedGauge(Gauge(
            "wattpack_forecast_replicas",
            "Replicas that the target should have now, of those that ask for it (HPA, KEDA)",
            _LABELS, registry=self.registry,
        ))  # fmt: skip
        self._counts: dict[TargetKey, float] = {}
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
    ) -> None:
        """Replace all values by those of one good round.

        Args:
            answers: Of the round.
            duration_seconds: That it took.
            now_seconds: When it was, Unix time.
            statuses: What was written of the answers.
            leads: What each may need until a new replica works.
        """
        per_object = (
            self._peak, self._now, self._fallback, self._data_until, self._lead, self._lead_peak,
        )  # fmt: skip
        for gauge in per_object:
            gauge.clear()
        for answer in answers:
            made, key = answer.made, answer.target.key
            if made is None:
                continue
            if has_figures(answer):
                for level, peak in zip(made.levels, answer.peaks, strict=True):
                    self._peak.labels(*key, f"{level:g}").set(float(peak))
            if math.isfinite(newest := float(made.now[answer.row])):
                self._now.labels(*key).set(newest)
                self._data_until.labels(*key).set(float(made.observed_until_seconds[answer.row]))
            self._fallback.labels(*key).set(float(made.methods[answer.row] in FALLBACKS))
        self._flags.show(
            {(*a.target.key, flag): 1.0 for a in answers if a.made for flag in a.flags}
        )
        self._domains.show(_named_domains(answers, self._shard))
        self._promises.show(statuses, {a.target.key: _live(a) for a in answers}, now_seconds)
        with self._lock:
            self._counts = {
                key: told["replicas"]["count"] for key, told in statuses.items()
                if "replicas" in told
            }  # fmt: skip
            self._replicas.show(self._counts)
        self._tokens.show(statuses)
        for key, lead in leads.items():
            self._lead.labels(*key, lead.workload).set(lead.seconds)
            for name, level in NAMED_LEVELS.items():
                if (needed := getattr(lead, name)) is not None:
                    self._lead_peak.labels(*key, f"{level:g}").set(needed)
        self._rehearsing.set(sum(answer.awaits_record for answer in answers))
        self._round.set(duration_seconds)
        self._last.labels(self._shard).set(now_seconds)

    def show_replicas(self, counts: Mapping[TargetKey, float]) -> None:
        """What was decided between two rounds; all others stay.

        Args:
            counts: Replicas by object.
        """
        with self._lock:
            self._counts |= counts
            self._replicas.show(self._counts)

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
