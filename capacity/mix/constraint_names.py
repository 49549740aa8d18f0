"""What the constraints of a mix that can be left out are called, for people and options."""

from __future__ import annotations

from capacity.mix.mix_problem import MixProblem

__all__ = [
    "CAUTION",
    "EMISSIONS",
    "MINIMUM_REPLICAS",
    "SPEND",
    "SPOT_SHARE",
    "constraint_names",
]

MINIMUM_REPLICAS, SPOT_SHARE, CAUTION = "minimum replicas", "spot share", "lower rates"
SPEND, EMISSIONS = "dollars per hour", "grams of CO2e per hour"


def constraint_names(problem: MixProblem) -> tuple[str, ...]:
    """Every constraint that can be left out, by the name that people read."""
    names = [f"stock of {offer.name}" for offer in problem.offers]
    for domain in problem.domains:
        names += [f"breaker of {domain.name}"] if domain.breaker_watts is not None else []
        names += [f"power budget of {domain.name}"] if domain.budget_watts is not None else []
    names += [SPEND] if problem.limits.dollars_per_hour is not None else []
    names += [EMISSIONS] if problem.limits.grams_per_hour is not None else []
    if any(bucket.minimum_replicas > 1 for bucket in problem.buckets):
        names.append(MINIMUM_REPLICAS)
    if any(offer.is_spot for offer in problem.offers) and any(
        bucket.largest_spot_share < 1 for bucket in problem.buckets
    ):
        names.append(SPOT_SHARE)
    if any(
        rate.lower_requests_per_second < rate.requests_per_second
        for shape in problem.shapes
        for rate in shape.rates.values()
    ):
        names.append(CAUTION)
    return tuple(names)
