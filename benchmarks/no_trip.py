"""Random fault runs: does a breaker ever trip, and what did the work lose outside of the faults?

15 simulated minutes of 52 servers on a row rated for 40 (another row by ``--scenario``), faults of
``simulation.row_control.fault_draws`` with their onset in minutes 1 to 3. All of it is simulated.
Work is compared with an oracle on the same arrivals (limit 1.00, perfect knowledge, caps that act
at once); a published policy (POLCA's two thresholds, read second-hand) sees the same runs.

With ``--resume DIR`` each finished run is a line of a file there, written at once, that is not run
again while the code and data behind it stay the same. Runs that were
kept in ``benchmarks/results/no_trip`` are read, and bound the chance of a trip together.

Each run tells its own time, so that a call which only reads finished runs tells theirs, too.

Of a scenario file: row, meters, plant, lease and tick, lowest and highest class. Faults that it
names come in every run, whom they strike by the run's seed; without any they are drawn, as is
whether meters and servers tell anything. ``--work FILE`` is another mix of work.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks._arguments import read_arguments
from benchmarks._breaker_curves import breaker_curves
from benchmarks._fault_runs import RUN_SECONDS, one_run
from benchmarks._given_scenario import read_given
from benchmarks._kept_runs import KeptRuns, RunsKind, chance_bound, read_runs, together
from benchmarks._required_i1 import require_i1
from benchmarks._rests_on import rests_on_digest
from benchmarks._row_cases import work_of
from benchmarks._row_reads import ROW_READS
from benchmarks.runner import RESULTS, Options, Result, Target, sources_digest
from simulation.row_control.random_work import RandomWorkSettings
from simulation.row_control.scenario_faults import given_faults
from simulation.row_control.work import HIGH, LOW
from simulation.scenario import Scenario, load_scenario
from wattpack.errors import InputError
from wattpack.sweep.sweep import Processes, sweep_of

NAME = "no_trip"
SUMMARY = "trips, heat and work over random fault runs of an oversubscribed row"
TAKES_ARGUMENTS = True
TAKES_SCHEDULER = True
USAGE: Final = "--scenario FILE, --work FILE, --runs N, --first N, --processes N"
READS: Final = (*ROW_READS, "faults")
DRAWN: Final = tuple(key for key in ROW_READS if key != "row.bmc")
"""What is read of a file that names no faults."""


TOLD_EVERY_RUNS: Final = 10
QUICK_RUNS, QUICK_SECONDS = 3, 260.0
RUNS: Final = 2000
BACK_WITHIN_SECONDS: Final = 60.0
WANTED_MINUTES: Final = 90.0
"""For ``RUNS`` runs on two cores; told beside the figure and not judged: it is of the machine."""

_TIMES: Final = ("wall_seconds", "cpu_seconds")
KEPT: Final = RESULTS / NAME

TARGETS: Final = {
    "trips": Target(at_most=0),
    "invariant_violations": Target(at_most=0),
    "work_of_oracle": Target(at_least=0.95),
    "high_work_of_oracle": Target(at_least=0.99),
    "low_work_of_oracle": Target(at_least=0.90),
    "back_within_60_seconds_share": Target(at_least=1.0),
}

Row = Mapping[str, Any]


def run(options: Options) -> Result:
    """All runs that are asked for, those of ``--resume`` included."""
    asked = _arguments(options.arguments)
    scenario, of_file = _row(asked.scenario, options)
    work = None if asked.work is None else work_of(asked.work)
    kind = RunsKind.of(scenario, options.seed, _digest(asked.work))
    if options.quick:
        rows = [_timed(scenario, options.seed, i, QUICK_SECONDS, work) for i in range(QUICK_RUNS)]
    else:
        rows = _all_rows(options, asked, scenario, kind, work)
    told = figures(rows) | together(read_runs(KEPT, kind), "trips")
    told |= {
        "breaker_curves": breaker_curves(scenario),
        "sources": kind.sources,
        "plant_sha256": kind.plant_sha256,
    }
    return Result(told | of_file, TARGETS)


def _row(file: Path | None, options: Options) -> tuple[Scenario, dict[str, float | int | str]]:
    """The row, and what a result says of its file."""
    if file is None:
        return load_scenario(), {}
    scenario = load_scenario(file)
    given = read_given(file, options, READS if scenario.faults else DRAWN, only_ends=True)
    require_i1(given.scenario, file)
    if scenario.faults:
        try:
            given_faults(scenario)
        except InputError as error:
            error.name_source(str(file))
            raise
        return scenario, given.figures()
    # Each run draws whether servers tell their draw; BMCs of the file would tell in all of them.
    blind = scenario.row.model_copy(update={"bmc": "none"})
    return scenario.model_copy(update={"row": blind}), given.figures()


def _digest(work: Path | None) -> str:
    """Of what runs rest on, another mix of work included."""
    digest = rests_on_digest(one_run.__module__)
    if work is None:
        return digest
    return hashlib.sha256(digest.encode() + work.read_bytes()).hexdigest()[:12]


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="no_trip", add_help=False, exit_on_error=False)
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = read_arguments(parser, arguments, USAGE)
    for name in ("runs", "processes"):
        if getattr(asked, name) < 1:
            raise InputError(f"--{name}", "an integer >= 1", getattr(asked, name))
    if asked.first < 0:
        raise InputError("--first", "an integer >= 0", asked.first)
    return asked


# -- runs ------------------------------------------------------------------------------------------


def _all_rows(
    options: Options,
    asked: argparse.Namespace,
    scenario: Scenario,
    kind: RunsKind,
    work: RandomWorkSettings | None = None,
) -> list[dict[str, Any]]:
    """Rows of every run in order; one that is finished is written at once."""
    numbers = range(asked.first, asked.first + asked.runs)
    kept = KeptRuns(kind, options.resume)
    missing = [number for number in numbers if number not in kept.rows]
    jobs = [(scenario, options.seed, number, work) for number in missing]
    if jobs:
        # Also of one: a run in a process of its own does not grow this one.
        here = Processes(asked.processes)
        sweep = here if options.scheduler is None else sweep_of(options.scheduler, sources_digest)
        for made, (_, row) in enumerate(sweep.rows(_one, jobs), start=1):
            kept.add([row])
            if made % TOLD_EVERY_RUNS == 0 or made == len(jobs):
                done = [kept.rows[number] for number in numbers if number in kept.rows]
                trips = sum(row["trips"] for row in done)
                bar = _bar(len(done) / asked.runs)
                options.progress(f"{bar} {len(done)} of {asked.runs} runs, {trips} trips")
    return [kept.rows[number] for number in numbers]


def _bar(share: float, width: int = 30) -> str:
    filled = round(share * width)
    return "[" + "#" * filled + "." * (width - filled) + "]"


def _one(job: tuple[Scenario, int, int, RandomWorkSettings | None]) -> dict[str, Any]:
    """One run's row."""
    scenario, seed, number, work = job
    return _timed(scenario, seed, number, RUN_SECONDS, work)


