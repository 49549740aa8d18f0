"""Random fault runs: does a breaker ever trip, and what did the work lose outside of the faults?

15 simulated minutes of 52 servers on a row rated for 40 (another row by ``--scenario``), faults of
``simulation.row_control.fault_draws`` with their onset in minutes 1 to 3. All of it is simulated.
Work is compared with an oracle on the same arrivals (limit 1.00, perfect knowledge, caps that act
at once); a published policy (POLCA's two thresholds, read second-hand) sees the same runs.

Runs are done in shards of ``SHARD_RUNS``; with ``--resume DIR`` each finished shard is a file there
that is not run again while the code and data behind it stay the same.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import beta

from benchmarks._fault_runs import RUN_SECONDS, one_run
from benchmarks.runner import Options, Result, Target, sources_digest
from simulation.plant_hash import plant_sha256
from simulation.row_control.work import HIGH, LOW
from simulation.scenario import Scenario, load_scenario
from wattpack.errors import InputError

NAME = "no_trip"
SUMMARY = "trips, heat and work over random fault runs of an oversubscribed row"
TAKES_ARGUMENTS = True
USAGE: Final = "--scenario FILE, --runs N, --processes N"

SHARD_RUNS: Final = 10
QUICK_RUNS, QUICK_SECONDS = 3, 260.0
RUNS: Final = 2000
BACK_WITHIN_SECONDS: Final = 60.0
SOURCES: Final = ("benchmarks", "capacity", "controller", "gpu", "simulation", "wattpack")

TARGETS: Final = {
    "trips": Target(at_most=0),
    "work_of_oracle": Target(at_least=0.95),
    "high_work_of_oracle": Target(at_least=0.99),
    "low_work_of_oracle": Target(at_least=0.90),
    "back_within_60_seconds_share": Target(at_least=1.0),
}

Row = Mapping[str, Any]


def run(options: Options) -> Result:
    """All shards that are asked for, those of ``--resume`` included."""
    asked = _arguments(options.arguments)
    scenario = load_scenario(asked.scenario)
    began = time.perf_counter()
    if options.quick:
        rows = [one_run(scenario, options.seed, i, QUICK_SECONDS) for i in range(QUICK_RUNS)]
    else:
        rows = list(_all_rows(options, asked, scenario))
    seconds = time.perf_counter() - began
    told = figures(rows)
    told |= {"plant_sha256": plant_sha256(scenario.plant), "wall_seconds": seconds}
    return Result(told, TARGETS)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="no_trip", add_help=False, exit_on_error=False)
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--processes", type=int, default=2)
    try:
        asked, rest = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise InputError("arguments", USAGE, str(error)) from error
    if rest:
        raise InputError("arguments", USAGE, " ".join(rest))
    for name in ("runs", "processes"):
        if getattr(asked, name) < 1:
            raise InputError(f"--{name}", "an integer >= 1", getattr(asked, name))
    return asked


# -- shards ----------------------------------------------------------------------------------------


def _all_rows(
    options: Options, asked: argparse.Namespace, scenario: Scenario
) -> Iterator[dict[str, Any]]:
    """Rows of every shard in order; a shard that is finished is written at once."""
    numbers = range(asked.runs)
    shards = [numbers[i : i + SHARD_RUNS] for i in range(0, asked.runs, SHARD_RUNS)]
    jobs = [(scenario, options.seed, shard, options.resume) for shard in shards]
    done = trips = 0
    # A pool that takes its processes with it when this one is told to end.
    with get_context("spawn").Pool(asked.processes) as pool:
        for rows in pool.imap(_shard, jobs):
            done += len(rows)
            trips += sum(row["trips"] for row in rows)
            bar = _bar(done / asked.runs)
            options.progress(f"{bar} {done} of {asked.runs} runs, {trips} trips")
            yield from rows


def _bar(share: float, width: int = 30) -> str:
    filled = round(share * width)
    return "[" + "#" * filled + "." * (width - filled) + "]"


def _shard(job: tuple[Scenario, int, range, Path | None]) -> list[dict[str, Any]]:
    """One shard's rows, from its file if that is there."""
    scenario, seed, numbers, folder = job
    file = None if folder is None else folder / shard_name(scenario, seed, numbers)
    if file is not None and file.exists():
        kept: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return kept
    rows = [one_run(scenario, seed, number, RUN_SECONDS) for number in numbers]
    if file is not None:
        _keep(file, {"seed": seed, "plant_sha256": plant_sha256(scenario.plant), "rows": rows})
    return rows


