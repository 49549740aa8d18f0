"""Mélange's integer program, written from the paper (arXiv 2404.14527, section 5), for comparison.

Each bucket's rate is cut into equal slices, each slice goes to one GPU type as a whole, a slice's
load on a type is its rate over that type's largest throughput, and the loads on a type may not
exceed its whole number of GPUs; the sum of prices is least. Slices of one bucket are alike, so
their count on each type stands for them. Loads are rounded down, in the paper's favour.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from ortools.sat.python import cp_model

from benchmarks._mix_cases import Case

SLICES = 4
_SCALE = 10**9
_CENTS = 10**6


@dataclass(frozen=True, slots=True)
class MelangeAnswer:
    """Dollars per hour of the answer, of its bound, and GPUs by type."""

    dollars_per_hour: float
    bound: float
    gpus: tuple[int, ...]


def solve_melange(case: Case, seconds: float, slices: int = SLICES) -> MelangeAnswer:
    """The least price of whole GPUs that carry every slice."""
    model = cp_model.CpModel()
    types, buckets = range(len(case.dollars)), range(len(case.requests_per_second))
    gpus = [model.new_int_var(0, 10_000, f"gpus{t}") for t in types]
    loads: list[list[cp_model.LinearExprT]] = [[] for _ in types]
    for b in buckets:
        placed = []
        for t in types:
            if case.rates[t, b] > 0:
                count = model.new_int_var(0, slices, f"slices{b}_{t}")
                one = case.requests_per_second[b] / slices / case.rates[t, b]
                loads[t].append(count * floor(one * _SCALE))
                placed.append(count)
        model.add(sum(placed) == slices)
    for t in types:
        model.add(sum(loads[t]) <= _SCALE * gpus[t])
    model.minimize(sum(round(float(case.dollars[t]) * _CENTS) * gpus[t] for t in types))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise RuntimeError(f"no answer in {seconds} s: {solver.status_name(status)}")
    chosen = tuple(int(solver.value(count)) for count in gpus)
    dollars = sum(float(p) * n for p, n in zip(case.dollars, chosen, strict=True))
    return MelangeAnswer(dollars, solver.best_objective_bound / _CENTS, chosen)
