"""What the forecaster exports: ``wattpack_forecast_*``, base units, one series per object."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from forecasting.app.promise_metrics import PromiseMetrics
from forecasting.forecast import FALLBACKS
from forecasting.forecast_status import has_figures
from forecasting.shards import WHOLE, Shard
from forecasting.target_forecast import TargetForecast
from forecasting.targets import TargetKey
from wattpack.api.demand_forecast import ForecastLead

_LABELS = ("namespace", "name")
_NAMES = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}


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
        self._fallback = Gauge(
            "wattpack_forecast_fallback", "1 if the answer is not a model forecast",
            _LABELS, registry=self.registry,
        )  # fmt: skip
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
        self._flags = Gauge(
            "wattpack_forecast_flags", "1 for each flag that a forecast carries",
            (*_LABELS, "flag"), registry=self.registry,
        )  # fmt: skip
        self._flagged: set[tuple[str, str, str]] = set()
        self._replicas = Gauge(
            "wattpack_forecast_replicas",
            "Replicas that the target should have now, of those that ask for it (HPA, KEDA)",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        self._token_peak = Gauge(
            "wattpack_forecast_token_peak",
            "Quantile of the highest step in tokens a second, of requests whose lengths are told",
            (*_LABELS, "level"), registry=self.registry,
        )  # fmt: skip
        self._token_length = Gauge(
            "wattpack_forecast_request_tokens",
            "Length of a request of the last hours, tokens: mean and p99",
            (*_LABELS, "of"), registry=self.registry,
        )  # fmt: skip
        self._scaled: frozenset[TargetKey] = frozenset()
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
            self._token_peak, self._token_length,
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
        self._show_flags(answers)
        self._promises.show(statuses, {a.target.key: _live(a) for a in answers}, now_seconds)
        self._show_replicas(statuses)
        self._show_tokens(statuses)
        for key, lead in leads.items():
            self._lead.labels(*key, lead.workload).set(lead.seconds)
            for level, needed in ((0.5, lead.p50), (0.95, lead.p95), (0.99, lead.p99)):
                if needed is not None:
                    self._lead_peak.labels(*key, f"{level:g}").set(needed)
        self._rehearsing.set(sum(answer.awaits_record for answer in answers))
        self._round.set(duration_seconds)
        self._last.labels(self._shard).set(now_seconds)

    def _show_flags(self, answers: Sequence[TargetForecast]) -> None:
        """One by one: an alert waits for hours, and a flag that stays must not be away at all."""
        flagged = {(*a.target.key, flag) for a in answers if a.made for flag in a.flags}
        for gone in self._flagged - flagged:
            self._flags.remove(*gone)
        for there in flagged:
            self._flags.labels(*there).set(1)
        self._flagged = flagged

    def _show_tokens(self, statuses: Mapping[TargetKey, Mapping[str, Any]]) -> None:
        for key, status in statuses.items():
            if (tokens := status.get("tokens")) is not None:
                for level in ("0.5", "0.95", "0.99"):
                    self._token_peak.labels(*key, level).set(tokens[_NAMES[level]])
                self._token_length.labels(*key, "mean").set(tokens["mean"])
                self._token_length.labels(*key, "p99").set(tokens["requestP99"])

    def _show_replicas(self, statuses: Mapping[TargetKey, Mapping[str, Any]]) -> None:
        """Replaced without a gap: who scales by it must never see none for a moment."""
        shown = {key: status["replicas"]["count"] for key, status in statuses.items()
                 if "replicas" in status}  # fmt: skip
        for key in self._scaled - shown.keys():
            self._replicas.remove(*key)
        for key, count in shown.items():
            self._replicas.labels(*key).set(count)
        self._scaled = frozenset(shown)

    def failed(self, error: Exception) -> None:
        """Count one failure."""
        self._errors.labels(type(error).__name__).inc()


def _live(answer: TargetForecast) -> tuple[int, int] | None:
    """Windows and violations of promises that were really made."""
    live = answer.record.live
    return None if answer.made is None else (live.windows, live.violations[0])
