"""POLCA's row under POLCA's policy, its baselines and wattpack: the same requests, the same plant.

A window is some hours of one day of the six weeks; every policy gets the row with the same clients
in it. Losses are quantiles of request times over the same quantile uncapped; the published targets
are 0 brakes, high priority p50 < 1 % and p99 < 5 %, low priority p50 < 5 % and p99 < 50 % over six
weeks, with p50 of low priority up to 25 % in peak hours.

Work is counted three ways (``_row_work``). Judged are ``answered_work``, of the requests that come
in the window, what is answered by the end of the run, five minutes after it (all of it, where
nobody leaves a request behind), and ``work_from_start``, what the servers get done from the run's
begin, when the row is empty, to the window's end. ``work`` is what they do in the window: there a
policy that held the row back before shows more than a row that nobody held back.

wattpack is told no forecast and no host's draw, reads the same meter, and holds leases of 3.5 s;
the published policies lock clocks 40 s late. No mean without its baseline: figures of every policy
are of the same windows. Two arms have no line: ``wattpack_40s``, with boards that take a lowered
limit 40 s late, and ``static``, a row that nothing holds back, of as many servers as the published
peak leaves room for (50); its work is told over that of the larger row, uncapped.

Of a scenario file: row of one GPU type whose requests are timed, meters, plant, lowest and highest
class, lease and tick, and faults, whose time begins with the counted time of each window. All arms
see the same ones, the uncapped row that losses are held against included. A published policy has no
agents and asks no API: of it messages, readings and the API's failure are no faults.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks._breaker_curves import row_marks
from benchmarks._given_power import power_figures
from benchmarks._given_row import (
    GivenRow,
    given_row,
    given_servers,
    refuse_beside_a_file,
    told_of,
)
from benchmarks._polca_arms import ARMS, STATIC, of_arm, static_row, static_work
from benchmarks._rests_on import rests_on_digest
from benchmarks._row_work import WindowWork
from benchmarks._unbreakable_row import unbreakable
from benchmarks.runner import (
    Options,
    Result,
    Row,
    Rows,
    Target,
    finished_rows,
)
from capacity.phase_times import A100_MODEL, ServerTimes
from simulation.inference_row.client_arrivals import DAY_SECONDS, ClientArrivals
from simulation.inference_row.latency_accounts import latency_losses
from simulation.inference_row.request_lengths import LENGTHS
from simulation.inference_row.row_power import GPU_SHARE, ServerPower
from simulation.inference_row.row_under_policy import (
    ROW_POLICIES,
    UNCAPPED,
    WATTPACK,
    PolicyRun,
    Window,
    polca_scenario,
    run_policy,
)
from simulation.inference_row.served_rows import served_row_of
from simulation.row_control.scenario_faults import faults_within

NAME = "polca_row"
SUMMARY = "inference row at +30 %: POLCA, its baselines and wattpack against the uncapped row"
TAKES_ARGUMENTS = True
USAGE: Final = (
    "--servers N, --policies NAME…, --days N…, --hottest N, --hours X, --hotter SHARE, "
    "--gpu-share SHARE, --lengths published|azure, --step-seconds X, --scenario FILE"
)
TAKES_SCHEDULER = True
POLCA: Final = "polca"
SERVERS: Final = 52
SIX_WEEKS_DAYS: Final = 42
PEAK_HOUR: Final = 13.0
LEAD_SECONDS, TAIL_SECONDS = 600.0, 300.0
HOTTEST: Final = 2
QUICK_DAY: Final = 1
HOURS: Final = 1.0
STEP_SECONDS: Final = 0.25
LIMITS: Final = {"high_p50": 0.01, "high_p99": 0.05, "low_p50": 0.25, "low_p99": 0.50}
"""Highest losses in peak hours; over six weeks low_p50 is 0.05."""


def _slos(policy: str, kinds: Sequence[str]) -> dict[str, Target]:
    return {
        f"{policy}_{name.split('_')[0]}_{kind}_{name.split('_')[1]}": Target(at_most=limit)
        for kind in kinds
        for name, limit in LIMITS.items()
    }


TARGETS: Final = {
    "polca_brakes": Target(at_most=0),
    **_slos("polca", ("whole",)),
    "wattpack_brakes": Target(at_most=0),
    "wattpack_trips": Target(at_most=0),
    **_slos("wattpack", ("whole", "first", "token")),
    **{
        f"wattpack_{kind}_{priority}_over_polca": Target(at_least=1.0)
        for kind in ("answered_work", "work_from_start")
        for priority in ("low", "high")
    },
}
WORK: Final = tuple(
    f"{kind}_{priority}"
    for kind in ("work", "work_from_start", "answered_work")
    for priority in ("low", "high")
)
WORST: Final = ("peak_ratio", "p99_9_ratio", "max_heat")
SUMMED: Final = ("brakes", "trips", "above_seconds", "cap_changes", "invariant_violations")


def run(options: Options) -> Result:
    """Every policy in every window; one shard a window."""
    given = _arguments(options)
    policies = tuple(given.policies)
    row = _row_of(given, options.seed)
    told = told_of(given.scenario, options, policies)
    if STATIC in policies:
        faults_within(
            static_row(row.scenario)
        )  # Refused for a target that only the larger row has.
    windows = _windows(given, options)

    def one_window(seed: int, number: int) -> Row:
        return _window_row(policies, windows[number], seed, given, options)

    rests_on = rests_on_digest(f"benchmarks.{NAME}")
    rows = finished_rows(options, _kind(given, windows), one_window, len(windows), rests_on)
    figures: dict[str, float | int | str] = {
        "servers": given.servers,
        "windows": len(windows),
        **power_figures(row.power),
        "lengths": given.lengths,
        "calibration_sha256": row.served.sha256,
        **row_marks(row.scenario),
        **told,
    }
    for policy in policies:
        figures |= summary(policy, rows)
    if {POLCA, WATTPACK} <= set(policies):
        for name in WORK:
            mine, theirs = (float(figures[f"{policy}_{name}"]) for policy in (WATTPACK, POLCA))
            figures[f"{WATTPACK}_{name}_over_polca"] = mine / theirs if theirs else float("nan")
    return Result(figures, TARGETS if _is_published(given, options) else {})


def _is_published(given: argparse.Namespace, options: Options) -> bool:
    """Whether it is the row and the windows, or more of them, for which the lines were drawn."""
    return (
        not options.quick
        and given.scenario is None
        and (given.lengths, given.servers, given.hotter) == ("published", SERVERS, 0.0)
        and given.gpu_share in {None, GPU_SHARE}
        and given.days is None
        and given.hours >= HOURS
        and given.hottest >= HOTTEST
        and set(ROW_POLICIES) <= set(given.policies)
    )


def _arguments(options: Options) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {NAME}", description=SUMMARY)
    parser.add_argument("--servers", type=int, help="in the row rated for 40; 52, or a file's")
    parser.add_argument("--policies", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--days", nargs="+", type=int, help="0 is a Monday; the hottest if unset")
    parser.add_argument("--hottest", type=int, default=HOTTEST, help="so many of them")
    parser.add_argument("--hours", type=float, default=HOURS, help="of each day, from 13:00 on")
    parser.add_argument("--hotter", type=float, default=0.0, help="share of more requests")
    parser.add_argument("--gpu-share", type=float, help=f"of a server's draw; {GPU_SHARE}")
    parser.add_argument(
        "--lengths",
        choices=tuple(LENGTHS),
        default="published",
        help="of prompts and answers: POLCA's workloads, or Azure's requests of 2023",
    )
    parser.add_argument("--step-seconds", type=float, help="of the plant; 0.25, or a file's")
    parser.add_argument("--scenario", type=Path, help="row, meter, plant and faults instead")
    given = parser.parse_args(options.arguments)
    refuse_beside_a_file(given.scenario, gpu_share=given.gpu_share)
    if given.servers is None:
        given.servers = SERVERS if given.scenario is None else given_servers(given.scenario)
    return given


def _windows(given: argparse.Namespace, options: Options) -> Sequence[Window]:
    if options.quick:
        begin = QUICK_DAY * DAY_SECONDS + PEAK_HOUR * 3600.0
        return [Window(begin - 120.0, 120.0, 60.0, 20.0)]
    arrivals = _arrivals_of(given, options.seed)
    days = given.days or hottest_days(arrivals, given.hours)[: given.hottest]
    return [
        Window(
            day * DAY_SECONDS + PEAK_HOUR * 3600.0 - LEAD_SECONDS,
            LEAD_SECONDS,
            given.hours * 3600.0,
            TAIL_SECONDS,
        )
        for day in days
    ]


def _arrivals_of(
    given: argparse.Namespace, seed: int, servers: int | None = None
) -> ClientArrivals:
    served = _row_of(given, seed).served
    return served.arrivals(servers or given.servers, seed=seed, hotter=given.hotter)


def hottest_days(arrivals: ClientArrivals, hours: float) -> list[int]:
    """Days by the work that arrives in their peak hours, the most first; looks at no policy."""
    times = arrivals.times
    work = []
    for day in range(SIX_WEEKS_DAYS):
        begin = day * DAY_SECONDS + PEAK_HOUR * 3600.0
        asked = arrivals.between(begin, begin + hours * 3600.0)
        answers = float(asked.output_tokens.sum()) * times.work_seconds_per_token
        work.append(float(times.seconds_of_prompt(asked.prompt_tokens).sum()) + answers)
    return [int(day) for day in np.argsort(work)[::-1]]


def _row_of(given: argparse.Namespace, seed: int) -> GivenRow:
    """The row asked for: the published one, or a file's."""
    if given.scenario is not None:
        row = given_row(given.scenario, seed, given.servers, given.lengths)
        step = row.scenario.step_seconds if given.step_seconds is None else given.step_seconds
        return replace(row, scenario=row.scenario.model_copy(update={"step_seconds": step}))
    served = served_row_of(A100_MODEL, given.lengths)
    power = ServerPower.of(GPU_SHARE if given.gpu_share is None else given.gpu_share)
    step = STEP_SECONDS if given.step_seconds is None else given.step_seconds
    return GivenRow(polca_scenario(given.servers, seed, power, step), served, power)


