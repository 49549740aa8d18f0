"""Breakers, meters and servers: conservation laws and the published points they are fitted to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.plant import ServerRow
from simulation.plant_breakers import Breakers, Meters
from simulation.row_settings import MeterSettings
from simulation.scenario import load_scenario
from simulation.trip_bands import Points, TripBands
from tests.examples import examples
from tests.simulation.twin_builders import small_scenario
from wattpack.units import NS_PER_SECOND

ROW_POINTS = ((1.05, 120.0), (1.15, 60.0))
RACK_POINTS = ((1.1, 1020.0), (1.4, 60.0))


def breaker(points: Points = ROW_POINTS, **feeds: int) -> Breakers:
    bands = TripBands([points], 0.2)
    return Breakers(np.array([100.0]), bands, cooling_seconds=600.0, magnetic_ratio=5.0, **feeds)


def seconds_to_trip(b: Breakers, watts: float, step: float = 0.5) -> float:
    for i in range(1, 4_000):
        if b.advance(np.array([watts]), step).any():
            return i * step
    return np.inf


@pytest.mark.parametrize(
    ("points", "ratio", "published_seconds"),
    [
        (ROW_POINTS, 1.05, 120),
        (ROW_POINTS, 1.15, 60),
        (RACK_POINTS, 1.1, 1020),
        (RACK_POINTS, 1.4, 60),
    ],
)
def test_a_breaker_opens_when_published_curves_say(
    points: Points, ratio: float, published_seconds: float
) -> None:
    assert seconds_to_trip(breaker(points), 100.0 * ratio) == pytest.approx(
        published_seconds, rel=0.02
    )


@pytest.mark.parametrize("ratio", [1.01, 1.1, 1.5, 2.0, 4.0])
def test_each_breaker_trips_inside_its_band_and_some_runs_at_its_lower_edge(ratio: float) -> None:
    shares: list[float] = []
    edges = 0
    for seed in range(200):
        bands = TripBands([ROW_POINTS, RACK_POINTS], 0.2, np.random.default_rng(seed))
        middle = TripBands([ROW_POINTS, RACK_POINTS], 0.2)
        load = np.full(2, ratio)
        share = bands.seconds_to_trip(load) / middle.seconds_to_trip(load)
        assert bands.earliest_seconds(load) == pytest.approx(0.8 * middle.seconds_to_trip(load))
        edges += bool((np.abs(share - 0.8) < 1e-9).all())
        shares.extend(share)
    assert min(shares) >= 0.8 - 1e-9
    assert max(shares) <= 1.2 + 1e-9
    assert np.ptp(shares) > 0.35
    assert 30 <= edges <= 70


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


@pytest.mark.parametrize(
    ("feeds", "required", "lost", "ratio"),
    [
        (1, 1, 0, 1.4),
        (2, 1, 0, 0.7),
        (2, 1, 1, 1.4),
        (4, 2, 0, 0.7),
        (4, 2, 2, 1.4),
        (4, 2, 3, 2.8),
    ],
)
def test_the_feeds_that_are_left_carry_the_load(
    feeds: int, required: int, lost: int, ratio: float
) -> None:
    b = breaker(feeds=feeds, required_feeds=required)
    b.lost_feeds[:] = lost
    assert b.load_ratio(np.array([140.0]))[0] == pytest.approx(ratio)


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


def test_a_coarse_meter_gives_multiples_of_its_resolution() -> None:
    m = meters(delay_seconds=0.0, resolution_watts=10.0)
    m.advance(np.array([1234.0]), 0, NS_PER_SECOND)
    assert m.watts[0] == 1230.0


def test_a_silent_meter_keeps_its_last_reading_and_its_time() -> None:
    m = meters(delay_seconds=0.0)
    m.advance(np.array([50.0]), 0, NS_PER_SECOND)
    m.silent[:] = True
    m.advance(np.array([90.0]), NS_PER_SECOND, 2 * NS_PER_SECOND)
    assert (m.watts[0], m.time_ns[0]) == (50.0, NS_PER_SECOND)


def test_a_stuck_meter_says_its_last_reading_anew() -> None:
    m = meters(delay_seconds=0.0)
    m.advance(np.array([50.0]), 0, NS_PER_SECOND)
    m.stuck[:] = True
    m.advance(np.array([90.0]), NS_PER_SECOND, 2 * NS_PER_SECOND)
    assert (m.watts[0], m.time_ns[0]) == (50.0, 2 * NS_PER_SECOND)


SAME = {"host_noise_ratio": 0.0, "host_base_spread_ratio": 0.0, "fan_range_spread_ratio": 0.0}


def server_row(**plant: float) -> tuple[ServerRow, int]:
    scenario = small_scenario(plant=SAME | plant)
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


def test_no_two_servers_are_alike_and_none_exceeds_what_is_declared() -> None:
    row, gpus = server_row(host_base_spread_ratio=0.05, fan_range_spread_ratio=0.15)
    row.advance(np.full(gpus, 72.0), 600.0)
    assert np.ptp(row.host_watts) > 20.0
    row.advance(np.full(gpus, 735.0), 600.0)
    assert (row.host_watts <= small_scenario().plant.worst_host_watts).all()


def test_fans_and_noise_do_not_depend_on_the_step() -> None:
    joules, spreads = [], []
    for steps in (600, 60):
        row, gpus = server_row()
        row.advance(np.full(gpus, 100.0), 300.0)
        seconds = 60.0 / steps
        joules.append(sum(
            row.advance(np.full(gpus, 600.0), seconds)[0] * seconds for _ in range(steps)
        ))  # fmt: skip
        row, gpus = server_row(host_noise_ratio=0.01)
        watts = [row.advance(np.full(gpus, 100.0), 20.0 * seconds)[0] for _ in range(400)]
        spreads.append(np.std(watts) / np.mean(watts))
    assert joules[0] == pytest.approx(joules[1], rel=1e-3)
    assert spreads[0] == pytest.approx(spreads[1], rel=0.3)


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
