"""The judge of a mix: every promise of the problem, counted anew from the answer alone.

Shares no code with ``mix_model``; it only knows the two documents.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from capacity.mix.mix_problem import Goal, MixProblem, Phase, Tier
from capacity.mix.mix_solution import MixSolution

__all__ = ["complaints"]

#: Relative; a replica's rate is not known to a millionth, and the solver works to 1e-6.
TOLERANCE = 2e-6
#: Of a link's rate for hand-overs on average (the rest is for bursts).
LINK_SHARE = 0.8


def complaints(problem: MixProblem, solution: MixSolution) -> tuple[str, ...]:
    """What the answer breaks, in words; empty for a valid one."""
    unknown = tuple(_strangers(problem, solution))
    if unknown:
        return unknown
    return (
        *_demand(problem, solution),
        *_replicas(problem, solution),
        *_spare(problem, solution),
        *_stock_and_power(problem, solution),
        *_care(problem, solution),
        *_figures(problem, solution),
    )


def _over(value: float, limit: float) -> bool:
    return value > limit + TOLERANCE * max(1.0, abs(limit))


def _strangers(problem: MixProblem, solution: MixSolution) -> Iterator[str]:
    models = {shape.name: shape.gpu_model for shape in problem.shapes}
    offered = {offer.name: offer.gpu_model for offer in problem.offers}
    used = {(row.offer, row.shape) for row in solution.replicas}
    for offer, shape in used | {(row.offer, row.shape) for row in solution.served}:
        if offer not in offered or models.get(shape) != offered[offer]:
            yield f"{shape} is not on offer as {offer}"
    for count in solution.replicas:
        if not isinstance(count.replicas, int) or count.replicas < 1:
            yield f"{count.replicas} replicas of {count.shape}"
    rates = {shape.name: shape.rates for shape in problem.shapes}
    for served in solution.served:
        if (served.bucket, served.phase) not in rates.get(served.shape, {}):
            yield f"{served.shape} cannot serve {served.bucket} ({served.phase})"
        if not 0 < served.share <= 1 + TOLERANCE:
            yield f"share {served.share} of {served.bucket}"


def _demand(problem: MixProblem, solution: MixSolution) -> Iterator[str]:
    wanted = solution.served_fraction
    if problem.goal is not Goal.MOST_REQUESTS and wanted != 1.0:
        yield f"only {wanted} is served"
    for bucket in problem.buckets:
        by_phase: defaultdict[Phase, float] = defaultdict(float)
        for row in solution.served:
            if row.bucket == bucket.name:
                by_phase[row.phase] += row.share
        begun = by_phase[Phase.WHOLE] + by_phase[Phase.PREFILL]
        if abs(begun - wanted) > 1e-5:
            yield f"{begun:.6f} of {bucket.name} is served, expected {wanted:.6f}"
        if abs(by_phase[Phase.PREFILL] - by_phase[Phase.DECODE]) > 1e-5:
            yield f"{bucket.name}: as much decode as prefill"


def _replicas(problem: MixProblem, solution: MixSolution) -> Iterator[str]:
    shapes = {shape.name: shape for shape in problem.shapes}
    buckets = {bucket.name: bucket for bucket in problem.buckets}
    counts = {(row.offer, row.shape): row.replicas for row in solution.replicas}
    load: defaultdict[tuple[str, str], float] = defaultdict(float)
    moved: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in solution.served:
        bucket, rate = buckets[row.bucket], shapes[row.shape].rates[row.bucket, row.phase]
        sure = bucket.tier is Tier.HARD
        per_second = rate.lower_requests_per_second if sure else rate.requests_per_second
        arriving = row.share * bucket.requests_per_second
        load[row.offer, row.shape] += arriving / per_second if per_second else math.inf
        if row.phase is not Phase.WHOLE:
            moved[row.offer, row.shape] += arriving * bucket.kv_bytes_per_request
            link, longest = shapes[row.shape].link_bytes_per_second, bucket.longest_transfer_seconds
            if longest is not None and link and bucket.kv_bytes_per_request > longest * link:
                yield f"{row.shape} hands {row.bucket} over too slowly"
    for key, busy in load.items():
        if _over(busy, counts.get(key, 0)):
            yield f"{counts.get(key, 0)} replicas {key} do the work of {busy:.6f}"
    for key, rate_bytes in moved.items():
        link = shapes[key[1]].link_bytes_per_second or 0.0
        if _over(rate_bytes / (LINK_SHARE * link) if link else 1e9, counts.get(key, 0)):
            yield f"links of {key} carry {rate_bytes:.3g} B/s"


def _spare(problem: MixProblem, solution: MixSolution) -> Iterator[str]:
    """Replicas without which the rest could do all that it is said to do."""
    shapes = {shape.name: shape for shape in problem.shapes}
    buckets = {bucket.name: bucket for bucket in problem.buckets}
    for count in solution.replicas:
        shape, busy, handing, least = shapes[count.shape], 0.0, 0.0, 0.0
        for row in solution.served:
            if (row.offer, row.shape) != (count.offer, count.shape):
                continue
            bucket, rate = buckets[row.bucket], shape.rates[row.bucket, row.phase]
            arriving = row.share * bucket.requests_per_second
            sure = bucket.tier is Tier.HARD
            per_second = rate.lower_requests_per_second if sure else rate.requests_per_second
            busy += arriving / per_second if per_second else math.inf
            if row.phase is not Phase.WHOLE and shape.link_bytes_per_second:
                link = LINK_SHARE * shape.link_bytes_per_second
                handing += arriving * bucket.kv_bytes_per_request / link
            least = max(least, row.share * bucket.minimum_replicas)
        needed = max(busy, handing, least)
        if needed == 0 or _over(count.replicas - 1, needed):
            yield f"{count.replicas} replicas of {count.shape}, {needed:.6f} are enough"


def _stock_and_power(problem: MixProblem, solution: MixSolution) -> Iterator[str]:
    shapes = {shape.name: shape for shape in problem.shapes}
    for offer in problem.offers:
        used = sum(
            row.replicas * shapes[row.shape].gpus
            for row in solution.replicas
            if row.offer == offer.name
        )
        if used > offer.gpus:
            yield f"{used} GPUs of {offer.name}, {offer.gpus} in stock"
    parents = {domain.name: domain.parent for domain in problem.domains}
    for domain in problem.domains:
        inside = set()
        for offer in problem.offers:
            at = offer.domain
            while at and at != domain.name:
                at = parents[at]
            if at:
                inside.add(offer.name)
        peak = sum(
            row.replicas * shapes[row.shape].p99_watts
            for row in solution.replicas
            if row.offer in inside
        )
        if domain.breaker_watts is not None and _over(peak, domain.breaker_watts):
            yield f"breaker of {domain.name}: {peak:.1f} W of {domain.breaker_watts:.1f}"
        mean = _mean_watts(problem, solution, inside)
        if domain.budget_watts is not None and _over(mean, domain.budget_watts):
            yield f"power budget of {domain.name}: {mean:.1f} W of {domain.budget_watts:.1f}"


def _mean_watts(problem: MixProblem, solution: MixSolution, offers: set[str]) -> float:
    shapes = {shape.name: shape for shape in problem.shapes}
    arriving = {bucket.name: bucket.requests_per_second for bucket in problem.buckets}
    waiting = sum(
        row.replicas * shapes[row.shape].idle_watts
        for row in solution.replicas
        if row.offer in offers
    )
    working = 0.0
    for row in solution.served:
        if row.offer in offers:
            shape = shapes[row.shape]
            rate = shape.rates[row.bucket, row.phase]
            duty = row.share * arriving[row.bucket] / rate.requests_per_second
            working += duty * (rate.busy_watts - shape.idle_watts)
    return waiting + working


def _care(problem: MixProblem, solution: MixSolution) -> Iterator[str]:
    counts = {(row.offer, row.shape): row.replicas for row in solution.replicas}
    spot_offers = {offer.name for offer in problem.offers if offer.is_spot}
    for bucket in problem.buckets:
        mine = [row for row in solution.served if row.bucket == bucket.name]
        for row in mine:
            on_one = row.share / counts.get((row.offer, row.shape), 1)
            if bucket.minimum_replicas > 1 and _over(on_one * bucket.minimum_replicas, 1.0):
                yield f"one {row.shape} carries {on_one:.3f} of {bucket.name}"
        for is_decode in (False, True):
            spot = sum(
                row.share
                for row in mine
                if row.offer in spot_offers and (row.phase is Phase.DECODE) == is_decode
            )
            if _over(spot, bucket.largest_spot_share):
                yield f"{spot:.3f} of {bucket.name} on spot offers"


def _figures(problem: MixProblem, solution: MixSolution) -> Iterator[str]:
    """The stated costs, watts and grams are what the replicas cost, draw and emit."""
    shapes = {shape.name: shape for shape in problem.shapes}
    offers = {offer.name: offer for offer in problem.offers}
    prices = problem.prices
    mean = _mean_watts(problem, solution, set(offers))
    rent = embodied = peak = 0.0
    for row in solution.replicas:
        gpus = row.replicas * shapes[row.shape].gpus
        rent += gpus * offers[row.offer].dollars_per_gpu_hour
        embodied += gpus * offers[row.offer].embodied_grams_per_gpu_hour
        peak += row.replicas * shapes[row.shape].p99_watts
    grams = mean / 1000 * prices.grams_per_kwh
    starts = 0.0
    for offer in problem.offers:
        for width in {shape.gpus for shape in problem.shapes}:
            after = sum(
                row.replicas
                for row in solution.replicas
                if row.offer == offer.name and shapes[row.shape].gpus == width
            )
            before = sum(
                n for name, n in offer.running_replicas.items() if shapes[name].gpus == width
            )
            slowest = max(
                (s.start_seconds for s in problem.shapes
                 if s.gpus == width and s.gpu_model == offer.gpu_model), default=0.0,
            )  # fmt: skip
            each = width * offer.dollars_per_gpu_hour * slowest / 3600
            if prices.dollars_per_start is not None:
                each = prices.dollars_per_start
            starts += max(0, after - before) * each
    told = {
        "rent": (solution.costs.rent, rent),
        "energy": (solution.costs.energy, mean / 1000 * prices.dollars_per_kwh),
        "carbon": (solution.costs.carbon, (grams + embodied) / 1e6 * prices.dollars_per_tonne),
        "start": (solution.costs.start, starts / prices.horizon_hours),
        "mean watts": (solution.mean_watts, mean),
        "p99 watts": (solution.p99_watts, peak),
        "operational grams": (solution.operational_grams_per_hour, grams),
        "embodied grams": (solution.embodied_grams_per_hour, embodied),
    }
    for name, (said, counted) in told.items():
        if abs(said - counted) > TOLERANCE * max(1.0, abs(counted)):
            yield f"{name}: {said:.6f} is told, {counted:.6f} counted"
    limits, total = problem.limits, sum(told[k][1] for k in ("rent", "energy", "carbon", "start"))
    if limits.dollars_per_hour is not None and _over(total, limits.dollars_per_hour):
        yield f"{total:.4f} dollars per hour of {limits.dollars_per_hour:.4f}"
    if limits.grams_per_hour is not None and _over(grams + embodied, limits.grams_per_hour):
        yield f"{grams + embodied:.1f} g per hour of {limits.grams_per_hour:.1f}"
