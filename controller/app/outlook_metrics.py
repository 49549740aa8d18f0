"""What the controller exports of forecasts: what it uses of them, promises by them, and misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry

from controller.app.metric_makers import RisingCounters, makers
from forecasting.forecast_book import Outlook
from wattpack.api.power_domain import PromisableWatts
from wattpack.replaced_gauge import ReplacedGauge


class OutlookMetrics:
    """Of each power domain what is expected of it, what may be promised, and how that is kept.

    Args:
        registry: Where they are registered.
        counters: Brought to totals.
    """

    def __init__(self, registry: CollectorRegistry, counters: RisingCounters) -> None:
        gauge, counter = makers(registry)
        self._counters = counters
        self._p99 = ReplacedGauge(
            gauge("domain_forecast_p99_watts", "Forecast p99 in use; absent without one", "domain")
        )
        self._fallback = gauge(
            "domain_forecast_fallback", "1 while no trusted forecast is used", "domain"
        )
        self._contradicted = gauge(
            "domain_forecast_contradicted", "1 while measured draw contradicts it", "domain"
        )
        self._promisable = ReplacedGauge(
            gauge(
                "domain_promisable_watts",
                "Watts that may be promised beyond what is, by risk; of the leader only",
                "domain",
                "risk",
            )
        )
        self._windows = counter(
            "domain_risk_windows_total",
            "Windows of believed forecasts that are over or broken, by risk; of the leader only",
            "domain",
            "risk",
        )
        self._violations = counter(
            "domain_risk_violations_total",
            "Of these windows, those whose measured draw was above the forecast at that risk",
            "domain",
            "risk",
        )
        self._allowed = counter(
            "domain_risk_allowed_total",
            "Violations that so many windows may have at that risk",
            "domain",
            "risk",
        )

    def show(self, outlooks: Mapping[str, Outlook]) -> None:
        """What is expected of each domain, on which authority."""
        self._p99.show({n: o.p99_watts for n, o in outlooks.items() if o.method != "limit"})
        for name, outlook in outlooks.items():
            self._fallback.labels(name).set(outlook.is_fallback)
            self._contradicted.labels(name).set(outlook.state == "Contradicted")

    def show_promisable(self, rooms: Mapping[str, Sequence[PromisableWatts]]) -> None:
        """What may be promised of these domains, and of no others."""
        self._promisable.show(
            {(name, f"{one.risk:g}"): one.watts for name, of in rooms.items() for one in of}
        )

    def count_risks(
        self, windows: Mapping[tuple[str, float], int], violations: Mapping[tuple[str, float], int]
    ) -> None:
        """Bring the accounts of violations up to date, by domain and risk."""
        for (name, risk), count in windows.items():
            labels, raise_to = (name, f"{risk:g}"), self._counters.raise_to
            raise_to(self._windows.labels(*labels), count)
            raise_to(self._allowed.labels(*labels), risk * count)
            raise_to(self._violations.labels(*labels), violations.get((name, risk), 0))
