"""What the forecaster exports of CapacityPlans: ``wattpack_capacity_plan_*``."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from wattpack.api.capacity_plan import CapacityPlanStatus
from wattpack.kube.informer import Key

_LABELS = ("namespace", "name")


class PlanMetrics:
    """Gauges that are replaced as a whole after each look.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, words: str) -> Gauge:
            return Gauge(f"wattpack_capacity_plan_{name}", words, _LABELS, registry=registry)

        self._unanswered = gauge(
            "unanswered_seconds",
            "For how long the figures have not answered the question as it is now; 0: they do",
        )
        self._cost = gauge("cost_dollars_per_hour", "Cost of the plan per hour")
        self._power = gauge("power_watts", "Expected draw of the plan, AC watts")
        self._saved = gauge("saved_ratio", "Share of the cost saved against what runs")
        self._gap = gauge("gap_ratio", "Distance of the plan to the proved bound")
        self._looked = Gauge(
            "wattpack_capacity_plan_last_look_timestamp_seconds",
            "When all CapacityPlans were last looked at, Unix time",
            registry=registry,
        )
        self._seconds = Gauge(
            "wattpack_capacity_plan_solve_duration_seconds",
            "Duration of the last solve with its explanation",
            registry=registry,
        )
        self._solves = Counter(
            "wattpack_capacity_plan_solves",
            "Solves that ended, by the reason of the Ready condition",
            ("reason",),
            registry=registry,
        )

    def show(
        self,
        statuses: Mapping[Key, CapacityPlanStatus],
        unanswered_seconds: Mapping[Key, float],
        now_seconds: float,
    ) -> None:
        """Replace what is said of each plan.

        Args:
            statuses: The newest, by namespace and name.
            unanswered_seconds: For how long each has had no answer.
            now_seconds: Unix time.
        """
        figures = (
            (self._cost, "cost_per_hour"),
            (self._power, "power_watts"),
            (self._saved, "saved_fraction"),
            (self._gap, "gap"),
        )
        self._unanswered.clear()
        for gauge, field in figures:
            gauge.clear()
            for key, status in statuses.items():
                if (value := getattr(status, field)) is not None:
                    gauge.labels(*key).set(value)
        for key, seconds in unanswered_seconds.items():
            self._unanswered.labels(*key).set(seconds)
        self._looked.set(now_seconds)

    def solved(self, reason: str, seconds: float) -> None:
        """Count one solve."""
        self._solves.labels(reason).inc()
        self._seconds.set(seconds)
