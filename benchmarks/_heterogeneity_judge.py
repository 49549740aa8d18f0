"""Recounts rounds of ``heterogeneity`` and works out what no rounds can exceed: no planner code.

The optimum is a linear program over seconds of each job on each GPU type, which knows no rounds
and no servers: its own variables and rows, solved by HiGHS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scipy.optimize import linprog

from benchmarks._gavel_jobs import GavelJob


class Ran(NamedTuple):
    """A job had a round on a server."""

    round: int
    job: int
    server: int


@dataclass(slots=True)
class Verdict:
    """What rounds came to.

    Attributes:
        rounds_on: Rounds that each job had on each GPU type.
        faults: A line for whatever breaks a rule; it does not count.
    """

    rounds_on: dict[tuple[int, str], int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def recount(
    servers: Sequence[tuple[str, int]], jobs: Sequence[GavelJob], ran: Iterable[Ran]
) -> Verdict:
    """Every round on its own: no server gives more GPUs than it has, no job runs twice."""
    verdict = Verdict()
    used: dict[tuple[int, int], int] = defaultdict(int)
    seen: set[tuple[int, int]] = set()
    for number, job, server in ran:
        model, boards = servers[server]
        used[number, server] += jobs[job].gpus
        if used[number, server] > boards:
            verdict.faults.append(f"round {number}: server {server} gives more than {boards} GPUs")
        elif (number, job) in seen:
            verdict.faults.append(f"round {number}: job {job} runs twice")
        elif model not in jobs[job].speeds:
            verdict.faults.append(f"round {number}: job {job} cannot run on {model}")
        else:
            seen.add((number, job))
            key = (job, model)
            verdict.rounds_on[key] = verdict.rounds_on.get(key, 0) + 1
    return verdict


def mean_speed(verdict: Verdict, job: GavelJob, rounds: int) -> float:
    """Steps a second over all rounds, those without a GPU counted in."""
    done = sum(verdict.rounds_on.get((job.number, m), 0) * v for m, v in job.speeds.items())
    return done / rounds


def cost_per_hour(
    verdict: Verdict, jobs: Sequence[GavelJob], price: Mapping[str, float], rounds: int
) -> float:
    """Of all GPUs that rounds took."""
    paid = sum(
        count * jobs[job].gpus * price[model] for (job, model), count in verdict.rounds_on.items()
    )
    return paid / rounds


def equal_speed(job: GavelJob, gpus: Mapping[str, int]) -> float:
    """Of a job that has each GPU type for a part of the time as large as its part of all GPUs."""
    total = sum(gpus.values())
    return sum(job.speeds.get(model, 0.0) * count / total for model, count in gpus.items())


def fair_ratio(job: GavelJob, speed: float, gpus: Mapping[str, int]) -> float:
    """What max-min fairness compares (Gavel 4.1, equal weights)."""
    return speed / equal_speed(job, gpus) * job.gpus


def best_smallest_ratio(jobs: Sequence[GavelJob], gpus: Mapping[str, int]) -> float:
    """The optimum of max-min fairness."""
    pairs = [(job.number, model) for job in jobs for model in gpus if model in job.speeds]
    column = {pair: i + 1 for i, pair in enumerate(pairs)}  # column 0 is the smallest ratio
    rows: list[list[float]] = []
    limits: list[float] = []
    for job in jobs:
        fair = [1.0] + [0.0] * len(pairs)
        for model, speed in job.speeds.items():
            fair[column[job.number, model]] = -fair_ratio(job, speed, gpus)
        rows.append(fair)
        limits.append(0.0)
    more, bounds = _shared_rows(jobs, gpus, column, len(pairs) + 1)
    found = linprog([-1.0] + [0.0] * len(pairs), A_ub=rows + more, b_ub=limits + bounds)
    return float(-found.fun)


def least_cost(
    jobs: Sequence[GavelJob],
    gpus: Mapping[str, int],
    price: Mapping[str, float],
    least_speed: Sequence[float],
) -> float:
    """The cheapest hour in which each job reaches its speed on average."""
    pairs = [(job.number, model) for job in jobs for model in gpus if model in job.speeds]
    column = {pair: i for i, pair in enumerate(pairs)}
    rows: list[list[float]] = []
    for job in jobs:
        row = [0.0] * len(pairs)
        for model, speed in job.speeds.items():
            row[column[job.number, model]] = -speed
        rows.append(row)
    more, bounds = _shared_rows(jobs, gpus, column, len(pairs))
    cost = [jobs[job].gpus * price[model] for job, model in pairs]
    found = linprog(cost, A_ub=rows + more, b_ub=[-s for s in least_speed] + bounds)
    return float(found.fun)


def _shared_rows(
    jobs: Sequence[GavelJob],
    gpus: Mapping[str, int],
    column: Mapping[tuple[int, str], int],
    width: int,
) -> tuple[list[list[float]], list[float]]:
    """A job has one second a second, and a type has no more GPUs than it has."""
    rows: list[list[float]] = []
    limits: list[float] = []
    for job in jobs:
        row = [0.0] * width
        for model in job.speeds:
            row[column[job.number, model]] = 1.0
        rows.append(row)
        limits.append(1.0)
    for model, count in gpus.items():
        row = [0.0] * width
        for job in jobs:
            if model in job.speeds:
                row[column[job.number, model]] = float(job.gpus)
        rows.append(row)
        limits.append(float(count))
    return rows, limits
