"""What stands around the boards, compiled, against the numpy form, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.compiled_breakers import CompiledBreakers
from simulation.compiled_server_row import CompiledServerRow
from simulation.inference_row.client_arrivals import RowRequests
from simulation.inference_row.row_work import InferenceWork
from simulation.inference_row.served_rows import times_of_model
from simulation.plant import ROW, ServerRow
from simulation.plant_breakers import Breakers
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import Held
from simulation.scenario import load_scenario
from simulation.trip_bands import TripBands
from wattpack.compiled import AVAILABLE
from wattpack.units import NS_PER_SECOND

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="numba is not there")

SCENARIO = load_scenario()
STEPS = 3000
CURVE = ((1.05, 900.0), (1.5, 60.0), (4.0, 5.0))


def test_compiled_servers_around_the_boards_are_the_servers() -> None:
    servers, each = SCENARIO.row.servers, SCENARIO.row.gpus_per_server
    node_of_gpu = np.repeat(np.arange(servers), each)
    plain, compiled = (
        kind(SCENARIO, node_of_gpu, np.random.default_rng(3))
        for kind in (ServerRow, CompiledServerRow)
    )
    generator = np.random.default_rng(4)
    for step in range(STEPS):
        watts = generator.uniform(0.0, 800.0, servers * each)
        seconds = float(generator.choice([0.25, 0.25, 0.1, 1.0, 10.0]))
        domains = [row.advance(watts, seconds) for row in (plain, compiled)]
        np.testing.assert_array_equal(*domains)
        for name in ("gpu_watts", "host_watts", "ac_watts", "_heat_watts", "_noise"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(compiled, name), name)
        if step in (1000, 2000):
            for row in (plain, compiled):
                row.switch_off(ROW + step // 1000)
    assert not plain.on.all()


def test_compiled_breakers_are_the_breakers() -> None:
    def made(kind: type[Breakers]) -> Breakers:
        bands = TripBands([CURVE] * 4, 0.2, np.random.default_rng(1))
        rating = np.array([400.0, 100.0, 120.0, 200.0])
        return kind(rating, bands, cooling_seconds=600.0, magnetic_ratio=6.0, feeds=2)

    plain, compiled = made(Breakers), made(CompiledBreakers)
    generator = np.random.default_rng(2)
    level, over = 0.8, 0
    for step in range(STEPS):
        if step % 50 == 0:
            level = generator.uniform(0.5, 1.2 if step < 2000 else 8.0)
            plain.lost_feeds = compiled.lost_feeds = generator.integers(0, 2, 4)
        if step == 1000:
            plain.reset_peaks(), compiled.reset_peaks()
        watts = plain.rating_watts * level * generator.uniform(0.9, 1.1, 4)
        opened = [breakers.advance(watts, 0.25) for breakers in (plain, compiled)]
        np.testing.assert_array_equal(*opened)
        over += int((plain.ratio > 1.0).any())
        for name in ("ratio", "heat", "max_heat", "peak_ratio", "tripped", "seconds_above_rating"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(compiled, name), name)
    assert 0 < over < STEPS
    assert plain.tripped.any()


def test_compiled_shares_are_the_shares() -> None:
    plant = RowPlant(SCENARIO, 0)
    generator = np.random.default_rng(5)
    n, some_dead = plant.n_gpus, 0
    for step in range(400):
        if step % 40 == 7:
            plant.reboot(
                int(generator.integers(0, plant.n_nodes)), plant.now_ns + 2 * NS_PER_SECOND
            )
        if step % 40 == 9:
            plant.bank.lost[generator.integers(0, n)] = True
        if step == 300:
            plant.servers.switch_off(1)
        plant.bank.lock_max_mhz[generator.integers(0, n)] = generator.choice([0.0, 1200.0])
        if step % 100 == 50:
            plant.bank.lock_max_mhz[:] = 0.0
        plant.bank.set_limits(generator.uniform(300.0, 700.0, n))
        plant.advance(generator.uniform(0.0, 800.0, n), 0.25)
        seen, plain = plant.held(), plant.held_in_numpy()
        for name in ("drawn_share", "clock_share", "alive"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(plain, name), name)
        some_dead += int(not plain.alive.all())
    assert 0 < some_dead < 400


@pytest.mark.parametrize("model", ["A100-SXM", "H100-SXM"])
def test_compiled_speeds_of_servers_are_their_speeds(model: str) -> None:
    nothing = np.zeros(0)
    whole = nothing.astype(np.int64)
    requests = RowRequests(nothing, whole, nothing, nothing, whole)
    work = InferenceWork(requests, np.zeros(13, dtype=np.int64), 0.0, times=times_of_model(model))
    generator, n = np.random.default_rng(6), 13 * 8
    for _ in range(1000):
        held = Held(
            np.where(generator.random(n) < 0.9, generator.uniform(0.3, 1.0, n), 1.0),
            np.where(generator.random(n) < 0.9, 1.0, generator.uniform(0.4, 1.0, n)),
            generator.random(n) < 0.99,
        )
        compiled, plain = work._speeds(held), work.speeds_in_numpy(held)
        np.testing.assert_array_equal(compiled, plain)
