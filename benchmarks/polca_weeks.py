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
from benchmarks._given_row import GivenRow, given_row, given_servers, told_of
from benchmarks._rests_on import rests_on_digest
from benchmarks._summed_shards import Summed, read_summed, summed, write_summed
from benchmarks._unbreakable_row import unbreakable
from benchmarks._weeks_figures import (
    KINDS,
    PRIORITIES,
    SHARD_HOURS,
    SHARDS,
    TARGETS,
    WORK_TARGETS,
    cpu_hours_of_all,
    summary,
)
from benchmarks.runner import RESULTS, Options, Result, Row, sources_digest
from capacity.phase_times import A100_MODEL
from simulation.inference_row.client_arrivals import DAY_SECONDS, ClientArrivals
from simulation.inference_row.days_under_policy import (
    CALM_BELOW,
    DayBooks,
    DayRun,
    Stretch,
    stretches,
    uncapped_seconds,
)
from simulation.inference_row.latency_accounts import RequestTimes
from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.inference_row.request_time_counts import sparse, time_counts
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import UNCAPPED, WATTPACK, polca_scenario
from simulation.inference_row.served_rows import served_row_of
from simulation.row_control.scenario_faults import at_fault
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
SERVERS: Final[Mapping[str, int]] = {"polca": 52, WATTPACK: 54}
"""Behind the breaker for 40: POLCA's + 30 % as published; ours with limits on every time."""
DAYS: Final = 42
LEAD_SECONDS: Final = 600.0
TAIL_SECONDS: Final = 600.0
PEAK_HOURS: Final = (13.0, 15.0)
AGREEMENT_HOURS: Final = (3.0, 4.0)
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


class Asked(NamedTuple):
    """A row and what is asked of it: ``hotter`` is a share of more requests."""

    servers: int
    seed: int
    hotter: float = 0.0
    scenario: Path | None = None


class Span(NamedTuple):
    """A span of the six weeks: counted, and run; seconds since Monday, midnight."""

    counted: tuple[float, float]
    run: tuple[float, float]


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
    first = _row(_asked(given, options.seed, given.policies[0]))
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


def span_of(day: int, hours: tuple[float, float]) -> Span:
    """Hours of a day; the run is cut at the ends of the six weeks."""
    begin, end = (day * DAY_SECONDS + hour * 3600.0 for hour in hours)
    last = min(end + TAIL_SECONDS, DAYS * DAY_SECONDS)
    return Span((begin, end), (max(0.0, begin - LEAD_SECONDS), last))


def span_row(policy: str, asked: Asked, case: Span) -> Row:
    """Books of a span under a policy, and counts of its requests' times."""
    mine = books_of(policy, asked, case, CALM_BELOW[policy])
    load = mine.load_between(*case.counted)
    return {
        "mean_ratio": float(load.mean()),
        "peak_ratio": mine.peak_ratio,
        "max_heat": mine.max_heat,
        "hot_hours": mine.hot_seconds / 3600.0,
        **mine.events,
        "work": mine.work_between(*case.counted).tolist(),
        "times": request_counts(mine, case),
    }


def uncapped_row(asked: Asked, case: Span) -> Row:
    """The same requests without a policy: one run, which every policy is held against.

    A dark row answers nobody, so its breakers never open.
    """
    row = _row(asked)
    arrivals, scenario = _arrivals(asked, row), unbreakable(row.scenario)
    free = DayRun(UNCAPPED, arrivals, arrivals.between(*case.run), scenario)
    plain = free.run([Stretch(*case.run, hot=False)])
    return {
        "work": plain.work_between(*case.counted).tolist(),
        "times": request_counts(plain, case),
    }


def _row(asked: Asked) -> GivenRow:
    if asked.scenario is not None:
        return given_row(asked.scenario, asked.seed, asked.servers)
    power = ServerPower.of()
    scenario = polca_scenario(asked.servers, asked.seed, power)
    return GivenRow(scenario, served_row_of(A100_MODEL), power)


def _arrivals(asked: Asked, row: GivenRow) -> ClientArrivals:
    return row.served.arrivals(asked.servers, seed=asked.seed, hotter=asked.hotter)


def books_of(policy: str, asked: Asked, case: Span, calm_below: float) -> DayBooks:
    """A span under a policy that is asked nothing in stretches below a load; 0: always asked."""
    row = _row(asked)
    arrivals = _arrivals(asked, row)
    requests = arrivals.between(*case.run)
    alone = uncapped_seconds(requests, arrivals, row.power, case.run)
    wrong = at_fault(row.scenario, case.run[0], len(alone))
    plan = stretches(alone, case.run[0], calm_below, wrong)
    return DayRun(policy, arrivals, requests, row.scenario).run(plan, case.counted)


def request_counts(books: DayBooks, case: Span) -> dict[str, Mapping[str, list[int]]]:
    """Counts of times by span, priority and kind."""
    servers = books.work.servers
    requests, times = servers.requests, RequestTimes.of(servers, case.run[1])
    arrival = requests.arrival_seconds
    counted = (arrival >= case.counted[0]) & (arrival < case.counted[1])
    hour = arrival / 3600.0 % 24.0
    spans = {"": counted, "peak_": counted & (hour >= PEAK_HOURS[0]) & (hour < PEAK_HOURS[1])}
    priority = np.array([one.priority for one in POLCA_CLASSES])[requests.of_class]
    return {
        f"{span}{name}_{kind}": sparse(
            time_counts(getattr(times, f"{kind}_seconds")[inside & (priority == which)])
        )
        for span, inside in spans.items()
        for name, which in PRIORITIES.items()
        for kind in KINDS
    }


def agreement(policy: str, asked: Asked, day: int) -> Row:
    """An hour of the night with caps that stand against the same with the policy at work."""
    case = span_of(day, AGREEMENT_HOURS)
    standing, through = (
        books_of(policy, asked, case, below) for below in (CALM_BELOW[policy], 0.0)
    )
    loads = [books.load_between(*case.counted) for books in (standing, through)]
    work = standing.work_between(*case.counted) / through.work_between(*case.counted)
    whole = [
        float(np.nanmean(RequestTimes.of(books.work.servers, case.run[1]).whole_seconds))
        for books in (standing, through)
    ]
    return {
        "calm_hot_seconds": standing.hot_seconds,
        "calm_mean_error": float(loads[0].mean() / loads[1].mean() - 1.0),
        "calm_p99_error": float(np.percentile(loads[0], 99) / np.percentile(loads[1], 99) - 1.0),
        "calm_work_error": float(np.abs(work - 1.0).max()),
        "calm_request_seconds_error": whole[0] / whole[1] - 1.0,
    }
