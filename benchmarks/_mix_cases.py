"""Cases of ``gpu_mix``: Mélange's toy matrix and a seeded generator of fleets and request mixes.

The generator's GPU types differ as real ones do: prices from 0.7 to 8 dollars an hour, speed per
dollar that falls with price for short requests and rises for long ones (memory holds the batch), so
that no type wins everywhere. Its constants are assumed and chosen before any result was seen; only
the cap curve was measured (Zeus, V100: floor 0.2 of the limit, exponent 0.37).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

Floats = NDArray[np.float64]
#: Dollars per kWh; only counted where watts matter.
ENERGY_PRICE = 0.12
#: Of a Llama-2-7B token in 16 bits (2 x 32 layers x 4096 x 2 bytes), the model of Mélange's paper.
KV_BYTES_PER_TOKEN = 524_288.0
#: One 100 Gb/s port a GPU, for hand-overs between prefill and decode.
LINK_BYTES_PER_SECOND = 12.5e9
#: Draw over limit of replicas that only prefill and only decode: the ends of ``draw_share``.
PREFILL_DRAW, DECODE_DRAW = 1.0, 0.6
CAP_FLOOR, CAP_EXPONENT = 0.2, 0.37
#: More than any case needs.
PLENTY = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """GPU types and buckets.

    Attributes:
        dollars: Per GPU hour, shape (types,).
        limit_watts: Default limit with the server's share, shape (types,).
        rates: Requests a second of one GPU without a cap, 0 where it cannot, (types, buckets).
        draw_share: Uncapped draw as a share of the limit, shape (types, buckets).
        requests_per_second: Shape (buckets,).
        phase_seconds: Of one request by phase on one GPU, (2, types, buckets); None: undivided.
        kv_bytes: Handed over by one request, (buckets,); None: undivided.
    """

    dollars: Floats
    limit_watts: Floats
    rates: Floats
    draw_share: Floats
    requests_per_second: Floats
    phase_seconds: Floats | None = None
    kv_bytes: Floats | None = None


#: melange-release, melange/config/example.json at ebba701: A10G and A100-80GB, rates by input and
#: output size, shares of 30 requests a second. README: its own answer costs 6.70 dollars an hour.
TOY = Case(
    dollars=np.array([1.01, 3.67]),
    limit_watts=np.array([300.0, 400.0]),
    rates=np.array([[2.0, 1.0, 5.0, 2.0], [20.0, 20.0, 40.0, 20.0]]),
    draw_share=np.ones((2, 4)),
    requests_per_second=30.0 * np.array([0.2, 0.1, 0.5, 0.2]),
)


def generate(rng: np.random.Generator, types: int, buckets: int, gpus: tuple[float, float]) -> Case:
    """One case whose demand keeps about so many GPUs of the best single type busy."""
    dollars = np.exp(rng.uniform(np.log(0.7), np.log(8.0), types))
    prefill = 4000.0 * dollars ** rng.uniform(0.8, 1.1, types) * rng.uniform(0.7, 1.4, types)
    decode = 500.0 * dollars ** rng.uniform(0.7, 1.1, types) * rng.uniform(0.7, 1.4, types)
    context = 3000.0 * dollars ** rng.uniform(0.8, 1.2, types)
    tokens_in = np.exp(rng.uniform(np.log(50), np.log(8000), buckets))
    tokens_out = np.exp(rng.uniform(np.log(20), np.log(2000), buckets))
    prefill_seconds = tokens_in / prefill[:, None]
    # The longer the context, the fewer requests share a decode step.
    crowding = 1.0 + (tokens_in + tokens_out) / context[:, None]
    decode_seconds = tokens_out / decode[:, None] * crowding
    seconds = prefill_seconds + decode_seconds
    fits = tokens_in + tokens_out <= 2.0 * context[:, None]
    fits[np.argmax(context)] = True
    rates = np.where(fits, 1.0 / seconds, 0.0)
    shares = rng.dirichlet(np.full(buckets, 0.7))
    wanted = np.exp(rng.uniform(*np.log(gpus)))
    busy = (shares / np.where(fits, rates, np.inf)).sum(axis=1)
    whole = fits.all(axis=1)
    demand = shares * wanted / busy[whole].min()
    prefill_share = prefill_seconds / seconds
    return Case(
        dollars,
        limit_watts=100.0 + 110.0 * dollars ** rng.uniform(0.75, 0.95, types),
        rates=rates,
        draw_share=0.6 + 0.4 * prefill_share,
        requests_per_second=np.maximum(demand, 1e-6),
        phase_seconds=np.stack([prefill_seconds, decode_seconds]),
        kv_bytes=KV_BYTES_PER_TOKEN * tokens_in,
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a question allows beside the case itself.

    Attributes:
        caps: Shares of the default limit.
        scale: Of the demand.
        stock: GPUs by type; None: plenty of each.
        budget_watts: Mean draw of everything, or None.
        dollars_per_hour: To be spent at most, or None.
        goal: Least cost or most requests.
        dollars_per_kwh: 0 where only GPUs are paid.
        splits: Whether prefill and decode may run on different replicas.
        link_bytes_per_second: Of one GPU, for hand-overs.
    """

    caps: tuple[float, ...] = (1.0,)
    scale: float = 1.0
    stock: tuple[int, ...] | None = None
    budget_watts: float | None = None
    dollars_per_hour: float | None = None
    goal: Goal = Goal.LEAST_COST
    dollars_per_kwh: float = 0.0
    splits: bool = False
    link_bytes_per_second: float = LINK_BYTES_PER_SECOND


