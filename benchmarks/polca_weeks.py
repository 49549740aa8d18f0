"""Six whole weeks of POLCA's row: its policy at +30 %, wattpack at its own count, by request.

Each policy runs at its final count of servers behind the breaker for 40: POLCA's as published, 52,
wattpack's 54, which ``row_frontier`` finds with limits on every time. ``--servers`` gives both
another. A shard is two hours of a day under a policy, begun 10 minutes before. The policy is
at work where it could act; in calm stretches its caps stand (``days_under_policy``), and ``calm_*``
figures hold three nights' hours against the same ones with the controller running through. Losses
are quantiles over all shards' requests against the same requests without a policy, which are run
once for each row; peak hours are 13:00 to 15:00. ``--hotter 0.05`` asks 5 % more of every server,
with and without a policy; its shards and sums are kept apart.
Shards come in an order drawn from the seed, so that what is finished is a sample of the six weeks:
``--shards N`` takes the first N, ``--finished`` only sums up what the folder of ``--resume`` holds.
``--keep`` adds finished shards to the sums in ``benchmarks/results/polca_weeks``, which are not run
again while what they rest on stays the same.

Of a scenario file: as ``polca_row``; the time of its faults begins on Monday, midnight, and where
one lasts nothing is calm.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks._breaker_curves import row_marks
from benchmarks._given_power import power_figures
from benchmarks._given_row import given_servers, told_of
from benchmarks._rests_on import rests_on_digest
from benchmarks._summed_shards import Summed, read_summed, summed, write_summed
from benchmarks._week_spans import (
    AGREEMENT_HOURS,
    DAYS,
    SERVERS,
    Asked,
    agreement,
    row_of,
    span_of,
    span_row,
    uncapped_row,
)
from benchmarks._weeks_figures import (
    SHARD_HOURS,
    SHARDS,
    TARGETS,
    WORK_TARGETS,
    cpu_hours_of_all,
    summary,
)
from benchmarks.runner import RESULTS, Options, Result, Row, sources_digest
from simulation.inference_row.days_under_policy import CALM_BELOW
from simulation.inference_row.row_under_policy import UNCAPPED, WATTPACK
from wattpack.errors import InputError
from wattpack.sweep.sweep import sweep_of

NAME = "polca_weeks"
SUMMARY = "six weeks of the inference row: POLCA at 52 servers, wattpack at 54, against no policy"
TAKES_ARGUMENTS = True
USAGE: Final = (
    "--servers N, --hotter SHARE, --policies NAME…, --shards N, --finished, --keep, "
    "--processes N, --scenario FILE"
)
TAKES_SCHEDULER = True
AGREEMENT_DAYS: Final = (1, 15, 29)
QUICK_HOURS: Final = (3.0, 3.25)
KEPT: Final = RESULTS / NAME
NOT_ASKED: Final = frozenset(
    {
        "controller",
        "wattpack.api.demand_forecast",
        "wattpack.api.forecast_replicas",
        "wattpack.api.forecast_subject",
    }
)
"""Imported with the row, and asked nothing by a published policy."""


class Job(NamedTuple):
    """A shard of an arm: ``UNCAPPED`` or a policy, on a row of so many servers."""

    arm: str
    servers: int
    number: int


def run(options: Options) -> Result:
    """Every policy in every shard asked for."""
    given = _arguments(options)
    told = told_of(given.scenario, options, given.policies)
    if options.quick:
        given.policies = list(given.policies)[:1]
    order = _order(options.seed)[: 1 if options.quick else given.shards]
    kept = {policy: read_summed(_kept_file(given, options, policy)) for policy in given.policies}
    if options.quick:
        kept = dict.fromkeys(given.policies, Summed(frozenset(), None))
    rows = _rows(given, options, _jobs(order, kept, partial(_servers, given)))
    first = row_of(_asked(given, options.seed, given.policies[0]))
    figures: dict[str, float | int | str] = {
        **{f"{policy}_servers": _servers(given, policy) for policy in given.policies},
        "hotter": given.hotter,
        "shards_asked": len(order),
        "calibration_sha256": first.served.sha256,
        **power_figures(first.power),
        **row_marks(first.scenario),
        **told,
    }
    for policy, old in kept.items():
        asked = [number for number in order if number not in old.numbers]
        mine = _with_uncapped(policy, _servers(given, policy), rows, asked)
        if given.keep and mine and not options.quick:
            new = Summed(old.numbers | mine.keys(), summed([*_rows_of(old), *mine.values()]))
            write_summed(_kept_file(given, options, policy), new)
        every = [*_rows_of(old), *mine.values()]
        figures |= summary(policy, every) if every else {}
    free = [row for job, row in rows.items() if job.arm == UNCAPPED]
    if free:
        figures[f"{UNCAPPED}_cpu_hours_of_all"] = cpu_hours_of_all(free)
    both = {f"{name}_work_low" for name in ("polca", WATTPACK)} <= set(figures)
    if both and figures["polca_servers"] == figures[f"{WATTPACK}_servers"]:
        for name in ("work_low", "work_high"):
            ratio = float(figures[f"{WATTPACK}_{name}"]) / float(figures[f"polca_{name}"])
            figures[f"{WATTPACK}_{name}_over_polca"] = ratio
    complete = all(figures.get(f"{policy}_shards") == SHARDS for policy in CALM_BELOW)
    targets = TARGETS | {name: one for name, one in WORK_TARGETS.items() if name in figures}
    return Result(figures, targets if complete else {})


def _jobs(
    order: Sequence[int], kept: Mapping[str, Summed], servers_of: Callable[[str], int]
) -> list[Job]:
    """Arms of shards that no sum holds; once the uncapped one of each row that a policy needs."""
    jobs: dict[Job, None] = {}
    for number in order:
        for policy, old in kept.items():
            if number not in old.numbers:
                servers = servers_of(policy)
                jobs[Job(UNCAPPED, servers, number)] = None
                jobs[Job(policy, servers, number)] = None
    return list(jobs)


def _servers(given: argparse.Namespace, policy: str) -> int:
    if given.servers is None and given.scenario is not None:
        return given_servers(given.scenario)
    return SERVERS[policy] if given.servers is None else int(given.servers)


def _asked(given: argparse.Namespace, seed: int, policy: str) -> Asked:
    return Asked(_servers(given, policy), seed, given.hotter, given.scenario)


def _rows_of(old: Summed) -> list[Row]:
    return [] if old.row is None else [old.row]


def _kept_file(given: argparse.Namespace, options: Options, policy: str) -> Path:
    row = _name_of_row(policy, _servers(given, policy), given.hotter)
    return KEPT / f"{row}-seed-{options.seed}-{_digest(given, policy)}.json.gz"


def _name_of_row(arm: str, servers: int, hotter: float) -> str:
    """As files of shards and of sums begin; the ordinary load goes without saying."""
    return f"{arm}-{servers}-hotter-{hotter!r}" if hotter else f"{arm}-{servers}"


def _with_uncapped(
    policy: str, servers: int, rows: Mapping[Job, Row], order: Sequence[int]
) -> dict[int, Row]:
    """A policy's shards, each with what the same requests came to without a policy."""
    both = {
        number: (rows.get(Job(policy, servers, number)), rows.get(Job(UNCAPPED, servers, number)))
        for number in order
    }
    return {
        number: mine | {"free_work": free["work"], "free_times": free["times"]}
        for number, (mine, free) in both.items()
        if mine is not None and free is not None
    }


