"""Whole days of POLCA's row with caps that stand in calm stretches, against the policy throughout.

``polca_weeks`` asks no policy while the row is calm (``days_under_policy``). Here the same days run
both ways, midnight to midnight, request by request: a weekday and one of the weekend by default.
Told of each policy, over its days: mean and quantiles of the draw, work, and what the times of
requests come to at p50 and p99 (the larger of both is the base), the farthest of all days.
``--resume DIR`` keeps finished days.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks._breaker_curves import row_marks
from benchmarks._rests_on import rests_on_digest
from benchmarks._week_spans import SERVERS, Asked, both_ways, request_counts, span_of
from benchmarks._weeks_figures import KINDS, PRIORITIES, QUANTILES
from benchmarks.runner import Options, Result, Row, Target, finished_rows
from simulation.inference_row.days_under_policy import CALM_BELOW
from simulation.inference_row.request_time_counts import dense, quantile_seconds
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import polca_scenario
from wattpack.errors import InputError

NAME = "calm_days"
SUMMARY = "whole days of the inference row with caps that stand while it is calm, and without"
TAKES_ARGUMENTS = True
USAGE: Final = "--days N…, --policies NAME…"

DAYS: Final = (1, 5)
WHOLE: Final = (0.0, 24.0)
QUICK: Final = (3.0, 3.25)
DRAW_WITHIN: Final = 0.005
WORK_WITHIN: Final = 0.001
TIMES_WITHIN: Final = 0.005
"""Of the larger of both ways; six weeks' lines for requests are 0.01 and more. Chosen before any
day was run."""

TARGETS: Final = {
    **{
        f"{policy}_{name}_error": Target(at_most=DRAW_WITHIN)
        for policy in CALM_BELOW
        for name in ("mean", "p99", "p99_9")
    },
    **{f"{policy}_work_error": Target(at_most=WORK_WITHIN) for policy in CALM_BELOW},
    **{f"{policy}_times_error": Target(at_most=TIMES_WITHIN) for policy in CALM_BELOW},
}


def run(options: Options) -> Result:
    """Every day under every policy, both ways."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {NAME}", description=SUMMARY)
    parser.add_argument("--days", type=int, nargs="+", default=list(DAYS), help="1 is Tuesday")
    parser.add_argument(
        "--policies", nargs="+", choices=tuple(CALM_BELOW), default=list(CALM_BELOW)
    )
    given = parser.parse_args(options.arguments)
    for day in given.days:
        if not 1 <= day <= 41:
            raise InputError("--days", "days from 1 to 41", day)
    days = list(dict.fromkeys(given.days))[: 1 if options.quick else None]
    policies = given.policies[:1] if options.quick else given.policies
    cases = [(policy, day) for policy in policies for day in days]

    def one_case(seed: int, number: int) -> Row:
        policy, day = cases[number]
        options.progress(f"{policy}, day {day}")
        return compared(policy, seed, day, QUICK if options.quick else WHOLE)

    kind = f"{NAME}-{'quick' if options.quick else 'days'}-{'-'.join(map(str, cases))}"
    digest = rests_on_digest(f"benchmarks.{NAME}")
    rows = finished_rows(options, _plain(kind), one_case, len(cases), digest)
    row = polca_scenario(SERVERS[policies[0]], options.seed, ServerPower.of())
    figures: dict[str, float | int | str] = {**row_marks(row)}
    for policy in policies:
        mine = [row for (of, _), row in zip(cases, rows, strict=True) if of == policy]
        figures |= {f"{policy}_days": len(mine)}
        figures |= {
            f"{policy}_{name}": max(float(row[name]) for row in mine if name in row)
            for name in sorted(set().union(*mine))
        }
    wanted = {name: one for name, one in TARGETS.items() if name in figures}
    return Result(figures, {} if options.quick else wanted)


def _plain(kind: str) -> str:
    return "".join(one if one.isalnum() or one in "-_" else "" for one in kind)


def compared(policy: str, seed: int, day: int, hours: tuple[float, float]) -> Row:
    """How far the two ways are apart over hours of a day, shares of the larger."""
    asked, case = Asked(SERVERS[policy], seed), span_of(day, hours)
    standing, through = both_ways(policy, asked, case)
    loads = [books.load_between(*case.counted) for books in (standing, through)]
    quantiles = {"p99": 99.0, "p99_9": 99.9}
    draws = {
        f"{name}_error": _apart(*(float(np.percentile(load, at)) for load in loads))
        for name, at in quantiles.items()
    }
    work = [books.work_between(*case.counted) for books in (standing, through)]
    counts = [request_counts(books, case) for books in (standing, through)]
    return {
        "hot_share": standing.hot_seconds / (case.run[1] - case.run[0]),
        "mean_error": _apart(*(float(load.mean()) for load in loads)),
        **draws,
        "work_error": max(_apart(*pair) for pair in zip(*(w.tolist() for w in work), strict=True)),
        "times_error": max(_times_apart(counts).values()),
        **{f"{name}_apart": value for name, value in _times_apart(counts).items()},
    }


def _times_apart(counts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for name in PRIORITIES:
        for kind in KINDS:
            both = [dense(one[f"{name}_{kind}"]) for one in counts]
            if not all(one.any() for one in both):
                continue
            for quantile in QUANTILES:
                ends = [quantile_seconds(one, quantile) for one in both]
                found[f"{name}_{kind}_p{quantile}"] = _apart(*ends)
    return found


def _apart(one: float, other: float) -> float:
    return abs(one - other) / max(abs(one), abs(other), 1e-12)
