"""Figures of each object as metrics, replaced without a gap."""

from __future__ import annotations

from collections.abc import Mapping, Set

from prometheus_client import CollectorRegistry, Gauge

from forecasting.app.shown_forecast import HISTORY_AWAY, ShownForecast
from forecasting.peak_quantiles import NAMED_LEVELS
from forecasting.targets import TargetKey
from wattpack.replaced_gauge import ReplacedGauge


class FigureMetrics:
    """Gauges that are replaced as a whole; who reads meanwhile sees none of them missing.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def of_each(name: str, told: str, *labels: str) -> ReplacedGauge:
            named = ("namespace", "name", *labels)
            return ReplacedGauge(Gauge(f"wattpack_forecast_{name}", told, named, registry=registry))

        self._peak = of_each(
            "peak",
            "Quantile of the highest value of the window, in the unit of the series",
            "level",
        )
        self._now = of_each("observed", "Newest observed bin, in the unit of the series")
        self._fallback = of_each("fallback", "1 if the answer is not a model forecast")
        self._data_until = of_each(
            "data_timestamp_seconds", "End of the newest observed bin, Unix time"
        )
        self._lead = of_each(
            "lead_seconds",
            "Until a new replica of what runs there works (p95 of the slowest start)",
            "workload",
        )
        self._lead_peak = of_each(
            "lead_peak",
            "Quantile of the highest step within the lead time, in the unit of the series",
            "level",
        )
        self._flags = of_each("flags", "1 for each flag that a forecast carries", "flag")

    def show(self, shown: Mapping[TargetKey, ShownForecast], away: Set[TargetKey]) -> None:
        """Show these figures and no others.

        Args:
            shown: By object.
            away: Objects whose history cannot be read; they may have no figures.
        """
        self._peak.show(
            {(*k, f"{at:g}"): peak for k, one in shown.items() for at, peak in one.peaks.items()}
        )
        self._now.show({(*k,): v for k, one in shown.items() if (v := one.observed) is not None})
        self._data_until.show(
            {(*k,): v for k, one in shown.items() if (v := one.data_until_seconds) is not None}
        )
        self._fallback.show(
            {(*k,): float(v) for k, one in shown.items() if (v := one.is_fallback) is not None}
        )
        flags = {(*k, flag): 1.0 for k, one in shown.items() for flag in one.flags}
        self._flags.show(flags | {(*k, HISTORY_AWAY): 1.0 for k in away})
        leads = {k: one.lead for k, one in shown.items() if one.lead is not None}
        self._lead.show({(*k, lead.workload): lead.seconds for k, lead in leads.items()})
        self._lead_peak.show({
            (*k, f"{level:g}"): needed
            for k, lead in leads.items()
            for name, level in NAMED_LEVELS.items()
            if (needed := getattr(lead, name)) is not None
        })  # fmt: skip
