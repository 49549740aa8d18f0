"""Replicas are lowered at most so often in any hour, whoever asks and however often it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.app.replica_steadiness import as_told, steadied_replicas, with_lowerings
from forecasting.decisions import Decision, SteadyState
from tests.examples import examples
from tests.forecasting.test_forecaster_process import START_SECONDS
from tests.forecasting.test_replica_minutes import MINUTES, Service, _demand
from tests.forecasting.test_replica_needs import Service as RoundService
from tests.forecasting.test_replica_needs import _days
from wattpack.api.forecast_replicas import MOST_LOWERINGS, ReplicaNeed, ReplicaRule

HOUR_SECONDS = 3600.0


def lowerings(counts: Sequence[int]) -> int:
    return int((np.diff(counts) < 0).sum())


def test_minutes_lower_at_most_so_often_an_hour_and_raise_at_once() -> None:
    values = _demand()
    values[MINUTES + 3 : MINUTES + 24] *= np.linspace(1.0, 0.3, 21)
    values[MINUTES + 24 : MINUTES + 32] *= 0.3
    values[MINUTES + 32 :] *= 2.5
    free = Service(values, violationPrice=150.0, holdSeconds=0, keepRatio=1.0)
    assert lowerings([free.minute()["count"] for _ in range(26)]) > 6
    service = Service(values, violationPrice=150.0, holdSeconds=0, keepRatio=1.0, mostLowerings=3)
    counts = [service.minute()["count"] for _ in range(20)]
    said = service.said()
    assert said is not None
    service.restart()
    counts += [service.minute()["count"] for _ in range(12)]
    assert lowerings(counts) == said["lowerings"] == 3
    assert "kept at" in str((service.said() or {})["reason"])
    counts += [service.minute()["count"] for _ in range(5)]
    assert counts[-1] > 1.8 * counts[31]


def test_rounds_lower_at_most_so_often_an_hour_and_a_restart_has_no_hour_of_its_own() -> None:
    values = _days(noise=1.0)
    first = START_SECONDS // 600
    values[first : first + 40] *= np.linspace(1.0, 0.2, 40)
    service = RoundService(values)
    service.ask(holdSeconds=0, mostLowerings=2)
    counts = []
    for tick in range(20):
        if tick in (4, 9):
            service.process = ForecasterProcess(service.clock, service.kube, service.source)
        told = service.told(600.0)
        assert told is not None
        counts.append(told["count"])
    for start in range(14):
        assert lowerings(counts[start : start + 7]) <= 2
    assert lowerings(counts) >= 4


def test_who_says_that_there_is_room_for_fewer_is_heard_at_once() -> None:
    rule = ReplicaRule(rate=1.0, most=20, most_lowerings=1)
    state = SteadyState(15.0)
    made, state = steadied_replicas(Decision(12, 0.0, "risk", ""), 10.0, state, rule, 0.0)
    made, state = steadied_replicas(Decision(11, 0.0, "risk", ""), 20.0, state, rule, 0.0)
    assert (made.amount, made.binding) == (12, "rate")
    tight = rule.model_copy(update={"most": 5})
    made, state = steadied_replicas(Decision(5, 0.0, "risk", ""), 30.0, state, tight, 0.0)
    assert (made.amount, made.binding, state.amount) == (5, "limit", 5)


def test_raising_uses_up_no_lowering() -> None:
    rule, state = ReplicaRule(rate=1.0, most_lowerings=1), SteadyState(10.0)
    for at, wished in enumerate((11, 12, 13, 12)):
        wish = Decision(float(wished), 0.0, "risk", "")
        made, state = steadied_replicas(wish, 60.0 * at, state, rule, 0.0)
        assert made.amount == wished
    made, state = steadied_replicas(Decision(11.0, 0.0, "risk", ""), 240.0, state, rule, 0.0)
    assert (made.amount, made.binding) == (12, "rate")


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 900), st.integers(1, 30)), max_size=40), st.integers(1, 4))
def test_limits_hold_over_restarts_at_any_moment(walk: list[tuple[int, int]], most: int) -> None:
    rule = ReplicaRule(rate=1.0, most_lowerings=most)
    wall, said = 1e9, ReplicaNeed(count=10, within_seconds=60.0)
    lowered: list[float] = []
    for pause, wished in walk:
        wall += pause
        # Each decision by a process that has just begun: all it knows is the status.
        before = as_told(said.to_json(), wall, wall - 1e9)
        made, state = steadied_replicas(
            Decision(float(wished), 0.0, "risk", ""), wall - 1e9, before, rule, 0.0
        )
        if made.amount < said.count:
            lowered.append(wall)
        assert made.amount >= wished
        assert made.amount == wished or made.binding in ("rate", "hold")
        need = said.model_copy(update={"count": int(made.amount)})
        said = with_lowerings(need, state, wall)
        assert sum(at > wall - HOUR_SECONDS for at in lowered) <= most


@pytest.mark.parametrize("told", [None, "x", {"count": "3"}, {"count": 3, "loweredAt": "soon"}])
def test_what_somebody_else_wrote_costs_no_decision(told: object) -> None:
    state = as_told(told, 1e9, 5.0)
    assert state.changes == ()
    assert replace(state, wishes=(), amount=None).amount is None


def test_the_default_binds_for_nobody_who_is_decided_for_each_ten_minutes() -> None:
    assert ReplicaRule(rate=1.0).most_lowerings == MOST_LOWERINGS > 6
