"""The simulated training fleet against Acme's published servers: how often which draw.

286 servers of eight A100 (Acme's cluster Seren) on the twin's plant, seen 400 times in 184 days
(the published trace: March to August 2023). Their draws are held against the published distribution
by the distance of Kolmogorov and Smirnov, the largest difference of two cumulative distributions.

The fleet was fitted to Seren's servers on seeds 1 and 2, by the formula of its plant; seeds 41 to
43 judge, on the plant itself, by the worst of them. One distribution of servers is published, so
only chance is held out: in four weeks some 500 gangs decide, and this fleet is 0.03 to 0.07 off.
Boards of both clusters were not fitted, and are told.

Readings have the grain that Acme's have: 63 W at three servers of five, 29 W at the others.

Of a scenario file: fleet, servers and plant, with the seed asked for; told beside Acme, no line.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import Given, given_scenario
from benchmarks._rests_on import rests_on_digest
from benchmarks.runner import Options, Result, Row, Target, finished_rows
from simulation.plant_hash import plant_sha256
from simulation.scenario import Scenario
from simulation.training_fleet.fleet_row import FleetSample, fleet_samples, fleet_scenario

Floats = NDArray[np.float64]

NAME = "training_fleet"
SUMMARY = "draws of a training fleet's servers against Acme's, Kolmogorov-Smirnov distance"
TAKES_ARGUMENTS = True
USAGE: Final = GIVEN_USAGE
TAKES_SCHEDULER = True
READS: Final = (
    "training_fleet", "row.groups", "row.gpus_per_server", "plant.supply_efficiency",
    "plant.host_base_watts", "plant.host_watts_per_gpu_watt", "plant.fan_range_watts",
    "plant.fan_full_gpu_watts", "plant.fan_exponent", "plant.fan_lag_seconds",
    "plant.host_noise_ratio", "plant.host_base_spread_ratio", "plant.fan_range_spread_ratio",
    "plant.training_dip_ratio", "plant.training_dip_share", "plant.training_step_seconds",
)  # fmt: skip
ACME: Final = Path(__file__).parent / "data" / "acme" / "acme_power_cdf.csv"
SERVERS, DAYS, MOMENTS = 286, 184.0, 400
QUICK_SERVERS, QUICK_DAYS, QUICK_MOMENTS = 48, 28.0, 30
FITTED_SEEDS: Final = (1, 2)
JUDGING_SEEDS: Final = (41, 42, 43)
GRAINS: Final = (63.0, 63.0, 63.0, 29.0, 29.0)
QUANTILES: Final = (5, 10, 25, 50, 75, 90, 95, 99)
TARGETS: Final = {"server_ks": Target(at_most=0.05)}
DAY_SECONDS: Final = 86_400.0


def run(options: Options) -> Result:
    """The frozen fleet, or that of a file with the seed asked for."""
    given = given_scenario(NAME, options, READS)
    size = (QUICK_DAYS, QUICK_MOMENTS) if options.quick else (DAYS, MOMENTS)
    seeds = JUDGING_SEEDS[:1] if options.quick else (*FITTED_SEEDS, *JUDGING_SEEDS)
    if given is not None:
        seeds = (options.seed,)

    def one_seed(first: int, number: int) -> Row:
        # Judges are what they are; another --seed makes other ones.
        seed = seeds[number] if given is not None else seeds[number] + 100 * (first - 1)
        options.progress(f"seed {seed}")
        servers = QUICK_SERVERS if options.quick else SERVERS
        scenario = fleet_scenario(servers, seed) if given is None else of_file(given, seed)
        return judged(scenario, *size)

    name = f"{NAME}-{'quick' if options.quick else 'full'}"
    kind = name if given is None else given.kind(name)
    digest = rests_on_digest(f"benchmarks.{NAME}")
    rows = finished_rows(options, kind, one_seed, len(seeds), digest)
    if given is not None:
        return Result({**rows[0], **given.figures()})
    judges = [row for seed, row in zip(seeds, rows, strict=True) if seed in JUDGING_SEEDS]
    figures: dict[str, float | int | str] = {"judging_seeds": len(judges), **judges[0]}
    for name in ("server_ks", "board_ks_seren", "board_ks_kalos"):
        figures[name] = max(float(row[name]) for row in judges)
    for seed, row in zip(seeds, rows, strict=True):
        figures[f"server_ks_seed_{seed}"] = row["server_ks"]
    return Result(figures, {} if options.quick else TARGETS)


def of_file(given: Given, seed: int) -> Scenario:
    """Somebody's fleet and servers.

    Raises:
        InputError: for a row of several GPU types, or a file without a fleet.
    """
    given.only_profile()
    if given.scenario.training_fleet is None:
        raise given.wrong("training_fleet", "a fleet; {} for the fitted one", None)
    return given.scenario.model_copy(update={"seed": seed})


def moments(days: float, count: int, seed: int) -> Floats:
    """Even but for an eighth of their distance, so that no hour of the day is preferred."""
    even = (np.arange(count) + 0.5) * days * DAY_SECONDS / count
    apart = days * DAY_SECONDS / count
    rng = np.random.default_rng((seed, 38))
    return np.asarray(even + apart * rng.uniform(-0.125, 0.125, count))


def judged(scenario: Scenario, days: float, count: int) -> Row:
    """Distances and quantiles of one seed's weeks."""
    times = moments(days, count, scenario.seed)
    samples = list(fleet_samples(scenario, times))
    servers = read_servers(samples)
    boards = np.concatenate([one.board_watts for one in samples])
    acme = acme_watts()
    row: Row = {
        "plant_sha256": plant_sha256(scenario.plant, scenario.row.power_sensor),
        "servers": scenario.row.servers,
        "server_ks": distance(servers, acme["seren_gpu_server_w"]),
        "board_ks_seren": distance(boards, acme["seren_gpu_w"]),
        "board_ks_kalos": distance(boards, acme["kalos_gpu_w"]),
        "server_mean_watts": float(servers.mean()),
        "acme_server_mean_watts": float(acme["seren_gpu_server_w"].mean()),
        "board_mean_watts": float(boards.mean()),
        "acme_board_mean_watts": float(acme["seren_gpu_w"].mean()),
    }
    for quantile in QUANTILES:
        row[f"server_p{quantile}_watts"] = float(np.percentile(servers, quantile))
        published = np.percentile(acme["seren_gpu_server_w"], quantile)
        row[f"acme_server_p{quantile}_watts"] = float(published)
    return row


def read_servers(samples: list[FleetSample]) -> Floats:
    """Readings of all servers at all moments, with the grain of each server's sensor."""
    grain = np.resize(GRAINS, len(samples[0].server_watts))
    return np.concatenate([np.round(one.server_watts / grain) * grain for one in samples])


def acme_watts() -> dict[str, Floats]:
    """Points of the published distributions, evenly apart in probability, by column."""
    with ACME.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    # The first server value is a gap in the records and no draw.
    return {name: column[column > 0.0] for name, column in columns.items()}


def distance(mine: Floats, published: Floats) -> float:
    """Largest difference of two cumulative distributions (Kolmogorov and Smirnov)."""
    at = np.unique(np.concatenate([mine, published]))
    shares = [np.searchsorted(np.sort(one), at, "right") / len(one) for one in (mine, published)]
    return float(np.abs(shares[0] - shares[1]).max())
