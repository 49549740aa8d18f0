"""Placement of a production cluster's tasks until its GPUs are full: 17 published traces, 10 seeds.

The method of FGD (Weng et al., USENIX ATC 2023): tasks in random order, drawn anew until they ask
for 130 % of the GPUs, come one by one; none ends, what fits nowhere is dropped. The figure is the
share of the cluster's GPUs that is allocated when tasks for 100 and 130 % have come. Samples are
the published ones to the last task, and ``fgd`` is held against the published runs.

Three policies drive our planner: ``ours_online`` is told one task at a time, as published;
``ours_moves`` also moves tasks that run, at most one in 25, to let in who finds no place;
``ours_batch`` is told all of them at once. The last two are other settings than the published one.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from scipy.stats import wilcoxon

from benchmarks._arguments import read_arguments
from benchmarks._openb_runs import ARMS, MARKS, Case, KeptRows, Row, case_row
from benchmarks._openb_trace import DATA, SEEDS, TRACES, FloatArray, read_trace
from benchmarks.runner import Options, Result, Target, sources_digest
from wattpack.errors import InputError
from wattpack.sweep.sweep import OneByOne, Sweep, sweep_of

NAME = "openb"
SUMMARY = "GPU allocation on 17 published traces: random, best fit, FGD and our planner"
TAKES_ARGUMENTS = True
TAKES_SCHEDULER = True
USAGE: Final = "--trace FILE, --traces NAME…, --seeds A:B, --policies NAME…, --processes N"

OURS: Final = tuple(name for name in ARMS if name.startswith("ours"))
BASE: Final = "fgd"
WHOLE_TRACE: Final = "default"  # on which also slow policies run all seeds
QUICK_TRACE: Final = "multigpu50"
PUBLISHED: Final = {"random": "01-Random", "best_fit": "05-BestFit", "fgd": "06-FGD"}
NOT_BELOW: Final = 0.05
SURE: Final = 0.01
TOLD_EVERY: Final = 10

TARGETS: Final = {
    "faults": Target(at_most=0),
    "fgd_off_published_worst": Target(at_most=0.3),
    "fgd_cpu_milliseconds_a_task": Target(at_most=1.0),
    "ours_online_cpu_milliseconds_a_task": Target(at_most=1.0),
    "ours_online_traces_not_below_fgd": Target(at_least=17),
    "ours_online_traces_surely_better": Target(at_least=12),
    "ours_batch_default_130": Target(at_least=99.2),
    "ours_batch_over_online_lowest": Target(at_least=0.0),
    "ours_moves_default_100": Target(at_least=95.8),
    "ours_moves_default_moved_share": Target(at_most=0.04),
    "wall_seconds_longest": Target(at_most=600.0),
}


def run(options: Options) -> Result:
    """Every case that is asked for."""
    asked = _arguments(options.arguments)
    if options.quick:
        asked.traces, asked.seeds, asked.policies = [QUICK_TRACE], SEEDS[:1], list(ARMS)
    cases = _cases(asked)
    rows = _all_rows(options, cases, OneByOne() if options.quick else _sweep(options, asked))
    complete = not options.quick and cases == _cases(_arguments(()))
    return Result(figures(rows), TARGETS if complete else {})


def _sweep(options: Options, asked: argparse.Namespace) -> Sweep:
    return sweep_of(options.scheduler, sources_digest, asked.processes)


def _all_rows(options: Options, cases: Sequence[Case], sweep: Sweep) -> list[Row]:
    """Rows of every case in order; one that is finished is kept at once."""
    kept = KeptRows(None if options.quick else options.resume)
    found = {case: row for case in cases if (row := kept.of(case)) is not None}
    missing = [case for case in cases if case not in found]
    for number, row in sweep.rows(case_row, missing):
        case = missing[number]
        found[case] = row
        kept.keep(case, row)
        if len(found) % TOLD_EVERY == 0 or len(found) == len(cases):
            options.progress(f"{len(found)} of {len(cases)} runs, {case.arm} on {case.trace}")
    return [found[case] for case in cases]


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=NAME, add_help=False, exit_on_error=False)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--traces", nargs="+", choices=TRACES, default=list(TRACES))
    parser.add_argument("--seeds", default=f"{SEEDS[0]}:{SEEDS[-1]}")
    parser.add_argument("--policies", nargs="+", choices=tuple(ARMS), default=list(ARMS))
    parser.add_argument("--processes", type=int, default=1)
    asked = read_arguments(parser, arguments, USAGE)
    if asked.processes < 1:
        raise InputError("--processes", "an integer >= 1", asked.processes)
    asked.seeds = _seeds(asked.seeds)
    return asked


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    digits = all(part.isascii() and part.isdigit() and len(part) < 10 for part in (first, last))
    if not digits or int(first) > int(last):
        raise InputError("--seeds", "A:B, the first and the last", text)
    return range(int(first), int(last) + 1)


def _cases(asked: argparse.Namespace) -> list[Case]:
    """Slow policies run all seeds on one trace, and one seed on the others."""
    names = asked.traces
    if asked.trace is not None:
        # Never the name of a published trace: its figures are compared with the published ones.
        names = [f"own_{read_trace(asked.trace).name}"]
    return [
        Case(arm, name, seed, asked.trace)
        for arm in asked.policies
        for name in names
        for seed in asked.seeds
        if seed == asked.seeds[0] or not ARMS[arm].slow or name == WHOLE_TRACE
    ]


# -- published -------------------------------------------------------------------------------------


@cache
def published() -> dict[tuple[str, str], dict[int, float]]:
    """Mean allocation of the ten published runs by percent of arrivals; by policy and trace."""
    policies = {theirs: ours for ours, theirs in PUBLISHED.items()}
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in _rows(DATA / "fgd_reference" / "gpu_allocation_pct.csv.gz"):
        if row["sc_policy"] in policies:
            key = (policies[row["sc_policy"]], row["workload"].removeprefix("openb_pod_list_"))
            found[key][int(row["arrived_gpu_pct"])] = float(row["mean"])
    return dict(found)


@cache
def published_fgd_runs() -> dict[tuple[str, int], dict[int, float]]:
    """Allocation of each published run of FGD by percent of arrivals; by trace and seed."""
    file = DATA / "fgd_reference" / "fgd_gpu_allocation_pct_by_seed.csv.gz"
    return {
        (row["trace"], int(row["seed"])): {
            int(name): float(value) for name, value in row.items() if name.isdigit()
        }
        for row in _rows(file)
    }


@cache
def bounds() -> dict[tuple[str, int], float]:
    """What no schedule can exceed, by trace and mark; of another sample of the same trace."""
    rows = csv.DictReader(io.StringIO((DATA / "bounds_measured.csv").read_text(encoding="utf-8")))
    return {
        (row["trace"], int(row["arrived_gpu_pct"])): float(row["pattern_lp_bound_pct"])
        for row in rows
    }


def _rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode())))


# -- figures ---------------------------------------------------------------------------------------

Found = Mapping[tuple[str, str], Mapping[int, Row]]


def figures(rows: Sequence[Row]) -> dict[str, float | int | str]:
    """Means and spreads by policy and trace, and how policies compare."""
    found: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for row in rows:
        found[row["arm"], row["trace"]][row["seed"]] = row
    made: dict[str, float | int | str] = {
        "runs": len(rows),
        "faults": sum(row["faults"] for row in rows),
        "wall_seconds_longest": max(row["wall_seconds"] for row in rows),
    }
    for fault in [f"{r['arm']} {r['trace']}: {text}" for r in rows for text in r["first_faults"]]:
        made.setdefault("first_fault", fault)
    for (arm, trace), by_seed in found.items():
        for mark in MARKS:
            values = _at(by_seed, mark)
            made[f"{arm}_{trace}_{mark}"] = float(values.mean())
            if len(values) > 1:
                made[f"{arm}_{trace}_{mark}_sd"] = float(values.std(ddof=1))
    for arm in dict.fromkeys(arm for arm, _ in found):
        mine = [row for row in rows if row["arm"] == arm]
        tasks = sum(row["arrivals"] for row in mine)
        made[f"{arm}_cpu_milliseconds_a_task"] = (
            1000.0 * sum(row["policy_cpu_seconds"] for row in mine) / tasks
        )
        if ARMS[arm].may_move:
            by_seed = found.get((arm, WHOLE_TRACE), {})
            shares = [row["moved"] / row["placed"] for row in by_seed.values()]
            made[f"{arm}_{WHOLE_TRACE}_moved_share"] = max(shares, default=0.0)
    for (trace, mark), bound in bounds().items():
        if any(name == trace for _, name in found):
            made[f"bound_{trace}_{mark}"] = bound
    return made | _off_published(found) | _compared(found) | _batch_over_online(found)


def _at(by_seed: Mapping[int, Row], mark: int) -> FloatArray:
    return np.array([by_seed[seed]["at"][str(mark)] for seed in sorted(by_seed)])


def _off_published(found: Found) -> dict[str, float | int | str]:
    """How far means are from the published ones of the same traces.

    Of FGD each run is published, and any seeds compare; of others the mean of all ten is.
    """
    made: dict[str, float | int | str] = {}
    for arm in PUBLISHED:
        off: dict[tuple[str, int], float] = {}
        for (name, trace), by_seed in found.items():
            if name == arm and trace in TRACES:
                for mark in MARKS:
                    theirs = _published_mean(arm, trace, sorted(by_seed), mark)
                    if theirs is not None:
                        off[trace, mark] = float(_at(by_seed, mark).mean()) - theirs
        if off:
            worst = max(off, key=lambda key: abs(off[key]))
            made[f"{arm}_off_published_worst"] = abs(off[worst])
            made[f"{arm}_off_published_worst_where"] = f"{worst[0]} at {worst[1]}"
            made[f"{arm}_off_published_mean"] = float(np.mean(list(off.values())))
            made[f"{arm}_off_published_traces"] = len(off) // len(MARKS)
    return made


def _published_mean(arm: str, trace: str, seeds: Sequence[int], mark: int) -> float | None:
    if list(seeds) == list(SEEDS):
        return published()[arm, trace][mark]
    runs = published_fgd_runs()
    if arm != BASE or any((trace, seed) not in runs for seed in seeds):
        return None
    return float(np.mean([runs[trace, seed][mark] for seed in seeds]))


def _compared(found: Found) -> dict[str, float | int | str]:
    """Ours against own FGD, seed by seed, and against the published mean.

    A trace counts where it holds at both marks: Wilcoxon's signed-rank test, one-sided.
    """
    made: dict[str, float | int | str] = {}
    for arm in OURS:
        not_below, better, over_published, traces = 0, 0, 0, 0
        for trace in sorted({trace for name, trace in found if name == arm}):
            ours, fgd = found[arm, trace], found.get((BASE, trace), {})
            seeds = sorted(set(ours) & set(fgd))
            if not seeds:
                continue
            traces += 1
            gains, above = [], []
            for mark in MARKS:
                mine = _at({seed: ours[seed] for seed in seeds}, mark)
                gains.append(mine - _at({seed: fgd[seed] for seed in seeds}, mark))
                if (BASE, trace) in published():
                    above.append(mine - published()[BASE, trace][mark])
                made[f"{arm}_{trace}_{mark}_over_fgd"] = float(gains[-1].mean())
            not_below += all(gain.mean() >= -NOT_BELOW for gain in gains)
            better += all(_chance(gain) < SURE for gain in gains)
            over_published += bool(above) and all(_chance(gain) < SURE for gain in above)
        if traces:
            made[f"{arm}_traces_compared"] = traces
            made[f"{arm}_traces_not_below_fgd"] = not_below
            made[f"{arm}_traces_surely_better"] = better
            made[f"{arm}_traces_surely_over_published_fgd"] = over_published
    return made


def _chance(gains: FloatArray) -> float:
    """That gains at least so large come without any difference (p of a one-sided test)."""
    if len(gains) < 2 or not np.any(gains):
        return 1.0
    return float(wilcoxon(gains, alternative="greater").pvalue)


def _batch_over_online(found: Found) -> dict[str, float | int | str]:
    batch, online = "ours_batch", "ours_online"
    gains = [
        row["at"][str(mark)] - found[online, trace][seed]["at"][str(mark)]
        for (name, trace), by_seed in found.items()
        if name == batch
        for seed, row in by_seed.items()
        if seed in found.get((online, trace), {})
        for mark in MARKS
    ]
    return {"ours_batch_over_online_lowest": float(min(gains))} if gains else {}