def _timed(
    scenario: Scenario, seed: int, number: int, seconds: float, work: RandomWorkSettings | None
) -> dict[str, Any]:
    """A run's row with what the run took.

    Not in ``one_run``: what finished runs rest on does not change with how they are timed.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    row = one_run(scenario, seed, number, seconds, work)
    took = (round(time.perf_counter() - wall, 3), round(time.process_time() - cpu, 3))
    return row | dict(zip(_TIMES, took, strict=True))


# -- figures ---------------------------------------------------------------------------------------


def figures(rows: Sequence[Row]) -> dict[str, float | int | str]:
    """Of any number of runs, at least one."""
    tripped = sum(row["trips"] > 0 for row in rows)
    heat = np.array([row["heat"] for row in rows])
    # Some rows begin hot: what they do not begin with, they gain.
    gained = np.array([max(0.0, row["heat"] - row["began_heat"]) for row in rows])
    violations: Counter[str] = Counter()
    for row in rows:
        violations.update(row["violations"])
    causes = Counter(cause for row in rows if row["trips"] for cause in row["causes"])
    return {
        "runs": len(rows),
        "trips": sum(row["trips"] for row in rows),
        "runs_with_a_trip": tripped,
        "trip_chance_upper_95": chance_bound(tripped, len(rows)),
        "causes_of_trips": _counted(causes),
        "heat_p99_9": float(np.quantile(heat, 0.999)),
        "heat_max": float(heat.max()),
        "heat_gained_p99_9": float(np.quantile(gained, 0.999)),
        "peak_load_ratio": max(row["peak_ratio"] for row in rows),
        "above_rating_seconds_max": max(row["above_seconds"] for row in rows),
        "runs_above_rating": sum(row["above_seconds"] > 0 for row in rows),
        "runs_braked": sum(row["brakes"] > 0 for row in rows),
        "hidden_share_max": max(row["hidden_share"] for row in rows),
        "hidden_heat_max": max(row["hidden_heat"] for row in rows),
        "hidden_heat_p99": float(np.quantile([row["hidden_heat"] for row in rows], 0.99)),
        "invariant_violations": sum(violations.values()),
        "invariants_violated": _counted(violations),
        **_work_figures(rows),
        **_back_figures(rows),
        **_unmetered_figures(rows),
        **_time_figures(rows),
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


def _unmetered_figures(rows: Sequence[Row]) -> dict[str, float | int]:
    """Runs without any meter of domains or servers, where servers count at their declared worst.

    The oracle knows what they draw, so the rest of the runs is told apart.
    """
    blind = [row for row in rows if not row["metered"]]
    figures: dict[str, float | int] = {"runs_without_any_meter": len(blind)}
    if blind:
        figures["work_of_oracle_without_any_meter"] = _work_figures(blind)["work_of_oracle"]
    figures |= _declared_figures(blind)
    if len(blind) < len(rows):
        back = _back_figures([row for row in rows if row["metered"]])
        if "back_within_60_seconds_share" in back:
            share = back["back_within_60_seconds_share"]
            figures["back_within_60_seconds_share_with_a_meter"] = share
    return figures


def _declared_figures(blind: Sequence[Row]) -> dict[str, float | int]:
    """The same runs beside an oracle that counts the declared worst; older rows do not tell."""
    declared = [
        {
            **row,
            "oracle_work": row["declared_oracle_work"],
            "back_seconds": row["declared_back_seconds"],
        }
        for row in blind
        if row.get("declared_oracle_work")
    ]
    if not declared:
        return {}
    beside = _work_figures(declared) | _back_figures(declared)
    return {
        f"{name}_without_any_meter_of_declared_worst": beside[name]
        for name in ("work_of_oracle", "back_within_60_seconds_share")
        if name in beside
    }


def _time_figures(rows: Sequence[Row]) -> dict[str, float | int]:
    """What the runs took themselves, whoever called for them; older rows do not tell."""
    timed = [row for row in rows if all(name in row for name in _TIMES)]
    figures: dict[str, float | int] = {
        "runs_timed": len(timed),
        "wanted_minutes_of_2000_runs_on_two_cores": WANTED_MINUTES,
    }
    for name in _TIMES if timed else ():
        total = sum(row[name] for row in timed)
        figures[f"runs_{name}"] = total
        kind = name.removesuffix("_seconds")
        figures[f"minutes_of_2000_runs_on_two_cores_{kind}"] = total / len(timed) * RUNS / 2 / 60
    return figures


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
