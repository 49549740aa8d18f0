"""The training fleet: who holds which board when, what boards want, and which pods it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from simulation.app.twin_run import run_twin
from simulation.plant_constants import frozen_plant
from simulation.scenario import load_scenario
from simulation.training_fleet.fleet_draws import FleetDraws
from simulation.training_fleet.fleet_jobs import DAY_SECONDS, Job, fleet_jobs
from simulation.training_fleet.fleet_row import (
    BASE_WATTS,
    a100_server,
    fleet_samples,
    fleet_scenario,
)
from simulation.training_fleet.fleet_settings import FleetSettings
from simulation.work_calendar import WorkCalendar
from tests.simulation.twin_builders import small_scenario
from wattpack.errors import InputError

FLEET = FleetSettings()
HOUR = 3600.0


def jobs_of(settings: FleetSettings = FLEET, seed: int = 3, days: float = 4.0) -> list[Job]:
    return fleet_jobs(settings, 40, 8, days * DAY_SECONDS, seed)


def running(jobs: Iterable[Job], seconds: float) -> list[Job]:
    return [job for job in jobs if job.begin_seconds <= seconds < job.end_seconds]


def test_a_board_has_one_job_at_a_time_and_a_gang_whole_servers() -> None:
    jobs = jobs_of()
    assert jobs == jobs_of()
    assert jobs != jobs_of(seed=4)
    for hour in range(0, 96, 5):
        held = Counter(board for job in running(jobs, hour * HOUR) for board in job.boards)
        assert max(held.values()) == 1
    for job in jobs:
        servers = Counter(board // 8 for board in job.boards)
        assert set(servers.values()) == {8} if job.gang else len(servers) == 1


def test_shares_of_servers_and_boards_are_what_was_asked_for() -> None:
    shares = {"spare_share": 0.25, "gang_share": 0.5, "gang_gap_share": 0.2}
    ones = (1.0, 0.0, 0.0, 0.0)
    settings = FleetSettings(**shares, small_load=0.5, small_gpus=ones, day_ratio=0.0)
    jobs, days = jobs_of(settings, days=20.0), 20.0
    at = np.linspace(0.0, days * DAY_SECONDS - 1.0, 400)
    gangs, small = (
        np.mean([sum(len(j.boards) for j in running(jobs, s) if j.gang is gang) for s in at])
        for gang in (True, False)
    )
    assert gangs / (20 * 8) == pytest.approx(0.8, abs=0.08)
    assert small / (10 * 8) == pytest.approx(0.5, abs=0.08)
    used = {board // 8 for job in jobs for board in job.boards}
    assert len(used) == 30


def test_small_jobs_follow_the_day() -> None:
    begins = np.array([job.begin_seconds for job in jobs_of(days=30.0) if not job.gang])
    hours = begins[begins > 0.0] / HOUR % 24.0
    day = np.mean((hours > 11.0) & (hours < 19.0))
    night = np.mean((hours < 7.0) | (hours > 23.0))
    assert day > 1.5 * night


def test_gangs_dip_together_and_wait_as_often_as_told() -> None:
    gang = Job(0.0, 1e6, tuple(range(16)), True, 0.9, 0.75, 400.0, 0.0)
    settings, plant = FleetSettings(waiting_level=0.2), frozen_plant()
    draws = FleetDraws([gang], settings, plant, 24)
    wanted = draws.wanted(np.arange(0.0, 4000.0, 0.37))
    assert (wanted[:, :16] == wanted[:, :1]).all()
    assert (wanted[:, 16:] == 0.0).all()
    assert np.mean(wanted[:, 0] == 0.2) == pytest.approx(0.25, abs=0.01)
    computing = wanted[wanted[:, 0] > 0.2, 0]
    assert set(computing.round(6).tolist()) == {0.9, 0.45}
    assert np.mean(computing == 0.45) == pytest.approx(plant.training_dip_share, abs=0.02)
    alone = FleetDraws([replace(gang, gang=False)], settings, plant, 24)
    assert set(alone.wanted(np.arange(0.0, 400.0))[:, 0].tolist()) == {0.9, 0.2}


def test_times_may_be_asked_for_in_parts() -> None:
    draws = FleetDraws(jobs_of(), FLEET, frozen_plant(), 320)
    times = np.array([10.0, 5_000.0, 90_000.0])
    parts = np.concatenate([draws.wanted(times[i : i + 1]) for i in range(3)])
    assert (draws.wanted(times) == parts).all()


def test_an_idle_server_draws_what_acme_s_do() -> None:
    plant = a100_server()
    idle = (BASE_WATTS + (1.0 + plant.host_watts_per_gpu_watt) * 8 * 62.0) / plant.supply_efficiency
    assert idle == pytest.approx(1512.0, rel=0.01)
    # Only what stands around eight A100 differs from the frozen plant.
    changed = {name for name, value in plant if value != getattr(frozen_plant(), name)}
    assert changed == {"host_base_watts", "fan_range_watts", "fan_full_gpu_watts"}


def test_a_moment_does_not_depend_on_the_moments_before() -> None:
    scenario = fleet_scenario(8, 5)
    both = list(fleet_samples(scenario, np.array([3_000.0, 9_000.0])))
    (late,) = fleet_samples(scenario, np.array([9_000.0]))
    # Noise of hosts aside, which is 1 %.
    assert both[1].server_watts == pytest.approx(late.server_watts, rel=0.03)
    assert not np.allclose(both[0].server_watts, both[1].server_watts, rtol=0.03)


def test_a_scenario_names_the_fleet_and_the_twin_gets_its_pods() -> None:
    scenario = load_scenario(None, training_fleet={"small_gpus": [0.0, 0.0, 1.0, 0.0]})
    works = WorkCalendar(scenario).due(scenario.duration_seconds)
    fleet = [work for work in works if work.name.startswith("fleet-")]
    assert fleet
    assert not [work for work in works if work.name.startswith("batch-")]
    gangs = Counter(work.gang for work in fleet if work.gang)
    assert gangs == {work.gang: work.gang_size for work in fleet if work.gang}
    assert {work.gpus for work in fleet if not work.gang} <= {4, 8}
    assert all(0.0 < work.load_ratio <= 1.0 and work.duration_seconds > 0.0 for work in fleet)
    assert [w.start_seconds for w in fleet] == sorted(w.start_seconds for w in fleet)
    plain = WorkCalendar(load_scenario()).due(60.0)
    assert not [work for work in plain if work.name.startswith("fleet-")]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"spare_share": 0.6, "gang_share": 0.6}, "spare_share and gang_share"),
        ({"small_gpus": [0.5, 0.5, 0.5, 0.5]}, "small_gpus"),
        ({"gang_hour": 2}, r"training_fleet\.gang_hour"),
        ({"gang_hours": 0}, r"training_fleet\.gang_hours"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_by_its_key(values: dict[str, object], key: str) -> None:
    with pytest.raises(InputError, match=key):
        load_scenario(None, training_fleet=values)


def test_the_fleet_s_pods_run_in_the_twin() -> None:
    row = {
        "groups": [{"gpu_model": "A100-SXM", "count": 4}],
        "racks": 2,
        "rated_servers": 4,
        "rated_server_watts": 6500,
        "rack_rated_servers": 2.4,
        "external_watts": 0.0,
    }
    fleet = {"training_fleet": {"spare_share": 0.0}, "services": [], "training": [], "row": row}
    result, empty = (
        run_twin(small_scenario(**fleet, **more))
        for more in ({}, {"batch": {"first_pod_seconds": 1e6}})
    )
    assert (result.pods_pending, empty.pods_placed) == (0, 0)
    assert result.work_gpu_seconds["batch"] > 0.0
    assert result.energy_joules > 1.2 * empty.energy_joules
