"""A training fleet on the twin's plant: its servers, and what they and their boards draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulation.plant_constants import PlantConstants, frozen_plant
from simulation.row_control.row_plant import RowPlant
from simulation.scenario import Scenario, load_scenario
from simulation.training_fleet.fleet_draws import FleetDraws
from simulation.training_fleet.fleet_jobs import fleet_jobs
from simulation.training_fleet.fleet_settings import FleetSettings
from wattpack.units import NS_PER_SECOND

Floats = NDArray[np.float64]

A100: Final = "A100-SXM"
GPUS: Final = 8
LIMIT_WATTS: Final = 400.0
BASE_WATTS: Final = 880.0
"""Server with 8 A100 without its boards, idle, DC: Acme's idle servers draw 1,512 W (the 2nd to the
12th percentile), times 0.94 less 1.1 x 8 x 62 W of idle boards. The plant's own is a DGX-H100's."""

RATED_WATTS: Final = 6_500.0
RACK_SERVERS: Final = 4
SETTLE_SECONDS: Final = 60
"""Three time constants of the fans: a sample does not remember where the plant stood before."""


class FleetSample(NamedTuple):
    """One moment.

    Attributes:
        seconds: Since time 0.
        server_watts: AC, mean of a second, (n_servers,).
        board_watts: As the boards' sensors read it, (n_boards,).
    """

    seconds: float
    server_watts: Floats
    board_watts: Floats


def a100_server() -> PlantConstants:
    """The frozen plant with an A100 server's base, and fans for its 3.2 kW as ``row_power`` has."""
    plant = frozen_plant()
    full = GPUS * LIMIT_WATTS
    return plant.model_copy(
        update={
            "host_base_watts": BASE_WATTS,
            "fan_range_watts": plant.fan_range_watts / plant.fan_full_gpu_watts * full,
            "fan_full_gpu_watts": full,
        }
    )


def fleet_scenario(servers: int, seed: int, settings: FleetSettings | None = None) -> Scenario:
    """Servers behind breakers that are never reached."""
    row = {
        "groups": [{"gpu_model": A100, "count": servers}],
        "gpus_per_server": GPUS,
        "racks": max(1, servers // RACK_SERVERS),
        "rated_servers": float(servers),
        "rated_server_watts": RATED_WATTS,
        "rack_rated_servers": 2.0 * RACK_SERVERS,
        "external_watts": 0.0,
    }
    return load_scenario(
        None,
        name="training-fleet",
        seed=seed,
        row=row,
        plant=a100_server().model_dump(),
        services=(),
        training=(),
        training_fleet=settings or FleetSettings(),
    )


def fleet_samples(scenario: Scenario, times: Floats) -> Iterator[FleetSample]:
    """Uncapped draws at some times; the plant plays the minute before each, second by second.

    Args:
        scenario: Its fleet, servers and plant; seed of everything.
        times: Rising, at least a minute apart, seconds since time 0.
    """
    settings = scenario.training_fleet or FleetSettings()
    row = scenario.row
    boards = row.servers * row.gpus_per_server
    jobs = fleet_jobs(
        settings, row.servers, row.gpus_per_server, float(times[-1]) + 1.0, scenario.seed
    )
    draws = FleetDraws(jobs, settings, scenario.plant, boards)
    plant = RowPlant(scenario, NS_PER_SECOND)
    bank = plant.bank
    for at in times.tolist():
        wanted = draws.wanted(at - SETTLE_SECONDS + 1.0 + np.arange(SETTLE_SECONDS))
        for level in wanted:
            plant.advance(np.maximum(level * bank.default_limit_watts, bank.idle_watts), 1.0)
        reading = plant.drawn_watts / bank.sensor_gain
        yield FleetSample(at, plant.servers.ac_watts.copy(), np.asarray(reading))
