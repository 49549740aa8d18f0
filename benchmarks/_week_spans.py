"""A span of six weeks of POLCA's row, under a policy or without one: books, and requests' times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks._given_row import GivenRow, given_row
from benchmarks._unbreakable_row import unbreakable
from benchmarks._weeks_figures import KINDS, PRIORITIES
from benchmarks.runner import Row
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

SERVERS: Final[Mapping[str, int]] = {"polca": 52, WATTPACK: 54}
"""Behind the breaker for 40: POLCA's + 30 % as published; ours with limits on every time."""
DAYS: Final = 42
LEAD_SECONDS: Final = 600.0
TAIL_SECONDS: Final = 600.0
PEAK_HOURS: Final = (13.0, 15.0)
AGREEMENT_HOURS: Final = (3.0, 4.0)


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
    row = row_of(asked)
    arrivals, scenario = _arrivals(asked, row), unbreakable(row.scenario)
    free = DayRun(UNCAPPED, arrivals, arrivals.between(*case.run), scenario)
    plain = free.run([Stretch(*case.run, hot=False)])
    return {
        "work": plain.work_between(*case.counted).tolist(),
        "times": request_counts(plain, case),
    }


def row_of(asked: Asked) -> GivenRow:
    """The benchmark's own row, or a file's."""
    if asked.scenario is not None:
        return given_row(asked.scenario, asked.seed, asked.servers)
    power = ServerPower.of()
    scenario = polca_scenario(asked.servers, asked.seed, power)
    return GivenRow(scenario, served_row_of(A100_MODEL), power)


def _arrivals(asked: Asked, row: GivenRow) -> ClientArrivals:
    return row.served.arrivals(asked.servers, seed=asked.seed, hotter=asked.hotter)


def both_ways(policy: str, asked: Asked, case: Span) -> tuple[DayBooks, DayBooks]:
    """A span with caps that stand where it is calm, and with the policy at work throughout."""
    return (
        books_of(policy, asked, case, CALM_BELOW[policy]),
        books_of(policy, asked, case, 0.0),
    )


def books_of(policy: str, asked: Asked, case: Span, calm_below: float) -> DayBooks:
    """A span under a policy that is asked nothing in stretches below a load; 0: always asked."""
    row = row_of(asked)
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
    standing, through = both_ways(policy, asked, case)
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