def _window_row(
    policies: Sequence[str],
    window: Window,
    seed: int,
    given: argparse.Namespace,
    options: Options,
) -> Row:
    arrivals = _arrivals_of(given, seed)
    scenario, times = _row_of(given, seed).scenario, arrivals.times
    uncapped = run_policy(UNCAPPED, arrivals, window, scenario)
    plain = uncapped
    if uncapped.result.trips:
        # A dark row answers nobody: losses are held against one whose breakers never open.
        plain = run_policy(UNCAPPED, arrivals, window, unbreakable(scenario))
    row: Row = {}
    for policy in policies:
        if policy == STATIC:
            fewer = static_row(scenario)
            of_fewer = _arrivals_of(given, seed, fewer.row.servers)
            static = run_policy(UNCAPPED, of_fewer, window, fewer)
            row[policy] = {
                **figures_of(static, static, window, times),
                **static_work(static, plain, window, times),
            }
        elif policy == UNCAPPED:
            row[policy] = figures_of(uncapped, plain, window, times)
        else:
            name, of_policy, settings = of_arm(policy, scenario)
            mine = run_policy(name, arrivals, window, of_policy, settings)
            row[policy] = figures_of(mine, plain, window, times)
        options.progress(f"day {window.begin_seconds / DAY_SECONDS:.2f}, {policy}: {row[policy]}")
    return row


