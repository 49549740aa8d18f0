"""Is a plan better than where the default scheduler put the pods, and is that proved?

The 96 combinations of the published experiments "Priority Matters" (arXiv 2511.08373): nodes, pods
a node, priorities and usage, with our own seeds of the published generator, and a time limit a
solve. Arms: ``with_moves`` (what the default scheduler placed may be moved), ``as_deployed`` (it
may not, as in a cluster today) and ``from_scratch`` (all pods wait). A judge recounts every plan.

Each finished solve is a line of a file in the folder of ``--resume`` and is not made again while
the code behind it stays the same.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks._arguments import read_arguments
from benchmarks._kept_runs import KeptRuns, RunsKind
from benchmarks._priority_arms import ARMS, Job, one_solve
from benchmarks._priority_figures import Row, against_published, arm_figures, table_rows
from benchmarks._priority_instances import COMBINATIONS
from benchmarks._rests_on import rests_on_digest
from benchmarks.runner import Options, Result, Target
from wattpack.errors import InputError
from wattpack.flags import write_output
from wattpack.sweep.sweep import OneByOne, Processes, Sweep

NAME = "priority_matters"
SUMMARY = "plans of the published Priority Matters instances against the default scheduler"
TAKES_ARGUMENTS = True
USAGE: Final = (
    "--limit-seconds X, --cpu-time, --seeds A:B, --arms A,B, --sample, --processes N, "
    "--table FILE (CSV)"
)

TOLD_EVERY_SOLVES: Final = 24
#: Of each quick run: one cell of every node count, so that it ends within 20 s.
QUICK_CELLS: Final = (10, 34, 58, 82)
QUICK_SECONDS: Final = 0.2
SHORT_SECONDS, LONG_SECONDS = 1.0, 10.0
#: More than an hour a solve is a slip.
MOST_SECONDS: Final = 3600.0
#: Seeds that the short and the long limit are judged by.
SHORT_SEEDS, LONG_SEEDS = 40, 5

TARGETS: Final = {
    "with_moves_failures_share": Target(at_most=0),
    "with_moves_worse_share": Target(at_most=0),
    "with_moves_better_or_proved_share": Target(at_least=0.95),
    "with_moves_better_or_proved_share_at_32_nodes": Target(at_least=0.90),
    "with_moves_moved_share_p50": Target(at_most=0.05),
    "with_moves_over_published_at_10_seconds": Target(at_least=0.001),
    "from_scratch_worse_share": Target(at_most=0.02),
}
"""At 1 s."""
LONG_TARGETS: Final = {
    "with_moves_failures_share": Target(at_most=0),
    "with_moves_worse_share": Target(at_most=0),
    "with_moves_near_or_proved_share": Target(at_least=0.60),
    "with_moves_moved_share_p50": Target(at_most=0.05),
}
"""At 10 s."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line wants.

    Attributes:
        counts_cpu: The limit is of CPU time, not of wall time.
        numbers: Of the cases.
    """

    arms: tuple[str, ...]
    limit_seconds: float
    counts_cpu: bool
    numbers: Sequence[int]
    processes: int
    table: Path | None

    @property
    def clock(self) -> str:
        """What the limit is of."""
        return "cpu" if self.counts_cpu else "wall"


def run(options: Options) -> Result:
    """All solves that are asked for, those of ``--resume`` included."""
    asked = _asked(options)
    told: dict[str, float | int | str] = {
        "limit_seconds": asked.limit_seconds,
        "limit_of": asked.clock,
        "processes": asked.processes,
        "sources": _sources(),
    }
    by_arm = {arm: _rows(options, asked, arm) for arm in asked.arms}
    for arm, rows in by_arm.items():
        told |= arm_figures(arm, rows, asked.limit_seconds, counts_cpu=asked.counts_cpu)
        told[f"{arm}_over_published_at_10_seconds"] = against_published(rows, 10)
    if asked.table is not None:
        write_output(asked.table, _table(by_arm[asked.arms[0]], asked.limit_seconds))
    targets = LONG_TARGETS if asked.limit_seconds >= LONG_SECONDS else TARGETS
    return Result(told, {name: bound for name, bound in targets.items() if _is_of(name, by_arm)})


def _is_of(figure: str, arms: Sequence[str] | dict[str, list[Row]]) -> bool:
    return any(figure.startswith(f"{arm}_") for arm in arms)


def _sources() -> str:
    return rests_on_digest(one_solve.__module__)


# -- arguments -------------------------------------------------------------------------------------


def _asked(options: Options) -> Asked:
    parser = argparse.ArgumentParser(prog=NAME, add_help=False, exit_on_error=False)
    parser.add_argument("--limit-seconds", type=float, default=SHORT_SECONDS)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--seeds")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", type=Path)
    given = read_arguments(parser, options.arguments, USAGE)
    arms = tuple(given.arms.split(","))
    if not arms or not set(arms) <= ARMS.keys():
        raise InputError("--arms", f"some of {', '.join(ARMS)}", given.arms)
    if not 0 < given.limit_seconds <= MOST_SECONDS:
        raise InputError("--limit-seconds", "a number above 0, up to 3600", given.limit_seconds)
    if given.processes < 1:
        raise InputError("--processes", "an integer >= 1", given.processes)
    limit, numbers, processes = given.limit_seconds, _numbers(given), given.processes
    if options.quick:
        limit, numbers, processes = QUICK_SECONDS, QUICK_CELLS, 1
    return Asked(arms, limit, given.cpu_time, numbers, processes, given.table)


def _numbers(given: argparse.Namespace) -> Sequence[int]:
    """Of the cases, all cells of each seed that is asked for."""
    cells = len(COMBINATIONS)
    if given.sample:
        if given.seeds is not None or given.limit_seconds != SHORT_SECONDS:
            raise InputError("--sample", "alone: its seeds and limit are fixed", given.seeds)
        return range(cells)
    seeds = SHORT_SEEDS if given.limit_seconds < LONG_SECONDS else LONG_SEEDS
    first, last = _seeds(given.seeds or f"0:{seeds}")
    return range(first * cells, last * cells)


def _seeds(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise InputError("--seeds", "A:B with integers 0 <= A < B", text)
    return int(first), int(last)


# -- solves ----------------------------------------------------------------------------------------


def _rows(options: Options, asked: Asked, arm: str) -> list[Row]:
    kept = KeptRuns(_kind(arm, asked, options.seed), options.resume)
    missing = [number for number in asked.numbers if number not in kept.rows]
    jobs = [
        Job(arm, asked.limit_seconds, asked.counts_cpu, options.seed, number) for number in missing
    ]
    sweep: Sweep = OneByOne() if asked.processes == 1 else Processes(asked.processes)
    for made, (_, row) in enumerate(sweep.rows(one_solve, jobs) if jobs else (), start=1):
        kept.add([row])
        if made % TOLD_EVERY_SOLVES == 0 or made == len(jobs):
            options.progress(f"{arm}: {made} of {len(jobs)} solves")
    return [kept.rows[number] for number in asked.numbers]


def _kind(arm: str, asked: Asked, seed: int) -> RunsKind:
    """Solves that share a file; how many run beside one another decides what a second is worth."""
    settings = f"{asked.limit_seconds:g} s {asked.clock}, {asked.processes} side by side"
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    return RunsKind(
        f"{arm}-{asked.limit_seconds:g}s-{asked.clock}", digest, "none", _sources(), seed
    )


def _table(rows: list[Row], limit_seconds: float) -> str:
    lines = table_rows(rows, 1 if limit_seconds < LONG_SECONDS else 10)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
