"""On problems with everything in them: the judge agrees, and what is infeasible really is."""

from __future__ import annotations

import dataclasses
import random

import pytest

from capacity.mix.mix_checker import complaints
from capacity.mix.mix_model import NoMix, SolveOptions, solve_mix
from capacity.mix.mix_problem import (
    Bucket,
    Goal,
    MixLimits,
    MixPrices,
    MixProblem,
    Offer,
    Phase,
    PowerLimit,
    ReplicaShape,
    ServiceRate,
    Tier,
)

OPTIONS = SolveOptions(seconds=20.0)


def problem(rng: random.Random) -> MixProblem:
    """One to three types, widths and caps, all phases, and quantities over many decades."""
    buckets = tuple(_bucket(rng, f"b{i}") for i in range(rng.randint(1, 5)))
    shapes = tuple(
        _shape(rng, f"T{t}", cap, gpus, buckets)
        for t in range(rng.randint(1, 3))
        for cap in rng.sample([200.0, 300.0, 450.0, 700.0], rng.randint(1, 2))
        for gpus in rng.sample([1, 2, 8], rng.randint(1, 2))
    )
    offers = tuple(
        _offer(rng, f"o{i}", model, [s.name for s in shapes if s.gpu_model == model])
        for i, model in enumerate(sorted({s.gpu_model for s in shapes} | {"T0"}))
    )
    domains = (
        PowerLimit("hall", "", *(rng.choice([None, _any(rng, 3, 7)]) for _ in range(2))),
        PowerLimit("row", "hall", rng.choice([None, _any(rng, 3, 6)])),
    )
    prices = MixPrices(rng.choice([0, 0.12]), 400, rng.choice([0, 100]), rng.choice([0, 5]), 24)
    limits = MixLimits(rng.choice([None, _any(rng, 0, 4)]), rng.choice([None, _any(rng, 3, 6)]))
    return MixProblem(buckets, shapes, offers, domains, prices, limits)


def _any(rng: random.Random, low: float, high: float) -> float:
    """Spread over decades."""
    return float(10 ** rng.uniform(low, high))


def _bucket(rng: random.Random, name: str) -> Bucket:
    return Bucket(
        name,
        _any(rng, -3, 3),
        rng.choice(list(Tier)),
        minimum_replicas=rng.choice((1, 1, 2, 5)),
        largest_spot_share=rng.choice((0.0, 0.3, 1.0)),
        kv_bytes_per_request=_any(rng, 6, 10),
        longest_transfer_seconds=rng.choice((None, 0.05, 1.0)),
    )


def _shape(
    rng: random.Random, model: str, cap: float, gpus: int, buckets: tuple[Bucket, ...]
) -> ReplicaShape:
    idle = gpus * rng.uniform(0, 100)
    rates = {}
    for bucket in buckets:
        for phase in Phase:
            if rng.random() < 0.6:
                mean = _any(rng, -2, 2)
                busy = idle + gpus * rng.uniform(0, cap)
                rates[bucket.name, phase] = ServiceRate(mean, mean * rng.uniform(0.5, 1), busy)
    p99, link = idle + gpus * cap * 1.2, _any(rng, 8, 11)
    return ReplicaShape(f"{model}@{cap:g}x{gpus}", model, cap, gpus, idle, p99, rates, link)


def _offer(rng: random.Random, name: str, model: str, shapes: list[str]) -> Offer:
    running = {shape: rng.randint(1, 5) for shape in shapes if rng.random() < 0.3}
    stock, price = rng.choice((0, 4, 50, 100_000)), rng.uniform(0, 8)
    domain, is_spot = rng.choice(("", "row", "hall")), rng.random() < 0.3
    return Offer(name, model, stock, price, domain, is_spot, rng.uniform(0, 50), running)


@pytest.mark.parametrize("seed", range(40))
def test_a_demand_is_refused_exactly_if_not_all_of_it_can_be_served(seed: int) -> None:
    asked = problem(random.Random(seed))
    most = solve_mix(dataclasses.replace(asked, goal=Goal.MOST_REQUESTS), OPTIONS)
    assert complaints(dataclasses.replace(asked, goal=Goal.MOST_REQUESTS), most) == ()
    try:
        cheapest = solve_mix(asked, OPTIONS)
    except NoMix:
        assert most.bound < 1 - 1e-6
    else:
        assert complaints(asked, cheapest) == ()
        assert most.served_fraction == pytest.approx(1.0, abs=1e-5)
