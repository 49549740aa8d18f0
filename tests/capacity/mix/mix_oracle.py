"""Brute force: every combination of replicas, and for each the cheapest shares by a small LP.

Knows the documents only; written from the problem's docstrings, not from the model.
"""

from __future__ import annotations

from itertools import product

from ortools.linear_solver import pywraplp

from capacity.mix.mix_problem import MixProblem, Phase, Tier


def least_dollars(problem: MixProblem) -> float | None:
    """Dollars per hour of the best mix, None if there is none. Whole requests only."""
    columns = [
        (offer, shape)
        for offer in problem.offers
        for shape in problem.shapes
        if offer.gpu_model == shape.gpu_model
    ]
    best: float | None = None
    for counts in product(*(range(offer.gpus // shape.gpus + 1) for offer, shape in columns)):
        dollars = _dollars(problem, columns, counts)
        if dollars is not None and (best is None or dollars < best):
            best = dollars
    return best


def _dollars(problem, columns, counts):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
    for offer in problem.offers:
        if (
            sum(n * s.gpus for (o, s), n in zip(columns, counts, strict=True) if o == offer)
            > offer.gpus
        ):
            return None
    solver = pywraplp.Solver.CreateSolver("GLOP")
    prices, total = problem.prices, 0.0
    served = {}
    mean = {}
    for (o, s), n in zip(columns, counts, strict=True):
        total += n * s.gpus * o.dollars_per_gpu_hour
        total += n * s.gpus * o.embodied_grams_per_gpu_hour * prices.dollars_per_tonne / 1e6
        work = solver.Sum([])
        draw = n * s.idle_watts + solver.Sum([])
        for b in problem.buckets:
            rate = s.rates.get((b.name, Phase.WHOLE))
            if rate is None:
                continue
            per_second = solver.NumVar(0, b.requests_per_second * n / b.minimum_replicas, "")
            served[b.name, o.name, s.name] = per_second
            sure = b.tier is Tier.HARD
            work += per_second / (
                rate.lower_requests_per_second if sure else rate.requests_per_second
            )
            draw += per_second / rate.requests_per_second * (rate.busy_watts - s.idle_watts)
        solver.Add(work <= n)
        mean[o.name, s.name] = draw
    for b in problem.buckets:
        mine = [v for (name, _, _), v in served.items() if name == b.name]
        solver.Add(solver.Sum(mine) == b.requests_per_second)
        spot = [
            v
            for (name, o, _), v in served.items()
            if name == b.name and any(x.name == o and x.is_spot for x in problem.offers)
        ]
        solver.Add(solver.Sum(spot) <= b.largest_spot_share * b.requests_per_second)
    for d in problem.domains:
        inside = {o.name for o in problem.offers if d.name in problem.above(o.domain)}
        if d.budget_watts is not None:
            solver.Add(
                solver.Sum([w for (o, _), w in mean.items() if o in inside]) <= d.budget_watts
            )
        peak = sum(
            n * s.p99_watts for (o, s), n in zip(columns, counts, strict=True) if o.name in inside
        )
        if d.breaker_watts is not None and peak > d.breaker_watts:
            return None
    watts = solver.Sum(list(mean.values()))
    per_kwh = prices.dollars_per_kwh + prices.grams_per_kwh * prices.dollars_per_tonne / 1e6
    solver.Minimize(watts * (per_kwh / 1000))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    return total + solver.Objective().Value()
