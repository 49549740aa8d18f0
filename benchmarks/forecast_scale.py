"""What a series costs a forecaster, and what 100,000 need: shards of the process, each measured.

A round of the process is measured, state file included, at 1,000 and 10,000 series by the ridge, at
1,000 by all models, and at 100,000 in ten shards of the ridge, one after the other, each in a
process of its own. What is printed at the end is a plan: shards, cores and memory. Reading the
history is not in it: it costs whoever keeps it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks._arguments import read_arguments
from benchmarks._forecast_shard import ROUNDS, ShardCase, measured_alone
from benchmarks.runner import Options, Result, Row, Target, finished_rows
from forecasting.round.group_rehearsal import MAX_REHEARSED
from wattpack.errors import InputError

NAME = "forecast_scale"
SUMMARY = "CPU and memory a series at 1,000, 10,000 and 100,000 series, and a plan for 100,000"
TAKES_ARGUMENTS = True
TAKES_SCHEDULER = True
USAGE: Final = "[--shards N: of 10,000 series by the ridge (10)]"

SHARD_SERIES: Final = 10_000
PLANNED_SERIES: Final = 100_000
INTERVAL_SECONDS: Final = 600
ROUNDS_A_WINDOW: Final = 36
ISSUES_A_WINDOW: Final = 2
"""Kept for judging, one each half window: so many of its rounds learn from one that is over."""

TARGETS: Final = {
    # A round has to be over well before the next one, on one core.
    "ridge_10000_slowest_round_share_of_interval": Target(at_most=0.2),
}

Figures = dict[str, float | int | str]


def run(options: Options) -> Result:
    """Measure each case in a process of its own; finished ones are kept in ``--resume``."""
    cases = _cases(options)
    rows = finished_rows(
        options,
        "quick-shards" if options.quick else "shards",
        partial(_measured, tuple(cases.values())),
        len(cases),
    )
    named = dict(zip(cases, rows, strict=True))
    figures: Figures = {}
    for name in [name for name in cases if "shard" not in name and "rehearsal" not in name]:
        figures |= _costs(name, named[name])
    shards = [row for name, row in named.items() if "shard" in name]
    figures |= _shards(shards)
    for name in [name for name in cases if "rehearsal" in name]:
        spent = float(named[name]["first_cpu_seconds"]) / int(named[name]["series"])
        figures[f"{name}_cpu_milliseconds_a_series"] = round(spent * 1e3, 2)
    figures |= _plan(figures)
    for line in plan_lines(figures):
        options.progress(line)
    return Result(figures, {} if options.quick else TARGETS)


def _measured(cases: Sequence[ShardCase], seed: int, number: int) -> Row:
    """One case by its number; each has the seed of its series in it."""
    return measured_alone(cases[number])


def _cases(options: Options) -> dict[str, ShardCase]:
    """By name; shards last. The seed of each shard is its own."""
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--shards", type=int, default=PLANNED_SERIES // SHARD_SERIES)
    shards = read_arguments(parser, options.arguments, USAGE).shards
    if not 1 <= shards <= 100:
        raise InputError("--shards", "1 to 100", shards)
    small, large, few = (50, 100, 10) if options.quick else (1000, SHARD_SERIES, 100)
    seed = options.seed * 1000
    found = {
        "ridge_1000": ShardCase(small, "ridge", seed=seed),
        "ridge_10000": ShardCase(large, "ridge", seed=seed + 1),
        "rehearsal_ridge": ShardCase(few, "ridge", is_rehearsed=False, seed=seed),
    }
    if options.quick:
        return found | {"shard_1": ShardCase(large, "ridge", seed=seed + 1)}
    found["all_models_1000"] = ShardCase(small, "all", seed=seed)
    found["rehearsal_all_models"] = ShardCase(few, "all", is_rehearsed=False, seed=seed)
    return found | {
        f"shard_{n}": ShardCase(large, "ridge", seed=seed + n) for n in range(1, shards + 1)
    }


def _costs(name: str, row: Mapping[str, float]) -> Figures:
    """Of one forecaster: CPU a series and round, memory a series."""
    n = row["series"]
    rounds = {
        kind: row[f"{kind}_cpu_seconds"] + row[f"{kind}_state_cpu_seconds"] for kind in ROUNDS
    }
    figures: Figures = {f"{name}_series": int(n)}
    for kind, spent in rounds.items():
        figures[f"{name}_{kind}_round_cpu_milliseconds_a_series"] = round(1e3 * spent / n, 3)
    figures[f"{name}_state_share_of_next_round"] = round(
        row["next_state_cpu_seconds"] / rounds["next"], 3
    )
    figures[f"{name}_resident_mebibytes"] = round(row["resident_mebibytes"])
    figures[f"{name}_mebibytes_a_series"] = round(
        (row["resident_mebibytes"] - row["before_mebibytes"]) / n, 4
    )
    figures[f"{name}_state_mebibytes"] = round(row["state_mebibytes"], 1)
    figures[f"{name}_slowest_round_share_of_interval"] = round(
        max(rounds.values()) / INTERVAL_SECONDS, 4
    )
    return figures


def _spent(row: Mapping[str, float], kind: str) -> float:
    """CPU seconds of a round with its state."""
    return row[f"{kind}_cpu_seconds"] + row[f"{kind}_state_cpu_seconds"]


def _shards(rows: Sequence[Mapping[str, float]]) -> Figures:
    """All shards together."""
    return {
        "shards": len(rows),
        "sharded_series": int(sum(row["series"] for row in rows)),
        **{
            f"sharded_{kind}_round_cpu_seconds": round(sum(_spent(row, kind) for row in rows), 1)
            for kind in ROUNDS
        },
        "largest_shard_resident_mebibytes": round(max(row["resident_mebibytes"] for row in rows)),
    }


def _plan(figures: Mapping[str, float | int | str]) -> Figures:
    """What 100,000 series need, from what the measured shards needed."""
    measured = float(figures["sharded_series"])
    often = ROUNDS_A_WINDOW - ISSUES_A_WINDOW
    window = often * float(figures["sharded_next_round_cpu_seconds"])
    window += ISSUES_A_WINDOW * float(figures["sharded_settling_round_cpu_seconds"])
    mean = window / ROUNDS_A_WINDOW * PLANNED_SERIES / measured
    shards = PLANNED_SERIES // SHARD_SERIES
    rehearsal = float(figures["rehearsal_ridge_cpu_milliseconds_a_series"]) / 1e3
    rounds = -(-SHARD_SERIES // MAX_REHEARSED)
    return {
        "plan_series": PLANNED_SERIES,
        "plan_shards": shards,
        "plan_mean_round_cpu_seconds": round(mean, 1),
        "plan_cores": round(mean / INTERVAL_SECONDS, 3),
        "plan_gibibytes": round(
            shards * float(figures["largest_shard_resident_mebibytes"]) / 1024, 1
        ),
        "plan_rehearsal_cpu_hours": round(PLANNED_SERIES * rehearsal / 3600, 2),
        "plan_rehearsal_rounds": rounds,
    }


def plan_lines(figures: Mapping[str, float | int | str]) -> list[str]:
    """The plan in words."""
    told = figures
    rehearsal = f"{told['plan_rehearsal_cpu_hours']} CPU-hours"
    return [
        f"{told['plan_series']:,} series in {told['plan_shards']} shards, ridge, six hours ahead, "
        f"a round each ten minutes (from {told['sharded_series']:,} measured):",
        f"  {told['plan_mean_round_cpu_seconds']} CPU-s a round, {told['plan_cores']} cores busy",
        f"  {told['plan_gibibytes']} GiB, {told['largest_shard_resident_mebibytes']} MiB a shard",
        f"  histories gone through once: {rehearsal}, over {told['plan_rehearsal_rounds']} rounds",
    ]
