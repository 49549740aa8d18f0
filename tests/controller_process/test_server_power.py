"""Whole servers' power out of Prometheus, and what a tick makes of it."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from controller.app.fleet import Fleet
from controller.app.server_power import ServerPower
from forecasting.prometheus import QueryApi
from tests.controller_process.messages import make_hello, make_reading
from tests.controller_process.object_builders import make_cluster, make_node
from tests.controller_process.test_tick_attacks import Bench
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

QUERY = "ipmi_dcmi_power_consumption_watts"


class Exporter:
    """A Prometheus that scraped BMCs ``age_seconds`` ago."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        if clock is None:
            self.clock.advance_seconds(1000)
        self.age_seconds = 5.0
        self.series: list[tuple[dict[str, str], Any]] = [({"node": "node-1"}, "9000")]
        self.down = False
        client = httpx.Client(transport=httpx.MockTransport(self.handle))
        api = QueryApi("http://prometheus:9090", "query", client=client)
        self.power = ServerPower(api, self.clock, QUERY, "node", 30.0)

    def handle(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            return httpx.Response(503)
        (query,) = parse_qs(request.content.decode())["query"]
        at = str(self.clock.wall_time_ns() / NS_PER_SECOND - self.age_seconds)
        result = [
            {"metric": labels, "value": [0, value if query == QUERY else at]}
            for labels, value in self.series
        ]
        data = {"resultType": "vector", "result": result}
        return httpx.Response(200, json={"status": "success", "data": data})

    def read(self) -> dict[str, float]:
        self.power.run_once()
        return {name: reading.watts for name, reading in self.power.read().items()}


def test_a_reading_carries_the_time_of_its_sample_on_our_clock() -> None:
    exporter = Exporter()
    assert exporter.read() == {"node-1": 9000.0}
    age_ns = exporter.clock.monotonic_ns() - exporter.power.read()["node-1"].time_ns
    assert age_ns == pytest.approx(5 * NS_PER_SECOND, abs=10**6)


def test_a_clock_that_is_ahead_makes_no_reading_of_the_future() -> None:
    exporter = Exporter()
    exporter.age_seconds = -8.0
    exporter.read()
    assert exporter.power.read()["node-1"].time_ns == exporter.clock.monotonic_ns()


@pytest.mark.parametrize("age_seconds", [31.0, -31.0])
def test_samples_of_another_time_are_none(age_seconds: float) -> None:
    exporter = Exporter()
    exporter.age_seconds = age_seconds
    assert exporter.read() == {}


def test_a_server_of_two_series_or_without_the_label_is_left_out() -> None:
    exporter = Exporter()
    exporter.series = [
        ({"node": "node-1", "supply": "1"}, "4500"),
        ({"node": "node-1", "supply": "2"}, "4500"),
        ({"instance": "10.0.0.7"}, "9000"),
        ({"node": "node-2"}, "8000"),
    ]
    assert exporter.read() == {"node-2": 8000.0}


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "9000000"])
def test_a_bmc_that_tells_nonsense_is_told_once_and_blinds_nobody_to_the_others(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = Exporter()
    exporter.series = [({"node": "node-1"}, value), ({"node": "node-2"}, "8000")]
    with caplog.at_level(logging.WARNING):
        assert [exporter.read() for _ in range(3)] == [{"node-2": 8000.0}] * 3
    (record,) = caplog.records
    assert "node-1: expected AC watts" in record.getMessage()


@pytest.mark.parametrize(
    "series",
    [
        [],
        [({"node": "node-2"}, "8000")],
        [({"node": "node-1"}, "NaN")],
        [({"node": "node-1", "supply": str(i)}, "4500") for i in range(2)],
    ],
    ids=["prometheus-began-again", "not-scraped", "nonsense", "twice"],
)
def test_a_server_that_one_answer_lacks_keeps_its_last_reading_which_ages(
    series: list[tuple[dict[str, str], Any]],
) -> None:
    exporter = Exporter()
    exporter.read()
    exporter.series = series
    exporter.clock.advance_seconds(25)
    assert exporter.read()["node-1"] == 9000.0
    exporter.clock.advance_seconds(1)
    assert "node-1" not in exporter.read()


@pytest.mark.parametrize("value", ["many", 9000])
def test_what_is_no_answer_is_told_once_and_changes_nothing(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = Exporter()
    exporter.read()
    exporter.series = [({"node": "node-1"}, value)]
    with caplog.at_level(logging.WARNING):
        assert [exporter.read() for _ in range(3)][-1] == {"node-1": 9000.0}
    assert len(caplog.records) == 1


def test_a_server_with_a_bmc_counts_at_what_it_draws_and_not_at_its_declared_worst() -> None:
    """Worst: 900 W AC. Two boards of 100 W and a host of 400 W: 638 W AC."""
    fleet = Fleet()
    fleet.hello(make_hello("node-1"))
    bench = Bench(make_cluster(make_node("node-1")), fleet)
    exporter = Exporter(bench.clock)
    exporter.age_seconds = 2.0
    bench.ticker._servers = exporter.power
    noise = np.random.default_rng(1)

    def draw(seconds: int) -> float:
        for _ in range(seconds):
            exporter.series = [({"node": "node-1"}, f"{638.0 + noise.normal():.1f}")]
            exporter.power.run_once()
            boards = [
                make_reading(f"node-1-gpu-{i}", draw_watts=100.0 + 0.1 * noise.normal())
                for i in range(2)
            ]
            outcome = bench.tick("node-1", devices=boards)
        assert outcome is not None
        return float(outcome.decisions.draw_watts[0])

    assert draw(1) == pytest.approx(200.0 / 0.94 + 900.0, rel=0.01)
    assert draw(60) == pytest.approx(638.0, rel=0.02)
    metrics = bench.ticker._metrics
    assert metrics.registry.get_sample_value("wattpack_metered_servers") == 1.0
    assert metrics.registry.get_sample_value("wattpack_unread_servers") == 0.0
    exporter.down = True
    # Until they are too old; then the declared worst counts again.
    assert draw(20) == pytest.approx(638.0, rel=0.02)
    assert draw(20) == pytest.approx(200.0 / 0.94 + 900.0, rel=0.01)
    assert metrics.registry.get_sample_value("wattpack_metered_servers") == 0.0
    assert metrics.registry.get_sample_value("wattpack_unread_servers") == 1.0