def _arguments(options: Options) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {NAME}", description=SUMMARY)
    parser.add_argument(
        "--servers", type=int, help="in the row rated for 40 (default: POLCA's 52, wattpack's 54)"
    )
    parser.add_argument("--hotter", type=float, default=0.0, help="share of more requests: 0.05")
    parser.add_argument(
        "--policies", nargs="+", choices=tuple(CALM_BELOW), default=list(CALM_BELOW)
    )
    parser.add_argument("--shards", type=int, default=SHARDS, help="so many of the six weeks'")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--finished", action="store_true", help="run nothing, sum up what --resume holds"
    )
    parser.add_argument(
        "--keep", action="store_true", help="add what is finished to benchmarks/results/polca_weeks"
    )
    parser.add_argument("--scenario", type=Path, help="row, meter, plant and faults instead")
    given = parser.parse_args(options.arguments)
    if not 0.0 <= given.hotter < 1.0:
        raise InputError("--hotter", "a share of 0 to below 1, 0.05 for 5 %", given.hotter)
    return given


def _order(seed: int) -> list[int]:
    """Shards in the order in which they are run."""
    return [int(number) for number in np.random.default_rng([seed, DAYS]).permutation(SHARDS)]


# -- one shard -------------------------------------------------------------------------------------


def _rows(given: argparse.Namespace, options: Options, jobs: Sequence[Job]) -> dict[Job, Row]:
    """Shards that are finished, and unless only those are asked for the rest of them."""
    files = {job: _file(given, options, job) for job in jobs}
    rows: dict[Job, Row] = {
        job: json.loads(file.read_text(encoding="utf-8"))
        for job, file in files.items()
        if file is not None and file.exists()
    }
    missing = [job for job in jobs if job not in rows and not given.finished]
    work = partial(_shard, given, options.seed, options.quick)
    sweep = sweep_of(options.scheduler, sources_digest, 1 if options.quick else given.processes)
    for index, row in sweep.rows(work, missing):
        job = missing[index]
        rows[job] = row
        _keep(files[job], row)
        options.progress(f"{len(rows)} of {len(jobs)} shards")
    return rows


def _file(given: argparse.Namespace, options: Options, job: Job) -> Path | None:
    """Where a shard is kept, None where nothing is: a quick run's is a part of one."""
    if options.resume is None or options.quick:
        return None
    row = _name_of_row(job.arm, job.servers, given.hotter)
    shard = f"seed-{options.seed}-{job.number:03d}"
    return options.resume / f"{NAME}-{row}-{shard}-{_digest(given, job.arm)}.json"


def _digest(given: argparse.Namespace, arm: str) -> str:
    """Of what a shard rests on: the controller decides in one arm only."""
    without = NOT_ASKED if arm != WATTPACK else frozenset[str]()
    digest = rests_on_digest(f"benchmarks.{NAME}", without=without)
    if given.scenario is None:
        return digest
    made = hashlib.sha256(digest.encode() + given.scenario.read_bytes())
    return made.hexdigest()[:12]


def _keep(file: Path | None, row: Row) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".part")
        half.write_text(json.dumps(row) + "\n", encoding="utf-8")
        half.rename(file)


def _shard(given: argparse.Namespace, seed: int, quick: bool, job: Job) -> Row:
    """Two hours under a policy, or without one."""
    arm, servers, number = job
    day, part = divmod(number, 24 // SHARD_HOURS)
    hours = (float(SHARD_HOURS * part), float(SHARD_HOURS * (part + 1)))
    began = time.process_time()
    span = span_of(day, QUICK_HOURS if quick else hours)
    asked = Asked(servers, seed, given.hotter, given.scenario)
    row = uncapped_row(asked, span) if arm == UNCAPPED else span_row(arm, asked, span)
    row["cpu_seconds"] = time.process_time() - began
    compared = not quick and arm != UNCAPPED and day in AGREEMENT_DAYS
    if compared and hours[0] <= AGREEMENT_HOURS[0] < hours[1]:
        row |= agreement(arm, asked, day)
    return row
