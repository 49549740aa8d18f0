"""Faults of a scenario in runs of the inference row: when, whom, and where nothing is calm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulation.inference_row import days_under_policy
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.days_under_policy import DayRun, Stretch, stretches
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import polca_scenario
from simulation.row_control.faults import RowFaultKind
from simulation.row_control.scenario_faults import at_fault, faults_within
from simulation.scenario import FaultSettings, Scenario
from wattpack.errors import InputError

BEGIN = 43_200.0
K = RowFaultKind


def with_faults(*faults: dict[str, Any]) -> Scenario:
    made = polca_scenario(4, 2, ServerPower.of(), 1.0)
    return made.model_copy(update={"faults": tuple(FaultSettings(**one) for one in faults)})


def fault(kind: str, at: float, lasting: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at_seconds": at, "duration_seconds": lasting, **more}


def spans(scenario: Scenario, zero: float) -> list[tuple[str, float, float]]:
    found = faults_within(scenario, zero).faults
    return [(str(one.kind), one.begin_seconds, one.end_seconds) for one in found]


def test_a_fault_counts_from_the_scenario_s_begin() -> None:
    scenario = with_faults(fault("controller_crash", 60.0, 30.0))
    assert spans(scenario, 0.0) == [("controller_down", 60.0, 90.0)]
    assert spans(scenario, 120.0) == [("controller_down", 180.0, 210.0)]
    assert spans(scenario, -70.0) == [("controller_down", 0.0, 20.0)]
    assert spans(scenario, -90.0) == []
    assert not faults_within(with_faults(), 5.0).faults


def test_an_event_of_before_is_over_and_a_reboot_under_way_is_not() -> None:
    scenario = with_faults(fault("driver_reload", 60.0), fault("node_reboot", 60.0, 30.0))
    assert spans(scenario, -60.0) == [("driver_reload", 0.0, 0.0), ("node_reboot", 0.0, 30.0)]
    assert spans(scenario, -70.0) == [("node_reboot", 0.0, 20.0)]


def test_targets_are_the_row_s() -> None:
    (one,) = faults_within(with_faults(fault("node_reboot", 1.0, 1.0, target="node-002"))).faults
    assert np.flatnonzero(one.struck).tolist() == [2]
    with pytest.raises(InputError, match="a node"):
        faults_within(with_faults(fault("node_reboot", 1.0, target="node-004")))
    with pytest.raises(InputError, match=r"faults\.kind"):
        faults_within(with_faults(fault("gpu_hung", 1.0)))
    assert not faults_within(with_faults(fault("planner_down", 1.0, 9.0))).faults


def test_where_something_is_wrong_nothing_is_calm() -> None:
    scenario = with_faults(fault("meter_gap", BEGIN + 4_500.5, 10.0))
    wrong = at_fault(scenario, BEGIN, 30 * 300)
    assert np.flatnonzero(wrong).tolist() == list(range(4_500, 4_511))
    load = np.full(30 * 300, 0.5)
    plan = stretches(load, BEGIN, 0.9, wrong)
    assert [(one.begin_seconds - BEGIN, one.hot) for one in plan] == [
        (0.0, False), (4_200.0, True), (5_100.0, False),
    ]  # fmt: skip
    assert stretches(load, BEGIN, 0.9, at_fault(scenario, 0.0, len(load))) == [
        Stretch(BEGIN, BEGIN + 9_000.0, hot=False)
    ]


@pytest.mark.parametrize("policy", ["uncapped", "polca", "wattpack"])
def test_a_server_is_dark_at_its_time_whatever_the_policy(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(days_under_policy, "WARM_SECONDS", 20.0)
    arrivals = ClientArrivals(4, load=0.5, burst_cv=1.5, seed=2, days=1)
    requests = arrivals.between(BEGIN, BEGIN + 120.0)
    loads = []
    for faults in ((), (fault("node_reboot", BEGIN + 60.0, 30.0, target="node-001"),)):
        run = DayRun(policy, arrivals, requests, with_faults(*faults))
        hot = policy != "uncapped"
        calm = Stretch(BEGIN, BEGIN + 40.0, hot=False)
        books = run.run([calm, Stretch(BEGIN + 40.0, BEGIN + 120.0, hot=hot)])
        loads.append([books.load_between(BEGIN + a, BEGIN + b).mean() for a, b in SPANS])
    before, during = (loads[1][i] / loads[0][i] for i in range(2))
    assert before == 1.0
    assert during < 0.9


SPANS = ((0.0, 59.0), (62.0, 89.0))
