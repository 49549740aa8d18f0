"""Servers of H100 and H200 in the inference row: as the step tables have them."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.profile_library import shipped_library
from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork
from capacity.step_table_times import (
    DRAW_ERROR,
    LANGUAGE_MODEL,
    TIME_ERROR,
    step_table_times,
)
from simulation.inference_row.batching_servers import BatchingServers
from simulation.inference_row.client_arrivals import ClientArrivals, RowRequests
from simulation.inference_row.row_power import ServerPower, ServersAround
from simulation.inference_row.row_under_policy import Window, polca_scenario, run_policy
from simulation.plant_constants import frozen_plant
from wattpack.errors import InputError

BOARDS = ("H100-SXM", "H200-SXM")
MEMORY_BYTES = 80e9


@pytest.mark.parametrize("gpu", BOARDS)
def test_times_and_draws_are_the_tables(gpu: str) -> None:
    times = step_table_times(gpu, MEMORY_BYTES)
    table = shipped_step_tables().find(gpu, LANGUAGE_MODEL, 8)
    limit = table.default_limit_watts
    assert limit == shipped_library().find(gpu).default_limit_watts
    for batch in (1, 4, 16, 64):
        for context in (1024.0, 2048.0, 6000.0):
            made = table.iteration(IterationWork.of(0.0, 1.0, batch, context))
            which, held = np.array([batch]), np.array([batch * context])
            seconds = times.seconds_of_token(which, held)
            assert seconds == pytest.approx(table.limited_seconds(made, limit), rel=TIME_ERROR)
            assert times.watts_of_decode(which, held) == pytest.approx(made.watts, rel=DRAW_ERROR)
    for tokens in (700.0, 3000.0, 8192.0):
        made = table.iteration(IterationWork.of(tokens, tokens, 0.0, 1.0))
        asked = np.array([tokens])
        assert times.seconds_of_prompt(asked) == pytest.approx(made.seconds, rel=0.04)
        assert times.watts_of_prompt(asked) == pytest.approx(
            np.minimum(made.watts, limit), rel=0.03
        )


def test_a_board_without_a_table_is_refused() -> None:
    with pytest.raises(InputError):
        step_table_times("T4", 16e9)


def test_idle_servers_draw_what_their_boards_do() -> None:
    times = step_table_times("H200-SXM", 141e9)
    none = np.zeros(0)
    servers = BatchingServers(
        RowRequests(none, none.astype(int), none, none, none.astype(int)), 2, times=times
    )
    one = np.ones(2)
    assert servers.step(1.0, one, one).watts == pytest.approx([times.idle_watts] * 2)


def test_a_server_by_its_nameplate_is_the_plants_own() -> None:
    power = ServerPower.of_nameplate(10_200.0, 700.0)
    assert power.plant == frozen_plant()
    assert power.row_rating_watts == 408_000.0
    assert power.gpu_share == pytest.approx(5600 / 10_200)
    full = np.array([5600.0])
    # The nameplate is above what the server draws: nothing is provisioned tighter than that.
    assert 0.8 * 10_200 < ServersAround(power, full).step(full, 1.0)[0] < 10_200
    with pytest.raises(InputError, match="rated_ac_watts"):
        ServerPower.of_nameplate(0.0, 700.0)


@pytest.mark.parametrize("policy", ["polca", "wattpack"])
def test_such_a_row_runs_under_a_policy(policy: str) -> None:
    times = step_table_times("H100-SXM", MEMORY_BYTES)
    arrivals = ClientArrivals(4, load=0.4, burst_cv=1.5, seed=2, days=1, times=times)
    power = ServerPower.of_nameplate(10_200.0, times.tdp_watts)
    scenario = polca_scenario(4, 2, power, gpu_model=times.gpu_model)
    made = run_policy(policy, arrivals, Window(43_200.0, 4.0, 6.0, 2.0), scenario)
    assert 0.02 < made.result.load_ratio[:, 0].mean() < 0.1
    assert made.result.trips == 0
    assert np.isfinite(made.work.servers.first_seconds).any()
