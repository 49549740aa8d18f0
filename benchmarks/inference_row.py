"""The simulated inference row, without any power policy, against the published row's marks.

POLCA (arXiv 2308.12908, read second-hand): 40 servers in six weeks reach 79 % of their rating, rise
by about 9 % of it within 2 s and by 11.8 % within 40 s at worst, and follow the day. Load and
burstiness were fitted to these three figures in whole days on seed 1 (``--fit`` prints the grid),
and are frozen; seeds 2 and 3 show what chance does to a worst case in six weeks. Non-GPU watts, the
night's rate, servers in use and the GPUs' share are no result of the fit.

Of a scenario file: number and GPU type of the servers, rating and plant. They are as busy as the
rows of their type (``served_rows``), and no marks are published of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks._given_power import power_figures, power_of
from benchmarks._given_scenario import Given, read_given
from benchmarks._rests_on import rests_on_digest
from benchmarks.runner import Options, Result, Row, Target, finished_rows
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.request_lengths import LENGTHS, LengthsName
from simulation.inference_row.row_calibration import PUBLISHED, frozen_calibration
from simulation.inference_row.row_power import RATED_SERVERS, ServerPower
from simulation.inference_row.served_rows import served_row_of
from simulation.inference_row.uncapped_row import READING_SECONDS, Floats, marks, uncapped_days
from simulation.plant_hash import plant_sha256
from wattpack.errors import InputError

NAME = "inference_row"
SUMMARY = "uncapped inference row: peak, rises in 2 s and 40 s, night, against POLCA's row"
TAKES_ARGUMENTS = True
USAGE: Final = "--fit, --lengths published|azure, --scenario FILE"
TAKES_SCHEDULER = True
DAYS: Final = range(1, 42)
"""Day 0 has no midnight before it."""
DAYS_AT_A_TIME: Final = 14
FITTED_SEED: Final = 1
HELD_OUT: Final = (2, 3)
FIT_GRIDS: Final[dict[LengthsName, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "published": ((0.65, 0.66, 0.67), (1.6, 1.75, 1.85)),
    "azure": ((0.29, 0.31, 0.33), (0.9, 1.0, 1.1)),
}
"""Loads and burstinesses of clients."""

PUBLISHED_LENGTHS: Final[LengthsName] = "published"
WHOLE_DAY: Final = (0.0, 24.0)
BUSY_HOURS: Final = (10.0, 18.0)
QUICK_HOURS: Final = (13.0, 14.0)
QUICK_DAYS: Final = range(2)
FITTED_WITHIN: Final = 0.01
HELD_OUT_WITHIN: Final = 0.02
"""Of the rating. The marks are the worst of six weeks: another six weeks have others."""


def _targets() -> dict[str, Target]:
    cases = (("", FITTED_WITHIN), *((f"_held_out_{seed}", HELD_OUT_WITHIN) for seed in HELD_OUT))
    return {
        f"{name}_ratio{case}": Target(at_least=mark - within, at_most=mark + within)
        for case, within in cases
        for name, mark in asdict(PUBLISHED).items()
    }


TARGETS: Final = _targets()
READS: Final = (
    "row.groups", "row.gpus_per_server", "row.rated_servers", "row.rated_server_watts",
    "plant.supply_efficiency", "plant.host_base_watts", "plant.host_watts_per_gpu_watt",
    "plant.fan_range_watts", "plant.fan_full_gpu_watts", "plant.fan_exponent",
    "plant.fan_lag_seconds",
)  # fmt: skip


def run(options: Options) -> Result:
    """The marks of the frozen row; with ``--fit`` those of the grid that it was chosen from."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {NAME}", description=SUMMARY)
    parser.add_argument("--fit", action="store_true", help="the grid of load and burstiness")
    parser.add_argument(
        "--lengths",
        choices=tuple(LENGTHS),
        default=PUBLISHED_LENGTHS,
        help="of prompts and answers: POLCA's workloads, or Azure's requests of 2023",
    )
    parser.add_argument("--scenario", type=Path, help="servers, rating and plant instead")
    arguments = parser.parse_args(options.arguments)
    lengths: LengthsName = arguments.lengths
    if arguments.fit:
        return _fit(options, lengths)
    cases, frozen = _cases(quick=options.quick), frozen_calibration(lengths)
    power = ServerPower.of()
    if arguments.scenario is not None:
        return _of_file(read_given(arguments.scenario, options, READS), cases[0], options)

    def of_case(first: int, number: int) -> Row:
        case = cases[number]
        options.progress(f"{case.name}: seed {case.seed + first - 1}, {len(case.days)} days")
        arrivals = frozen.arrivals(seed=case.seed + first - 1)
        return judged(days_of(arrivals, case.days, case.hours, power))

    kind = f"{_name(lengths)}-{'quick' if options.quick else 'full'}"
    rows = finished_rows(options, kind, of_case, len(cases), _digest())
    figures: dict[str, float | int | str] = {
        **power_figures(power),
        "plant_sha256": plant_sha256(power.plant),
        "lengths": lengths,
        "load": frozen.load,
        "burst_cv": frozen.burst_cv,
        "calibration_sha256": frozen.sha256,
    }
    for case, row in zip(cases, rows, strict=True):
        figures |= {f"{name}_ratio{case.name}": value for name, value in row.items()}
    return Result(figures, {} if options.quick else TARGETS)


