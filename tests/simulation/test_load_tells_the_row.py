"""What the demo's services serve is in its history and tells the row's draw, as do held caps."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from controller.app.draw_history import HELD_SERIES
from forecasting.load_steps import BY_LOAD
from forecasting.round.round_asides import ASIDE_AWAY, ASIDE_GAPS
from forecasting.series_source import BIN_SECONDS, SeriesId
from simulation.app import earlier_days
from simulation.app.earlier_days import EarlierDays
from simulation.app.load_forecasts import row_loads
from simulation.app.running_demo import DemoRow
from simulation.app.served_tokens import (
    TokenMeter,
    full_tokens_per_board,
    token_series,
    usual_tokens_per_second,
)
from simulation.app.twin_run import TwinRun
from simulation.kube.embedded_api import EmbeddedKube
from simulation.scenario import Scenario
from simulation.slo import Ledger
from simulation.world import World
from tests.simulation.twin_builders import small_scenario
from wattpack.api import DemandForecast
from wattpack.kube.port import JsonObject
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.units import NS_PER_SECOND, seconds_to_ns

SECOND_ROUND_SECONDS = 30
"""Simulated; in the first round no pod stands on any board yet."""


def scenario() -> Scenario:
    # Two days are too few for the regression that goes ahead with load and residual.
    return small_scenario(
        control={"forecast_seconds": float(SECOND_ROUND_SECONDS)}, history={"days": 4}
    )


def row_status(api: EmbeddedKube, name: str = "row") -> JsonObject:
    body = api.get(DemandForecast.meta.resource, name, SYSTEM_NAMESPACE)
    status: JsonObject = body.get("status") or {}
    return status


def readiness(status: JsonObject) -> str:
    return next(c["status"] for c in status["conditions"] if c["type"] == "Ready")


# -- the twin --------------------------------------------------------------------------------------


def test_the_rows_steps_are_told_by_what_its_services_serve() -> None:
    run = TwinRun(scenario())
    run.run()
    status = row_status(run.api)
    assert BY_LOAD in status["flags"]
    assert readiness(status) == "True"
    # Racks are told by their draw: nobody meters what is served in them.
    assert BY_LOAD not in row_status(run.api, "rack-0")["flags"]


def test_a_load_that_does_not_tell_the_draw_leaves_the_direct_forecast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = earlier_days.earlier_days

    def shuffled(world: World, wall_time_ns: int) -> EarlierDays:
        days = told(world, wall_time_ns)
        generator = np.random.default_rng(3)
        for service in world.scenario.services:
            generator.shuffle(days.means[token_series(service.name)])
        return days

    monkeypatch.setattr(earlier_days, "earlier_days", shuffled)
    run = TwinRun(scenario())
    run.run()
    status = row_status(run.api)
    assert BY_LOAD not in status["flags"]
    assert ASIDE_AWAY not in status["flags"]
    assert readiness(status) == "True"
    assert status["p99"] >= status["p50"] > 0


# -- the demo --------------------------------------------------------------------------------------


def at_second(row: DemoRow, second: int, look: Callable[[], None]) -> threading.Event:
    """Look while simulated time stands at its second."""
    done = threading.Event()

    def each(now_ns: int) -> None:
        if now_ns // NS_PER_SECOND == second:
            look()
            done.set()

    row.watch.observe(each, lambda outcome: None)
    return done


def test_the_demo_says_that_load_tells_its_row_and_keeps_what_caps_held() -> None:
    row = DemoRow(scenario(), speed=None, replicas=1)
    resource = DemandForecast.meta.resource
    specs = {b["metadata"]["name"]: b["spec"] for b in row.api.list(resource).items}
    seen: dict[str, JsonObject] = {}
    series: list[str] = []

    def look() -> None:
        seen["row"], seen["rack-0"] = (row_status(row.api, name) for name in ("row", "rack-0"))
        series.extend(row.history.names())

    done = at_second(row, 2 * SECOND_ROUND_SECONDS + 5, look)
    try:
        row.start()
        assert done.wait(60.0), row.failure
    finally:
        row.stop()
    assert BY_LOAD in seen["row"]["flags"]
    for status in seen.values():
        assert not {ASIDE_AWAY, ASIDE_GAPS} & set(status["flags"])
        assert readiness(status) == "True"
    # Where no load tells what was wanted, a bin that caps held would be a gap.
    assert specs["row"]["heldSeries"] == f"{HELD_SERIES}row"
    assert [one["workload"] for one in specs["row"]["load"]] == ["chat", "summarise"]
    others = [spec for name, spec in specs.items() if name != "row"]
    assert not any(spec.get("load") or spec.get("heldSeries") for spec in others)
    assert {f"{HELD_SERIES}row", token_series("chat"), token_series("summarise")} <= set(series)


# -- what is served --------------------------------------------------------------------------------


def test_earlier_days_tell_the_tokens_of_the_trace_at_the_hour_of_the_run() -> None:
    world = World(small_scenario(history={"days": 2, "noise_ratio": 0.0}))
    days = earlier_days.earlier_days(world, 1_700_000_000 * NS_PER_SECOND)
    for service in world.scenario.services:
        tokens = days.means[token_series(service.name)]
        usual = usual_tokens_per_second(world.scenario, service)
        assert tokens[-1] == pytest.approx(usual, rel=1e-3)
        assert tokens.min() == pytest.approx(0.35 * usual, rel=1e-3)


def test_a_service_without_replicas_serves_nothing_and_is_no_load() -> None:
    idle = {"name": "idle", "trace": "code", "priority_class": "low", "replicas": 0}
    world = World(small_scenario(services=[idle]))
    days = earlier_days.earlier_days(world, 1_700_000_000 * NS_PER_SECOND)
    assert not days.means[token_series("idle")].any()
    assert row_loads(world) == []


def test_a_meter_tells_rates_between_its_calls_through_a_counter_that_begins_anew() -> None:
    world = World(small_scenario())
    meter = TokenMeter(world)
    world.ledger.tokens = [100.0, 50.0]
    assert meter.rates(seconds_to_ns(10)) == {}
    world.ledger.tokens = [400.0, 50.0]
    assert meter.rates(seconds_to_ns(40)) == {"chat": 10.0, "summarise": 0.0}
    world.ledger = Ledger(2)
    world.ledger.tokens = [60.0, 0.0]
    assert meter.rates(seconds_to_ns(70)) == {"chat": 2.0, "summarise": 0.0}
    assert meter.rates(seconds_to_ns(70)) == {}


def test_a_board_serves_more_than_the_trace_asks_of_it_and_no_more_than_its_table_allows() -> None:
    world = World(small_scenario())
    for service in world.scenario.services:
        full = full_tokens_per_board(world, service)
        boards = service.replicas * service.tensor_parallel
        assert 0.5 < usual_tokens_per_second(world.scenario, service) / (full * boards) < 1.5


def test_a_run_records_the_tokens_of_its_requests() -> None:
    run = TwinRun(small_scenario(duration_seconds=80.0))
    run.run()
    until = -(-run.clock.wall_time_ns() // NS_PER_SECOND // BIN_SECONDS) * BIN_SECONDS
    name = SeriesId(token_series("chat"))
    newest = run.history.fetch([name], until - BIN_SECONDS, until, BIN_SECONDS)[0, -1]
    usual = usual_tokens_per_second(run.scenario, run.scenario.services[0])
    assert 0.3 * usual < newest < 3.0 * usual