def to_problem(case: Case, bounds: Bounds) -> MixProblem:
    """The case as the optimiser's question."""
    types = range(len(case.dollars))
    stock = bounds.stock or (PLENTY,) * len(case.dollars)
    return MixProblem(
        tuple(
            Bucket(
                f"b{i}",
                float(rate) * bounds.scale,
                Tier.BEST_EFFORT,
                kv_bytes_per_request=0.0 if case.kv_bytes is None else float(case.kv_bytes[i]),
            )
            for i, rate in enumerate(case.requests_per_second)
        ),
        tuple(_shape(case, t, cap, bounds) for t in types for cap in bounds.caps),
        tuple(Offer(f"t{t}", f"T{t}", stock[t], float(case.dollars[t]), "row") for t in types),
        (PowerLimit("row", budget_watts=bounds.budget_watts),),
        MixPrices(dollars_per_kwh=bounds.dollars_per_kwh),
        MixLimits(bounds.dollars_per_hour),
        bounds.goal,
    )


def _shape(case: Case, gpu_type: int, cap: float, bounds: Bounds) -> ReplicaShape:
    limit = float(case.limit_watts[gpu_type])
    idle = 0.15 * limit
    rates: dict[tuple[str, Phase], ServiceRate] = {}

    def put(bucket: int, phase: Phase, full: float, draw: float) -> None:
        served = full * speed(cap, draw)
        watts = max(idle, min(draw, cap) * limit)
        rates[f"b{bucket}", phase] = ServiceRate(served, served, watts)

    for i, full in enumerate(case.rates[gpu_type]):
        if full > 0:
            put(i, Phase.WHOLE, float(full), float(case.draw_share[gpu_type, i]))
            if bounds.splits and case.phase_seconds is not None:
                prefill, decode = case.phase_seconds[:, gpu_type, i]
                put(i, Phase.PREFILL, float(1 / prefill), PREFILL_DRAW)
                put(i, Phase.DECODE, float(1 / decode), DECODE_DRAW)
    return ReplicaShape(
        f"T{gpu_type}@{cap:.2f}", f"T{gpu_type}", cap * limit, 1, idle, 1.1 * cap * limit, rates,
        bounds.link_bytes_per_second if bounds.splits else None,
    )  # fmt: skip


def speed(cap: float, draw: float) -> float:
    """Speed under a cap as a share of that without, both caps and draws as shares of the limit."""
    return float(min(1.0, (cap - CAP_FLOOR) / (draw - CAP_FLOOR)) ** CAP_EXPONENT)