def _of_file(given: Given, case: _Case, options: Options) -> Result:
    """The marks of somebody's row.

    Raises:
        InputError: for servers whose times are not known.
    """
    row, power = given.scenario.row, power_of(given.scenario, str(given.file))
    try:
        served = served_row_of(given.only_profile().model)
    except InputError as error:
        raise given.wrong(error.field, error.expected, error.got) from error

    def of_case(first: int, number: int) -> Row:
        arrivals = served.arrivals(row.servers, seed=case.seed + first - 1)
        return judged(days_of(arrivals, case.days, case.hours, power))

    kind = given.kind(f"{NAME}-{'quick' if options.quick else 'full'}")
    (found,) = finished_rows(options, kind, of_case, 1, _digest())
    figures = {f"{name}_ratio": value for name, value in found.items()}
    marks: dict[str, float | int | str] = {
        "servers": row.servers,
        **power_figures(power),
        "plant_sha256": plant_sha256(power.plant, row.power_sensor),
    }
    return Result({**marks, **figures, **given.figures()})


class _Case(NamedTuple):
    """Days of one seed; the name ends its figures' keys."""

    name: str
    seed: int
    days: range
    hours: tuple[float, float]


def _cases(*, quick: bool) -> tuple[_Case, ...]:
    if quick:
        return (_Case("", FITTED_SEED, QUICK_DAYS, QUICK_HOURS),)
    return (
        _Case("", FITTED_SEED, DAYS, WHOLE_DAY),
        *(_Case(f"_held_out_{seed}", seed, DAYS, WHOLE_DAY) for seed in HELD_OUT),
    )


def days_of(
    arrivals: ClientArrivals,
    days: range,
    hours: tuple[float, float],
    power: ServerPower | None = None,
) -> Floats:
    """Readings of 2 s, (days, readings). Some days at a time: all of them would take a gigabyte."""
    parts = [days[i : i + DAYS_AT_A_TIME] for i in range(0, len(days), DAYS_AT_A_TIME)]
    power = power or ServerPower.of()
    return np.concatenate([uncapped_days(arrivals, part, power, hours) for part in parts])


def _digest() -> str:
    return rests_on_digest(f"benchmarks.{NAME}")


def figures_of(readings: Floats) -> Row:
    """Marks, the 99.9th percentile, and the busiest hour over the quietest of the mean day."""
    each = round(3600.0 / READING_SECONDS)
    whole = readings.shape[1] // each * each
    hourly = readings[:, :whole].reshape(len(readings), -1, each).mean(axis=(0, 2))
    return {
        **asdict(marks(readings)),
        "p99_9": float(np.percentile(readings, 99.9)),
        "busiest_hour": float(hourly.max()),
        "quietest_hour": float(hourly.min()),
    }


def judged(readings: Floats) -> Row:
    """Figures of readings; of whole days those of the busy hours, too, told apart."""
    made = figures_of(readings)
    each = round(3600.0 / READING_SECONDS)
    if readings.shape[1] == round(WHOLE_DAY[1]) * each:
        begin, end = (round(hour) * each for hour in BUSY_HOURS)
        busy = figures_of(readings[:, begin:end])
        made |= {f"{name}_busy_hours": value for name, value in busy.items()}
    return made


def _name(lengths: LengthsName) -> str:
    """Of shards; those of the published lengths keep theirs."""
    return NAME if lengths == PUBLISHED_LENGTHS else f"{NAME}-{lengths}"


def _fit(options: Options, lengths: LengthsName) -> Result:
    loads, bursts = FIT_GRIDS[lengths]
    grid = [(load, burst) for load in loads for burst in bursts]
    if options.quick:
        grid = grid[:1]

    def one_point(seed: int, number: int) -> Row:
        load, burst = grid[number]
        arrivals = ClientArrivals(
            RATED_SERVERS, load=load, burst_cv=burst, seed=seed, lengths=LENGTHS[lengths]
        )
        days, hours = (QUICK_DAYS, QUICK_HOURS) if options.quick else (DAYS, WHOLE_DAY)
        made = figures_of(days_of(arrivals, days, hours))
        options.progress(f"load {load:g}, gaps {burst:g}: {made}")
        return made

    rows = finished_rows(options, f"{_name(lengths)}-fit", one_point, len(grid), _digest())
    misses = [miss(row) for row in rows]
    best = int(np.argmin(misses))
    figures = {f"miss_{load:g}_{burst:g}": m for (load, burst), m in zip(grid, misses, strict=True)}
    named = {"plant_sha256": plant_sha256(ServerPower.of().plant)}
    chosen = {"best_load": grid[best][0], "best_burst_cv": grid[best][1]}
    return Result({**named, **figures, **chosen})


def miss(row: Mapping[str, float]) -> float:
    """Root of the summed squares of the three relative errors."""
    errors = [row[name] / mark - 1.0 for name, mark in asdict(PUBLISHED).items()]
    return float(np.sqrt(np.sum(np.square(errors))))
