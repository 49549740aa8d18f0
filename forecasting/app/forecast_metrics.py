"""What the forecaster exports: ``wattpack_forecast_*``, base units, one series per object."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge

from forecasting.forecast_choice import FALLBACKS
from forecasting.forecast_round import TargetForecast
from forecasting.forecast_status import has_figures
from forecasting.targets import TargetKey
from wattpack.api.planning import ForecastLead

_LABELS = ("namespace", "name")


class ForecastMetrics:
    """Gauges that are replaced as a whole after each round.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
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
        self._coverage = Gauge(
            "wattpack_forecast_coverage_ratio",
            "Share of finished windows whose peak stayed within the promised p99",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        self._windows = Gauge(
            "wattpack_forecast_windows", "Finished windows behind the coverage, replay included",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        self._violations = Gauge(
            "wattpack_forecast_violations", "Finished windows whose peak exceeded the promised p99",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        self._fallback = Gauge(
            "wattpack_forecast_fallback", "1 if the answer is not a model forecast",
            _LABELS, registry=self.registry,
        )  # fmt: skip
        self._data_until = Gauge(
            "wattpack_forecast_data_timestamp_seconds", "End of the newest observed bin, Unix time",
            _LABELS, registry=self.registry,
        )  # fmt: skip
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
        self._round = Gauge(
            "wattpack_forecast_round_duration_seconds", "Duration of the last round",
            registry=self.registry,
        )  # fmt: skip
        self._last = Gauge(
            "wattpack_forecast_last_success_timestamp_seconds", "End of the last good round",
            registry=self.registry,
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
        leads: Mapping[TargetKey, ForecastLead] = MappingProxyType({}),
    ) -> None:
        """Replace all values by those of one good round."""
        per_object = (self._peak, self._now, self._coverage, self._windows, self._violations,
                      self._fallback, self._data_until, self._lead, self._lead_peak)  # fmt: skip
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
            record = answer.record
            if record.windows:
                self._coverage.labels(*key).set(1 - record.violations / record.windows)
            self._windows.labels(*key).set(record.windows)
            self._violations.labels(*key).set(record.violations)
            self._fallback.labels(*key).set(float(made.methods[answer.row] in FALLBACKS))
        for key, lead in leads.items():
            self._lead.labels(*key, lead.workload).set(lead.seconds)
            for level, needed in ((0.5, lead.p50), (0.95, lead.p95), (0.99, lead.p99)):
                if needed is not None:
                    self._lead_peak.labels(*key, f"{level:g}").set(needed)
        self._round.set(duration_seconds)
        self._last.set(now_seconds)

    def failed(self, error: Exception) -> None:
        """Count one failure."""
        self._errors.labels(type(error).__name__).inc()