def shard_name(scenario: Scenario, seed: int, numbers: range) -> str:
    """A shard's file: of one seed, one scenario, and the code and data that it rests on."""
    made = sources_digest(SOURCES)
    which = f"{numbers.start:05d}-{numbers.stop - 1:05d}"
    return f"{NAME}-{scenario.name}-seed-{seed}-{which}-{made}.json"


def _keep(file: Path, document: dict[str, Any]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".part")
        half.write_text(json.dumps(document) + "\n", encoding="utf-8")
        half.rename(file)
    except OSError as error:
        raise InputError("--resume", "a folder to write to", str(file.parent)) from error


# -- figures ---------------------------------------------------------------------------------------


def trip_bound(trips: int, runs: int) -> float:
    """95 % upper bound of the chance that a run trips (Clopper and Pearson, Biometrika 26, 1934).

    Without any trip it is about 3 / runs.
    """
    if trips >= runs:
        return 1.0
    return float(beta.ppf(0.95, trips + 1, runs - trips))


def figures(rows: Sequence[Row]) -> dict[str, float | int | str]:
    """Of any number of runs, at least one."""
    tripped = sum(row["trips"] > 0 for row in rows)
    heat = np.array([row["heat"] for row in rows])
    violations: Counter[str] = Counter()
    for row in rows:
        violations.update(row["violations"])
    causes = Counter(cause for row in rows if row["trips"] for cause in row["causes"])
    return {
        "runs": len(rows),
        "trips": sum(row["trips"] for row in rows),
        "runs_with_a_trip": tripped,
        "trip_chance_upper_95": trip_bound(tripped, len(rows)),
        "causes_of_trips": _counted(causes),
        "heat_p99_9": float(np.quantile(heat, 0.999)),
        "heat_max": float(heat.max()),
        "peak_load_ratio": max(row["peak_ratio"] for row in rows),
        "above_rating_seconds_max": max(row["above_seconds"] for row in rows),
        "runs_above_rating": sum(row["above_seconds"] > 0 for row in rows),
        "runs_braked": sum(row["brakes"] > 0 for row in rows),
        "invariant_violations": sum(violations.values()),
        "invariants_violated": _counted(violations),
        **_work_figures(rows),
        **_back_figures(rows),
        "cap_changes_per_gpu_hour": sum(row["cap_changes"] for row in rows)
        / sum(row["gpu_hours"] for row in rows),
        "polca_runs_with_a_trip": sum(row["polca_trips"] > 0 for row in rows),
        "polca_runs_braked": sum(row["polca_brakes"] > 0 for row in rows),
        "polca_above_rating_seconds_max": max(row["polca_above_seconds"] for row in rows),
    }


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in names.most_common()) or "none"


def _work_figures(rows: Sequence[Row]) -> dict[str, float]:
    """Sums over all runs over the oracle's; a run that trips counts with what it did."""
    ours, best, theirs = (
        np.array([row[name] for row in rows]) for name in ("work", "oracle_work", "polca_work")
    )
    compared = best.sum(axis=1) > 0.0
    by_run = ours[compared].sum(axis=1) / best[compared].sum(axis=1)
    total = best.sum(axis=0)
    return {
        "work_of_oracle": float(ours.sum() / best.sum()),
        "high_work_of_oracle": float(ours[:, HIGH].sum() / total[HIGH]),
        "low_work_of_oracle": float(ours[:, LOW].sum() / total[LOW]),
        "work_of_oracle_lowest_run": float(by_run.min()),
        "polca_work_of_oracle": float(theirs.sum() / best.sum()),
        "polca_high_work_of_oracle": float(theirs[:, HIGH].sum() / total[HIGH]),
        "polca_low_work_of_oracle": float(theirs[:, LOW].sum() / total[LOW]),
    }


def _back_figures(rows: Sequence[Row]) -> dict[str, float | int]:
    """How soon the work was back at 95 % of the oracle's after faults and heat had gone."""
    told = [row["back_seconds"] for row in rows if row["back_told"]]
    back = [seconds for seconds in told if seconds is not None]
    figures: dict[str, float | int] = {
        "runs_told_when_back": len(told),
        "runs_not_back_at_all": len(told) - len(back),
    }
    if told:
        within = sum(seconds <= BACK_WITHIN_SECONDS for seconds in back)
        figures["back_within_60_seconds_share"] = within / len(told)
    if back:
        figures["back_seconds_p50"] = float(np.quantile(back, 0.5))
    return figures
