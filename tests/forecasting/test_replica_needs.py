"""How many replicas a service is said to need: enough in time, steady, and where HPA finds it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.lead_time import StepWindow
from forecasting.prewarming.replica_need import ExpectedDemand, needed_replicas
from forecasting.prewarming.start_times import StartTimes
from forecasting.series_source import Floats
from forecasting.targets import target_of
from tests.examples import examples
from tests.forecasting.test_forecaster_process import DAY, RESOURCE, START_SECONDS, World, _Source
from wattpack.api.forecast_replicas import ReplicaRule
from wattpack.errors import InputError
from wattpack.kube.port import InvalidError
from wattpack.units import NS_PER_SECOND

RATE = 7.0


class Service(World):
    """A service of known demand, requests a second."""

    def __init__(self, values: Floats) -> None:
        super().__init__()
        self.source = _Source({"chat": values})
        self.process = ForecasterProcess(self.clock, self.kube, self.source)

    def ask(self, **rule: Any) -> None:
        target = {"workload": "chat", "series": "chat", "unit": "requests"}
        self.add("chat", target=target, replicas={"rate": RATE, "startSeconds": 244} | rule)

    def told(self, after_seconds: float = 0.0) -> dict[str, Any] | None:
        self.clock.advance_seconds(after_seconds)
        assert self.process.tick()
        found = self.status("chat").get("replicas")
        return None if found is None else dict(found)

    def exported(self) -> str:
        return generate_latest(self.process.metrics.registry).decode()


def _days(days: int = 13, noise: float = 5.0) -> Floats:
    t = np.arange(days * DAY)
    rng = np.random.default_rng(1)
    return np.maximum(0.0, 100 + 40 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, noise, len(t)))


def _body(**rule: Any) -> dict[str, Any]:
    """An object as it is stored."""
    target = {"workload": "chat", "series": "chat", "unit": "requests"}
    return {
        "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
        "metadata": {"name": "chat", "namespace": "power"},
        "spec": {"target": target, "replicas": {"rate": RATE} | rule},
    }  # fmt: skip


def _step_change(factor: float) -> Floats:
    values = _days()
    values[START_SECONDS // 600 + 1 :] *= factor
    return values


def test_what_is_needed_before_later_orders_work_is_there_in_most_windows() -> None:
    values = _days(noise=15.0)
    service = Service(values)
    service.ask(risk=0.1, holdSeconds=0)
    short = 0
    for origin in range(60):
        told = service.told(1800.0 if origin else 0.0)
        assert told is not None
        assert told["withinSeconds"] == 244 + 600
        at = int((service.clock.wall_time_ns() / NS_PER_SECOND) // 600)
        short += bool(values[at : at + 2].max() / RATE > told["count"])
        # No more than the day's highest could ask for.
        assert told["count"] <= math.ceil(1.5 * values.max() / RATE)
    assert short <= 12


def test_less_risk_takes_more_replicas_and_the_metric_says_the_same() -> None:
    counts = []
    for rule in ({"risk": 0.4}, {"risk": 0.05}, {"violationPrice": 200.0}):
        service = Service(_days())
        service.ask(**rule)
        told = service.told()
        assert told is not None
        counts.append(told["count"])
        assert (
            f'wattpack_forecast_replicas{{name="chat",namespace="power"}} {told["count"]:.1f}'
            in service.exported()
        )
    assert counts[0] < counts[1] <= counts[2]


def test_more_is_asked_for_at_once_and_fewer_after_the_hold() -> None:
    up = Service(_step_change(2.0))
    up.ask()
    first, second = up.told(), up.told(1800.0)
    assert first is not None
    assert second is not None
    assert second["count"] > 1.5 * first["count"]
    down = Service(_step_change(0.3))
    down.ask(holdSeconds=7200)
    before = down.told()
    assert before is not None
    counts = []
    for _ in range(20):
        told = down.told(600.0)
        assert told is not None
        counts.append(told["count"])
    assert counts[10] >= before["count"]
    assert counts[-1] < before["count"]


def test_a_restart_drops_no_replica() -> None:
    service = Service(_step_change(0.3))
    service.ask(holdSeconds=7200)
    before = service.told()
    assert before is not None
    service.process = ForecasterProcess(service.clock, service.kube, service.source)
    after = service.told(3600.0)
    assert after is not None
    assert after["count"] == before["count"]


def test_without_a_ready_forecast_nothing_new_is_said() -> None:
    service = Service(_days())
    service.ask()
    before = service.told()
    service.source.down = True
    service.clock.advance_seconds(600)
    assert not service.process.tick()
    assert service.status("chat")["replicas"] == before
    short = Service(_days())
    short.add("chat", target={"workload": "chat", "series": "chat", "unit": "requests"},
              horizonSeconds=600, replicas={"rate": RATE, "startSeconds": 900})  # fmt: skip
    assert short.told() is None
    assert "wattpack_forecast_replicas{" not in short.exported()


@pytest.mark.parametrize(
    "rule",
    [{"risk": 0.1, "violationPrice": 3.0}, {"least": 5, "most": 4}, {"rate": 0.0}, {"risk": 0.0}],
)
def test_a_rule_that_contradicts_itself_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"spec\.replicas"):
        target_of(_body(**rule))


@pytest.mark.parametrize(
    ("risk", "bound"), [(0.009, "0.01"), (1e-6, "0.01"), (0.51, "0.5"), (0.99, "0.5")]
)
def test_a_risk_beyond_what_is_computed_is_refused_with_its_range(risk: float, bound: str) -> None:
    """A stored one, too, that an earlier CustomResourceDefinition let in."""
    with pytest.raises(InputError, match=rf"spec\.replicas\.risk.*{re.escape(bound)}"):
        target_of(_body(risk=risk))
    with pytest.raises(InvalidError, match="risk"):
        Service(_days()).ask(risk=risk)


@pytest.mark.parametrize("risk", [0.01, 0.5])
def test_the_outermost_risks_are_taken(risk: float) -> None:
    service = Service(_days())
    service.ask(risk=risk)
    assert service.told() is not None


def test_prices_buy_what_they_would_if_all_levels_were_told() -> None:
    draws = np.sort(100.0 * np.exp(0.5 * np.random.default_rng(4).normal(size=20_000)))
    levels = (0.5, 0.95, 0.99)
    rows = np.quantile(draws, levels)[None]
    demand = ExpectedDemand(StepWindow(0.0, 600.0), levels, rows, 0.0)
    for price in (60.0, 90.0, 105.0, 150.0, 200.0, 300.0):
        rule = ReplicaRule(rate=1.0, violation_price=price, least=60)
        made = needed_replicas(rule, demand, 0.0, StartTimes(300.0, 300.0))
        assert made is not None
        amounts = np.arange(60, 400)
        costs = amounts + price * (1 - np.searchsorted(draws, amounts) / len(draws))
        assert costs[int(made.amount) - 60] <= 1.015 * costs.min()


@examples(60)
@given(
    medians=st.lists(st.floats(0, 500), min_size=3, max_size=6),
    spread=st.floats(1, 3),
    late=st.integers(0, 2),
    risk=st.sampled_from([0.01, 0.05, 0.5]),
)
def test_replicas_are_those_of_the_highest_step_within_reach(
    medians: list[float], spread: float, late: int, risk: float
) -> None:
    """Steps that are high together: the quantile of their highest is the highest quantile."""
    levels = (0.5, 0.95, 0.99)
    rows = np.array([[m, m * (1 + spread) / 2, m * spread] for m in medians])
    demand = ExpectedDemand(StepWindow(0.0, 600.0), levels, rows, 0.0)
    rule = ReplicaRule(rate=RATE, risk=risk, least=0)
    made = needed_replicas(rule, demand, 600.0 * late, StartTimes(300.0, 300.0))
    if late >= len(medians):
        assert made is None
        return
    assert made is not None
    wanted = float(np.interp(1 - risk, levels, rows[late]))
    assert math.ceil(0.97 * wanted / RATE - 1) <= made.amount <= math.ceil(wanted / RATE + 1e-9)


@given(st.integers(0, 3000), st.integers(0, 1500), st.integers(1, 900))
def test_what_comes_before_the_next_orders_work_is_ordered_for_at_any_second_of_a_step(
    now: int, lead: int, decision: int
) -> None:
    """Rounds come at any second of a bin; starts were counted from the bin's beginning, and what
    came in the last minutes before the next round's orders worked was nobody's."""
    steps = np.arange(12, dtype=np.float64)
    demand = ExpectedDemand(
        StepWindow(0.0, 600.0), (0.5, 0.99), np.repeat(steps[:, None], 2, 1), 0.0
    )
    made = needed_replicas(
        ReplicaRule(rate=1.0, least=0), demand, float(now), StartTimes(float(lead), float(decision))
    )
    assert made is not None
    assert made.amount == (now + lead + decision - 1) // 600
