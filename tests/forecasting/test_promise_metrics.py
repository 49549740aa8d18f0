"""Promises as metrics: live windows alone are counted, gauges follow the newest status."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from forecasting.app.promise_metrics import PromiseMetrics
from forecasting.targets import TargetKey

ROW, RACK = TargetKey("power", "row"), TargetKey("power", "rack")


class Shown:
    """The metrics and what they say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = PromiseMetrics(self.registry)

    def show(self, statuses: dict[TargetKey, Any], *away: TargetKey, now: float = 0.0) -> None:
        live = {key: (s["coverageN"], s["violations"]) for key, s in statuses.items()}
        self.metrics.show(statuses, live | dict.fromkeys(away), now)

    def value(self, name: str, key: TargetKey = ROW, **labels: str) -> float | None:
        found = {"namespace": key.namespace, "name": key.name, **labels}
        return self.registry.get_sample_value(f"wattpack_forecast_{name}", found)


@pytest.fixture
def shown() -> Shown:
    return Shown()


def record(windows: int, violations: int, **more: Any) -> dict[str, Any]:
    return {"coverageN": windows, "violations": violations, **more}


def test_a_status_is_shown_as_it_stands(shown: Shown) -> None:
    shown.show(
        {
            ROW: record(
                40, 1, violationBound95=0.114, reserveRatio=1.3,
                tiers=[{"name": "ridge", "weight": 0.4}, {"name": "ets", "weight": 0.6}],
                fittedUntil="1970-01-01T01:00:00Z", liveWindows=5, liveViolations=1,
                liveViolationBound95=0.657, liveReserveRatio=1.2,
            )
        },
        now=5000.0,
    )  # fmt: skip
    assert shown.value("coverage_ratio") == 0.975
    assert shown.value("judged_windows") == 40
    assert shown.value("live_coverage_ratio") == 0.8
    assert shown.value("live_judged_windows") == 5
    assert shown.value("violation_bound_ratio") == 0.114
    assert shown.value("reserve_ratio") == 1.3
    assert shown.value("live_violation_bound_ratio") == 0.657
    assert shown.value("live_reserve_ratio") == 1.2
    assert shown.value("model_age_seconds") == 1400.0
    assert shown.value("tier_weight", tier="ets") == 0.6
    shown.show({ROW: record(0, 0, tiers=[{"name": "ets", "weight": 1.0}])})
    assert shown.value("tier_weight", tier="ridge") is None
    assert shown.value("coverage_ratio") is None
    assert shown.value("model_age_seconds") is None
    assert shown.value("live_judged_windows") is None
    assert shown.value("live_violation_bound_ratio") is None
    assert shown.value("live_reserve_ratio") is None


def test_a_record_of_rehearsed_windows_alone_is_no_record_of_promises(shown: Shown) -> None:
    shown.show({ROW: record(24, 8, liveWindows=0, liveViolations=0)})
    assert shown.value("coverage_ratio") == pytest.approx(2 / 3)
    assert shown.value("live_judged_windows") == 0
    assert shown.value("live_coverage_ratio") is None


@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=12),
    begins=st.tuples(st.integers(0, 500), st.integers(0, 20)),
)
def test_what_came_after_the_first_sight_is_counted_and_nothing_else(
    steps: list[tuple[int, int]], begins: tuple[int, int]
) -> None:
    shown, (windows, violations) = Shown(), begins
    shown.show({ROW: record(windows, violations)})
    assert (shown.value("windows_total"), shown.value("violations_total")) == (0.0, 0.0)
    for more, missed in steps:
        windows, violations = windows + more, violations + missed
        shown.show({ROW: record(windows, violations)})
    assert shown.value("windows_total") == sum(more for more, _ in steps)
    assert shown.value("violations_total") == sum(missed for _, missed in steps)


def test_a_record_that_was_lost_takes_nothing_back(shown: Shown) -> None:
    for windows, violations in ((100, 5), (104, 6), (24, 0), (25, 1)):
        shown.show({ROW: record(windows, violations)})
    assert shown.value("windows_total") == 5
    assert shown.value("violations_total") == 2


def test_a_history_that_is_away_keeps_counters_and_a_deleted_object_loses_them(
    shown: Shown,
) -> None:
    shown.show({ROW: record(10, 0), RACK: record(10, 0)})
    shown.show({ROW: record(12, 1)}, RACK)
    assert shown.value("violations_total", RACK) == 0.0
    shown.show({ROW: record(12, 1), RACK: record(13, 1)})
    assert shown.value("violations_total", RACK) == 1.0
    shown.show({ROW: record(12, 1)})
    assert shown.value("violations_total", RACK) is None
    assert shown.value("violations_total") == 1.0
