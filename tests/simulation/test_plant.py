"""Breakers, meters and servers: conservation laws and the published points they are fitted to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.plant import ServerRow
from simulation.plant_breakers import Breakers, Meters
from simulation.scenario import MeterSettings, load_scenario
from tests.examples import examples
from tests.simulation.twin_builders import small_scenario
from wattpack.units import NS_PER_SECOND


def breaker(feeds: int = 1, a: float = 30.3, b: float = 0.605) -> Breakers:
    return Breakers(np.array([100.0]), np.array([a]), np.array([b]), 600.0, 5.0, feeds)


def seconds_to_trip(b: Breakers, watts: float, step: float = 0.5) -> float:
    for i in range(1, 4_000):
        if b.advance(np.array([watts]), step).any():
            return i * step
    return np.inf


@pytest.mark.parametrize(
    ("a", "b", "ratio", "published_seconds"),
    [
        (30.3, 0.605, 1.05, 120),
        (30.3, 0.605, 1.15, 60),
        (55.6, 1.864, 1.1, 1020),
        (55.6, 1.864, 1.4, 60),
    ],
)
def test_a_breaker_opens_when_published_curves_say(
    a: float, b: float, ratio: float, published_seconds: float
) -> None:
    assert seconds_to_trip(breaker(a=a, b=b), 100.0 * ratio) == pytest.approx(
        published_seconds, rel=0.02
    )


def test_a_breaker_never_opens_at_its_rating_and_at_once_on_a_short() -> None:
    assert seconds_to_trip(breaker(), 100.0) == np.inf
    assert seconds_to_trip(breaker(), 500.0) == 0.5


def test_heat_carries_over_and_cools_by_its_time_constant() -> None:
    b = breaker()
    b.advance(np.array([120.0]), 10.0)
    heat = float(b.heat[0])
    b.advance(np.array([90.0]), 600.0)
    assert b.heat[0] == pytest.approx(heat / np.e)
    assert b.max_heat[0] == pytest.approx(heat)
    assert b.seconds_above_rating[0] == 10.0


def test_a_lost_feed_doubles_the_load_of_the_other() -> None:
    b = breaker(feeds=2)
    assert b.load_ratio(np.array([140.0]))[0] == pytest.approx(0.7)
    b.lost_feeds[:] = 1
    assert b.load_ratio(np.array([140.0]))[0] == pytest.approx(1.4)


def test_a_breaker_trips_once() -> None:
    b = breaker()
    opened = [b.advance(np.array([200.0]), 1.0).any() for _ in range(60)]
    assert sum(opened) == 1


def meters(**settings: float) -> Meters:
    values = {"noise_ratio": 0.0, "gap_probability": 0.0} | settings
    return Meters(MeterSettings(**values), 1, np.random.default_rng(0))


def test_a_meter_gives_the_mean_of_its_period_late() -> None:
    m = meters(delay_seconds=2.0)
    watts = [100.0, 300.0, 500.0, 700.0]
    for i in range(12):
        begin, end = i * NS_PER_SECOND // 4, (i + 1) * NS_PER_SECOND // 4
        m.advance(np.array([watts[i % 4]]), begin, end)
        if end < 3 * NS_PER_SECOND:
            assert np.isnan(m.watts[0])
    assert m.watts[0] == pytest.approx(400.0)
    assert m.time_ns[0] == NS_PER_SECOND


def test_a_silent_meter_keeps_its_last_reading_and_its_time() -> None:
    m = meters(delay_seconds=0.0)
    m.advance(np.array([50.0]), 0, NS_PER_SECOND)
    m.silent[:] = True
    m.advance(np.array([90.0]), NS_PER_SECOND, 2 * NS_PER_SECOND)
    assert (m.watts[0], m.time_ns[0]) == (50.0, NS_PER_SECOND)


def server_row(**overrides: object) -> tuple[ServerRow, int]:
    scenario = small_scenario(plant={"host_noise_ratio": 0.0}, **overrides)
    gpus = scenario.row.servers * scenario.row.gpus_per_server
    node_of_gpu = np.repeat(np.arange(scenario.row.servers), scenario.row.gpus_per_server)
    return ServerRow(scenario, node_of_gpu, np.random.default_rng(0)), gpus


@examples(30)
@given(st.lists(st.floats(0.0, 800.0), min_size=32, max_size=32), st.floats(0.1, 10.0))
def test_the_row_is_the_sum_of_its_racks_and_of_its_servers(
    watts: list[float], seconds: float
) -> None:
    row, _ = server_row()
    domains = row.advance(np.array(watts), seconds)
    assert domains[0] == pytest.approx(domains[1:].sum())
    assert domains[0] == pytest.approx(row.ac_watts.sum())
    dc = sum(watts) + row.host_watts.sum()
    assert domains[0] == pytest.approx(dc / 0.94)


def test_an_idle_server_draws_what_was_measured_at_the_wall() -> None:
    row, gpus = server_row()
    row.advance(np.full(gpus, 72.0), 1.0)
    assert row.ac_watts[0] == pytest.approx(2220.0, rel=0.03)


def test_servers_without_gpus_are_never_a_constant() -> None:
    row, gpus = server_row()
    row.advance(np.full(gpus, 72.0), 600.0)
    idle = row.host_watts[0]
    row.advance(np.full(gpus, 700.0), 0.25)
    at_once = row.host_watts[0]
    row.advance(np.full(gpus, 700.0), 600.0)
    assert at_once - idle == pytest.approx(0.1 * 8 * 628.0, rel=0.05)
    assert row.host_watts[0] - at_once > 700.0  # fans follow the heat


def test_an_open_breaker_darkens_only_what_is_below_it() -> None:
    row, gpus = server_row()
    row.switch_off(1)
    domains = row.advance(np.full(gpus, 500.0), 1.0)
    assert domains[1] == 0.0
    assert domains[2] > 0.0
    row.switch_off(0)
    assert row.advance(np.full(gpus, 500.0), 1.0).sum() == 0.0


def test_gpu_share_of_a_busy_server_is_about_the_published_half() -> None:
    scenario = load_scenario()
    plant = scenario.plant
    full = plant.fan_full_gpu_watts
    host = plant.host_base_watts + plant.host_watts_per_gpu_watt * full + plant.fan_range_watts
    assert 0.5 < full / (full + host) < 0.7
    assert 0.5 < full / scenario.row.rated_server_watts < 0.6