def figures_of(
    mine: PolicyRun, uncapped: PolicyRun, window: Window, times: ServerTimes
) -> dict[str, float]:
    """Books, work and losses of one run against the uncapped one of the same window."""
    result = mine.result
    inside = result.seconds > window.lead_seconds
    load = result.load_ratio[inside, 0]
    work, plain = (WindowWork.of(run, window, times) for run in (mine, uncapped))
    end = window.begin_seconds + window.whole_seconds
    return {
        "mean_ratio": float(load.mean()),
        "peak_ratio": float(load.max()),
        "p99_9_ratio": float(np.percentile(load, 99.9)),
        "max_heat": float(result.max_heat[0]),
        "above_seconds": float(result.above_seconds[0]),
        "brakes": result.brakes,
        "trips": result.trips,
        "cap_changes": result.cap_changes,
        "invariant_violations": sum(result.violations.values()),
        **work.over(plain),
        "guaranteed_watts": float(mine.guaranteed_watts.mean()),
        "floor_watts": float(mine.floor_watts.mean()),
        **latency_losses(mine.work.servers, uncapped.work.servers, window.counted, end),
    }


def summary(policy: str, rows: Rows) -> dict[str, float]:
    """Over the windows: sums of events, the worst of loads, the mean of the rest."""
    mine: list[Mapping[str, float]] = [row[policy] for row in rows]
    made: dict[str, float] = {}
    for name in mine[0]:
        values = [one[name] for one in mine]
        total = sum(values)
        mean = total / len(values)
        made[f"{policy}_{name}"] = (
            max(values) if name in WORST else total if name in SUMMED else mean
        )
    return made


def _kind(given: argparse.Namespace, windows: Sequence[Window]) -> str:
    """Name of the shards: whatever a row of figures depends on, besides seed and code."""
    asked = {**vars(given), "windows": [str(window) for window in windows]}
    if given.scenario is not None:
        asked["scenario"] = given.scenario.read_text(encoding="utf-8")
    text = json.dumps(asked, sort_keys=True, default=str)
    return f"{NAME}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
