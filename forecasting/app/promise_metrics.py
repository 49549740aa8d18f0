"""How promises are kept, as metrics: counters of live windows, bounds, reserve, models.

What a series had on its record when this process first saw it is not counted: the process before
did, and rehearsed windows are no promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from forecasting.issued_account import read_account
from forecasting.targets import TargetKey

_LABELS = ("namespace", "name")


class PromiseMetrics:
    """Gauges that are replaced after each round, and two counters.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._coverage = Gauge(
            "wattpack_forecast_coverage_ratio",
            "Share of finished windows whose peak stayed within the p99, rehearsed ones included",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._judged = Gauge(
            "wattpack_forecast_judged_windows",
            "Finished windows behind the coverage, rehearsed ones included",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._live_coverage = Gauge(
            "wattpack_forecast_live_coverage_ratio",
            "The same share of windows of promises that were really made, over or broken",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._live_judged = Gauge(
            "wattpack_forecast_live_judged_windows",
            "Windows of promises that were really made, behind the live coverage",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._bound = Gauge(
            "wattpack_forecast_violation_bound_ratio",
            "Upper 95 % bound of the share of windows above the promised p99 (Clopper-Pearson), "
            "rehearsed ones included",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._live_bound = Gauge(
            "wattpack_forecast_live_violation_bound_ratio",
            "The same bound by windows of promises that were really made, which do not overlap",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._reserve = Gauge(
            "wattpack_forecast_reserve_ratio",
            "Sum of promised p99 over sum of realised peaks, rehearsed windows included",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._live_reserve = Gauge(
            "wattpack_forecast_live_reserve_ratio",
            "The same of windows of promises that were really made and are over",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._model_age = Gauge(
            "wattpack_forecast_model_age_seconds",
            "Since the end of the data that the models were fitted on",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._weight = Gauge(
            "wattpack_forecast_tier_weight", "Share of each model in the combination",
            (*_LABELS, "tier"), registry=registry,
        )  # fmt: skip
        self._windows = Counter(
            "wattpack_forecast_windows", "Windows of promises really made, over or broken",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._violations = Counter(
            "wattpack_forecast_violations", "Of these windows, those above the promised p99",
            _LABELS, registry=registry,
        )  # fmt: skip
        self._counted: dict[TargetKey, tuple[int, int]] = {}

    def show(
        self,
        statuses: Mapping[TargetKey, Mapping[str, Any]],
        live: Mapping[TargetKey, tuple[int, int] | None],
        now_seconds: float,
    ) -> None:
        """Replace all gauges by those of one good round, and count what came since the last.

        Args:
            statuses: By object, as they are written.
            live: Windows and violations of promises that were really made, of all objects; None
                for one whose history is away: it keeps its counters.
            now_seconds: Unix time.
        """
        gauges = (
            self._coverage, self._judged, self._live_coverage, self._live_judged, self._bound,
            self._reserve, self._live_bound, self._live_reserve, self._model_age, self._weight,
        )  # fmt: skip
        for gauge in gauges:
            gauge.clear()
        for key, status in statuses.items():
            self._show_one(key, status, now_seconds)
        for key, counts in live.items():
            if counts is not None:
                self._count(key, counts)
        for key in self._counted.keys() - live.keys():
            del self._counted[key]
            self._windows.remove(*key)
            self._violations.remove(*key)

    def _show_one(self, key: TargetKey, status: Mapping[str, Any], now_seconds: float) -> None:
        account = read_account(status)
        windows, violations = account.windows or 0, account.violations or 0
        self._judged.labels(*key).set(windows)
        if windows:
            self._coverage.labels(*key).set(1 - violations / windows)
        if (live := account.live_windows) is not None:
            self._live_judged.labels(*key).set(live)
            if live:
                missed = account.live_violations or 0
                self._live_coverage.labels(*key).set(1 - missed / live)
        for gauge, told in (
            (self._bound, account.violation_bound),
            (self._live_bound, account.live_violation_bound),
            (self._reserve, account.reserve_ratio),
            (self._live_reserve, account.live_reserve_ratio),
        ):
            if told is not None:
                gauge.labels(*key).set(told)
        if account.fitted_until_seconds is not None:
            self._model_age.labels(*key).set(max(0.0, now_seconds - account.fitted_until_seconds))
        for tier in account.tiers:
            self._weight.labels(*key, tier.name).set(tier.weight)

    def _count(self, key: TargetKey, counts: tuple[int, int]) -> None:
        # A counter that begins at its first increment would hide that increment from increase().
        counters = self._windows.labels(*key), self._violations.labels(*key)
        for counter, new, old in zip(counters, counts, self._counted.get(key, counts), strict=True):
            counter.inc(max(0, new - old))
        self._counted[key] = counts
