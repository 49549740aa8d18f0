"""What may be promised in a domain beyond what is: by risk, steadily, and where people see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.app.controller_metrics import ControllerMetrics
from controller.app.controller_settings import ControllerSettings
from controller.app.domain_status import StatusThread
from controller.app.live_view_builder import with_promisable
from controller.app.promisable_room import (
    MOST_PROMISED,
    MOST_RAISED_AN_HOUR,
    PromisableRoom,
    promised_watts,
)
from controller.app.tick_loop import TickOutcome
from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from forecasting.decisions import risk_bands
from forecasting.forecast_book import Outlook
from simulation.kube import EmbeddedKube
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.controller_process.object_builders import DOMAINS, make_domain
from tests.controller_process.test_domain_forecasts import Row
from tests.examples import examples
from wattpack.api import PowerDomain
from wattpack.errors import InputError
from wattpack.power.feasibility import LoadTree

TOPOLOGY = make_topology()
LOAD = LoadTree(TOPOLOGY.tree, TOPOLOGY.domain_of_node, TOPOLOGY.node_of_gpu)
PODS = ["team/p"] * TOPOLOGY.n_gpus
AT_5_PERCENT = risk_bands({1000: 0.05})


def outcome_of(
    p99: float, p95: float | None = None, method: str = "ridge", topology: Topology = TOPOLOGY
) -> TickOutcome:
    now_ns = seconds(5)
    observed = make_observations(topology, now_ns)
    _, _, decisions = step(
        Tick(topology, observed, SETTINGS, now_ns), initial_state(topology, SETTINGS)
    )
    state = "Forecast" if method == "ridge" else "Fallback"
    outlook = Outlook(0.5 * p99, p99 if p95 is None else p95, p99, method, "said", state)
    outlooks = dict.fromkeys(topology.tree.names, outlook)
    return TickOutcome(topology, observed, decisions, 0, outlooks)


def said(
    room: PromisableRoom, outcome: TickOutcome, now_seconds: float, pods: Sequence[str] = PODS
) -> list[float]:
    """Of the first domain, by risk."""
    found = room.judge(outcome, pods, {}, now_seconds)
    return [one.watts for one in found[TOPOLOGY.tree.names[0]]]


@examples(40)
@given(st.floats(500.0, 60_000.0), st.floats(0.3, 1.0))
def test_what_runs_draws_a_share_of_its_promise_and_so_would_more(p99: float, part: float) -> None:
    outcome = outcome_of(p99, part * p99 if part > 0.5 else 0.5 * p99)
    found = said(PromisableRoom(AT_5_PERCENT), outcome, 0.0)
    limit = float(outcome.decisions.cap_band_watts[0])
    promised = float(promised_watts(LOAD, TOPOLOGY, PODS)[0])
    for watts, peak in zip(found, (p99, outcome.outlooks["d1"].p95_watts), strict=True):
        # All that is promised, that included, then peaks at the limit at most.
        assert watts == 0 or (promised + watts) / promised * peak <= limit * (1 + 1e-9) + 1
        assert promised + watts <= max(promised, MOST_PROMISED * limit) + 1
        most = min(limit / peak * promised, MOST_PROMISED * limit) - promised
        assert watts >= most - limit / 200 - 1
    assert found[1] >= found[0]


@examples(30)
@given(st.lists(st.tuples(*[st.floats(1_000.0, 30_000.0)] * 3), min_size=1, max_size=6))
def test_no_rack_is_told_more_than_its_row(peaks: list[tuple[float, float, float]]) -> None:
    """At any time, whatever is expected of each, also while holds and limits an hour last."""
    room = PromisableRoom(AT_5_PERCENT)
    for number, each in enumerate(peaks):
        outcome = outcome_of(10_000.0)
        for name, p99 in zip(TOPOLOGY.tree.names, each, strict=True):
            peak = Outlook(0.5 * p99, 0.8 * p99, p99, "ridge", "said", "Forecast")
            outcome = replace(outcome, outlooks={**outcome.outlooks, name: peak})
        found = room.judge(outcome, PODS, {}, 1000.0 * number)
        for rack in ("d1", "d2"):
            for own, above in zip(found[rack], found["d0"], strict=True):
                assert own.watts <= above.watts


@examples(20)
@example([(9_000.0, 6_000.0, 1_000.0)], False)
@example([(9_000.0, 6_000.0, 1_000.0)], True)
@given(
    st.lists(st.tuples(*[st.floats(1_000.0, 30_000.0)] * 3), min_size=1, max_size=5),
    st.booleans(),
)
def test_what_is_told_two_levels_down_fits_into_what_the_top_is_told(
    peaks: list[tuple[float, float, float]], middle_is_silent: bool
) -> None:
    """Behind supplies that lose a tenth each, and past a unit of which nothing is known."""
    topology = make_topology(parents=(-1, 0, 1), nodes=(2, 2), efficiency=(0.76, 0.85, 0.94))
    room, pods = PromisableRoom(AT_5_PERCENT), ["team/p"] * topology.n_gpus
    for number, each in enumerate(peaks):
        outcome = outcome_of(10_000.0, topology=topology)
        told = {
            name: Outlook(0.5 * p99, 0.8 * p99, p99, "ridge", "said", "Forecast")
            for name, p99 in zip(topology.tree.names, each, strict=True)
        }
        if middle_is_silent:
            told["d1"] = replace(told["d1"], method="limit")
        found = room.judge(replace(outcome, outlooks=told), pods, {}, 1000.0 * number)
        assert ("d1" in found) is not middle_is_silent
        for own, top in zip(found["d2"], found["d0"], strict=True):
            assert own.watts * 0.94 / 0.76 <= top.watts * (1 + 1e-9)


def test_nothing_is_said_where_nothing_is_known_and_a_fall_back_bets_on_nothing() -> None:
    assert PromisableRoom().judge(outcome_of(9_000.0, method="limit"), PODS, {}, 0.0) == {}
    strict, lax = said(
        PromisableRoom(AT_5_PERCENT), outcome_of(4_000.0, 3_000.0, "last-24h-max"), 0.0
    )
    assert strict == lax


def test_less_is_said_at_once_and_more_after_half_an_hour() -> None:
    room, minute = PromisableRoom(), 60.0
    first = said(room, outcome_of(10_000.0), 0.0)
    fewer = said(room, outcome_of(12_000.0), minute)
    assert fewer < first
    times = [minute * i for i in range(2, 500)]
    later = [said(room, outcome_of(10_000.0), at) for at in times]
    raised = next(at for at, now in zip(times, later, strict=True) if now > fewer)
    assert later[-1] == first
    assert 1800.0 <= raised - minute <= 5400.0, "half an hour, and an hour after the fall at most"
    limit = float(outcome_of(1.0).decisions.cap_band_watts[0])
    for before, after in zip(later, later[59:], strict=False):
        assert after[0] - before[0] <= MOST_RAISED_AN_HOUR * limit + 1


def test_between_two_minutes_nothing_is_judged_and_the_same_holds_on() -> None:
    room = PromisableRoom()
    first = said(room, outcome_of(10_000.0), 0.0)
    assert said(room, outcome_of(20_000.0), 59.0) == first
    assert said(room, outcome_of(20_000.0), 60.0) != first


def test_who_takes_over_begins_with_what_the_status_says() -> None:
    before, told = PromisableRoom(), PowerDomain.model_fields["status"].default
    low = before.judge(outcome_of(12_000.0), PODS, {}, 0.0)
    statuses = {
        name: told.model_copy(update={"promisable": list(rooms)}) for name, rooms in low.items()
    }
    after = PromisableRoom()
    assert after.judge(outcome_of(10_000.0), PODS, statuses, 7.0) == low
    assert PromisableRoom().judge(outcome_of(10_000.0), PODS, {}, 7.0) != low


def test_idle_boards_are_promised_nothing() -> None:
    few = promised_watts(LOAD, TOPOLOGY, ["team/p", *[""] * (TOPOLOGY.n_gpus - 1)])
    assert (few < promised_watts(LOAD, TOPOLOGY, PODS)).all()
    none = promised_watts(LOAD, TOPOLOGY, [""] * TOPOLOGY.n_gpus)
    assert (
        none.tolist()
        == (
            LOAD.sum_nodes(TOPOLOGY.node_worst_watts) / LOAD.efficiency + LOAD.external_watts
        ).tolist()
    )


def test_domain_metric_and_view_say_it_and_forget_it() -> None:
    row = Row()
    api = EmbeddedKube(row.clock)
    api.create(DOMAINS, make_domain())
    row.cluster.put(DOMAINS, api.get(DOMAINS, "row"))
    status = StatusThread(api, row.clock, row.cluster.desired, "test")
    status.promisable = room = PromisableRoom(risk_bands({0: 0.05}))
    metrics = ControllerMetrics()

    def look(p99: float, **changes: Any) -> Any:
        row.issue(p99, **changes)
        outcome = row.tick("node-1")
        assert outcome is not None
        status.take(outcome)
        status.run_once()
        metrics.outlooks.show_promisable(room.by_domain)
        return api.get(DOMAINS, "row")["status"].get("promisable")

    high, low = look(800.0, p95=700.0, p50=600.0)
    assert (high["leastPriority"], high["risk"]) == (0, 0.01)
    assert "leastPriority" not in low
    assert low["watts"] > high["watts"] > 0
    assert f'wattpack_domain_promisable_watts{{domain="row",risk="0.05"}} {low["watts"]}' in (
        metrics.text().decode()
    )
    view = row.ticker.live()
    assert view is not None
    shown = with_promisable(view, room.by_domain).domains[0].promisable
    assert [one.watts for one in shown] == [high["watts"], low["watts"]]
    row.clock.advance_seconds(60)
    whole, running = {"p95": 38_000.0, "p50": 20_000.0}, {"p50": 500.0, "p95": 600.0, "p99": 700.0}
    assert [one["watts"] for one in look(39_000.0, **whole)] == [0.0, 0.0]
    row.clock.advance_seconds(60)
    look(39_000.0, **whole, running=running)
    later = look(39_000.0, **whole, running=running)
    assert [one["watts"] for one in later] == [0.0, 0.0], "more is not said at once"
    room.forget()
    metrics.outlooks.show_promisable(room.by_domain)
    assert "wattpack_domain_promisable_watts{" not in metrics.text().decode()


class Broken:
    """Advice that ends in a defect."""

    def judge(self, *_: object) -> None:
        raise ZeroDivisionError

    take = judge


def test_a_defect_of_advice_keeps_no_heat_and_no_condition_from_the_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    row = Row()
    api = EmbeddedKube(row.clock)
    api.create(DOMAINS, make_domain())
    row.cluster.put(DOMAINS, api.get(DOMAINS, "row"))
    status = StatusThread(api, row.clock, row.cluster.desired, "test")
    status.promisable = status.account = Broken()  # type: ignore[assignment]
    outcome = row.tick("node-1")
    assert outcome is not None
    status.take(outcome)
    status.run_once()
    told = api.get(DOMAINS, "row")["status"]
    assert "breakerHeatRatio" in told
    assert {one["type"] for one in told["conditions"]} >= {"Accepted", "Ready"}
    assert status.failures == caplog.text.count("statuses go without it") == 2


@pytest.mark.parametrize("below", [{0: 0.0}, {0: math.nan}, {10: 0.3, 0: 0.1}])
def test_a_risk_that_nobody_can_mean_is_refused_by_name(below: dict[int, float]) -> None:
    with pytest.raises(InputError, match="risk_below_priority"):
        ControllerSettings.load(environment={}, flags={"risk_below_priority": below})
