"""Domain meters out of Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from controller.app.fleet import Fleet
from controller.app.prometheus_meters import FEED_SHARES, PrometheusMeters
from forecasting.prometheus import QueryApi
from tests.controller_process.messages import make_hello
from tests.controller_process.object_builders import DOMAINS, make_cluster, make_domain, make_node
from tests.controller_process.test_tick_attacks import Bench
from wattpack.api.breaker_and_feeds import FeedShareSpec
from wattpack.api.power_domain import MeterSpec
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

QUERY = "breaker_watts"


def vector(value: object, at: float = 0.0) -> httpx.Response:
    result = [{"metric": {}, "value": [at, value]}]
    return success({"resultType": "vector", "result": result})


def success(data: object) -> httpx.Response:
    return httpx.Response(200, json={"status": "success", "data": data})


class Meter:
    """A Prometheus that scraped ``watts`` ``age_seconds`` ago."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.watts: object = "1000"
        self.age_seconds = 1.0
        self.answer: Callable[[], httpx.Response] | None = None

    def handle(self, request: httpx.Request) -> httpx.Response:
        if self.answer is not None:
            return self.answer()
        (query,) = parse_qs(request.content.decode())["query"]
        if query == f"timestamp({QUERY})":
            return vector(str(self.clock.wall_time_ns() / NS_PER_SECOND - self.age_seconds))
        assert query == QUERY
        return vector(self.watts)


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance_seconds(100)
        self.meter = Meter(self.clock)
        self.specs = {"row": MeterSpec(prometheus_query=QUERY, max_age_seconds=10)}
        client = httpx.Client(transport=httpx.MockTransport(self.meter.handle))
        api = QueryApi("http://prometheus:9090", "query", client=client)
        self.meters = PrometheusMeters(api, self.clock, lambda: self.specs)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_reading_carries_the_time_of_its_sample_on_our_clock(rig: Rig) -> None:
    rig.meters.ask_all()
    watts, time_ns = rig.meters.read()["row"]
    assert watts == 1000.0
    assert time_ns == pytest.approx(rig.clock.monotonic_ns() - NS_PER_SECOND, abs=10**6)


def test_a_reading_ages_out_when_prometheus_goes_away(rig: Rig) -> None:
    rig.meters.ask_all()
    rig.meter.answer = lambda: httpx.Response(503)
    rig.clock.advance_seconds(8)
    rig.meters.ask_all()
    assert "row" in rig.meters.read()
    rig.clock.advance_seconds(2)
    assert rig.meters.read() == {}


def test_a_meter_whose_last_sample_is_old_is_no_meter(rig: Rig) -> None:
    rig.meter.age_seconds = 11
    rig.meters.ask_all()
    assert rig.meters.read() == {}


def test_a_clock_ahead_of_ours_gives_no_reading_of_the_future(rig: Rig) -> None:
    rig.meter.age_seconds = -3
    rig.meters.ask_all()
    assert rig.meters.read()["row"][1] <= rig.clock.monotonic_ns()
    rig.meter.age_seconds = -3600
    rig.clock.advance_seconds(11)
    rig.meters.ask_all()
    assert rig.meters.read() == {}


def test_a_domain_that_lost_its_meter_is_forgotten(rig: Rig) -> None:
    rig.meters.ask_all()
    rig.specs = {"row": MeterSpec()}
    rig.meters.ask_all()
    assert rig.meters.read() == {}


def test_a_reading_of_a_query_that_was_mended_is_no_reading_of_the_new_one(rig: Rig) -> None:
    rig.meters.ask_all()
    rig.specs = {"row": MeterSpec(prometheus_query=f"1000 * {QUERY}", max_age_seconds=3600)}
    rig.meter.answer = lambda: httpx.Response(503)
    rig.meters.ask_all()
    assert rig.meters.read() == {}


@pytest.mark.parametrize("watts", ["-1", "NaN", "+Inf", "many", 12, None])
def test_what_is_no_power_is_no_reading(rig: Rig, watts: Any) -> None:
    rig.meter.watts = watts
    rig.meters.ask_all()
    assert rig.meters.read() == {}


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"resultType": "matrix", "result": []},
        {"resultType": "vector", "result": []},
        {"resultType": "vector", "result": [1, 2]},
        {"resultType": "vector", "result": [{"value": [1]}]},
        {"resultType": "vector", "result": ["x"]},
    ],
)
def test_an_answer_that_is_no_single_series_is_no_reading(rig: Rig, data: object) -> None:
    rig.meter.answer = lambda: success(data)
    rig.meters.ask_all()
    assert rig.meters.read() == {}


class FeedRig(Rig):
    """The same Prometheus, asked for shares of feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0
        self.feeds = {"row": FeedShareSpec(prometheus_query=QUERY)}
        client = httpx.Client(transport=httpx.MockTransport(self.meter.handle))
        api = QueryApi("http://prometheus:9090", "query", client=client)
        self.meters = PrometheusMeters(api, self.clock, lambda: self.feeds, FEED_SHARES, self.wake)

    def wake(self) -> None:
        self.woken += 1


@pytest.mark.parametrize("share", ["1.01", "-0.1", "33"])
def test_a_share_beyond_the_whole_is_no_reading(share: str) -> None:
    rig = FeedRig()
    rig.meter.watts = share
    rig.meters.ask_all()
    assert rig.meters.read() == {}


def test_a_feed_that_seems_lost_makes_a_tick_due_at_once_and_noise_does_not() -> None:
    rig = FeedRig()
    for share, woken in (("0.250", 0), ("0.252", 0), ("0.333", 1), ("0.333", 1), ("0.25", 1)):
        rig.meter.watts = share
        rig.meters.ask_all()
        assert rig.meters.read()["row"][0] == float(share)
        assert rig.woken == woken


def test_the_tick_never_waits_for_prometheus(rig: Rig) -> None:
    """What it reads lies there already: no answer, no wait, nothing new."""

    def unreachable() -> httpx.Response:
        raise AssertionError("read() asked Prometheus")

    rig.meter.answer = unreachable
    assert rig.meters.read() == {}


def test_a_declared_meter_that_nobody_reads_shows_in_the_metrics_and_no_other_does() -> None:
    """Also one that was never read: a controller without ``meter_prometheus_url``."""
    fleet = Fleet()
    fleet.hello(make_hello("node-1"))
    bench = Bench(make_cluster(make_node("node-1")), fleet)
    metrics = bench.ticker._metrics

    def unused() -> float | None:
        name = "wattpack_domain_meter_unused_seconds"
        return metrics.registry.get_sample_value(name, {"domain": "row"})

    for _ in range(5):
        bench.tick("node-1")
    assert unused() is None
    plain = make_domain()
    metered = make_domain(meter={"prometheusQuery": QUERY})
    metered["metadata"]["generation"] = 2
    bench.cluster.put(DOMAINS, metered, plain)
    for _ in range(70):
        bench.tick("node-1")
    seconds = unused()
    assert seconds is not None
    assert seconds > 60.0
    metered_no_more = make_domain()
    metered_no_more["metadata"]["generation"] = 3
    bench.cluster.put(DOMAINS, metered_no_more, metered)
    bench.tick("node-1")
    assert unused() is None
