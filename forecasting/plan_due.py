"""When a CapacityPlan has to be solved again: the question, its GPU types, or its demand moved.

What was solved for stands in the object's own status, so that neither a restart nor a second
replica solves what is answered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from capacity.profile_book import ProfileBook
from forecasting.decisions import Decision, Prices, Tail, mix_demand
from forecasting.forecast_book import ForecastBook
from forecasting.issued_forecast import ForecastKey
from forecasting.peak_quantiles import NAMED_LEVELS, STATUS_LEVELS, PeakQuantiles
from forecasting.told_time import told_seconds
from wattpack.api.capacity_plan import CapacityPlan, CapacityPlanStatus
from wattpack.api.capacity_question import (
    BucketSpec,
    CallGraphSpec,
    CapacityPlanSpec,
)
from wattpack.api.demand_from_forecast import ForecastOfDemand

__all__ = [
    "LOWER_SECONDS",
    "MOVED_SHARE",
    "Outlooks",
    "digest_of",
    "has_moved",
    "is_early",
    "is_young",
    "outlooks_of",
    "parts_of",
    "reasons_of",
]

#: A forecast that moved by less than this is the same demand.
MOVED_SHARE = 0.05

#: From an answer to one for less; a round and a half, so that a demand that falls from round to
#: round waits for no more than half of one (assumed).
LOWER_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Outlooks:
    """What a plan's forecasts say.

    Attributes:
        rates: Requests per second by (forecast, ``mark``).
        reasons: How each was decided, likewise.
        unfit: Why a forecast cannot be used, one entry each.
        lengths: Mean tokens of a request by forecast, of those that tell them.
    """

    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unfit: tuple[str, ...] = ()
    lengths: Mapping[str, float] = field(default_factory=dict)


def outlooks_of(plan: CapacityPlan, book: ForecastBook, now_seconds: float) -> Outlooks:
    """The forecasts that the plan's demand names, of its own namespace."""
    decided: dict[tuple[str, str], Decision] = {}
    lengths: dict[str, float] = {}
    unfit = []
    asked = [part.forecast for part in parts_of(plan.spec) if part.forecast]
    for name in sorted({one.name for one in asked}):
        found = book.of_demand(ForecastKey(plan.namespace, name), now_seconds)
        if isinstance(found, str):
            unfit.append(found)
            continue
        if found.request_tokens is not None:
            lengths[name] = found.request_tokens
        peak = PeakQuantiles(found.p50, found.p95, found.p99)
        decided |= {(name, one.mark): _decided(peak, one) for one in asked if one.name == name}
    return Outlooks(
        {key: made.amount for key, made in decided.items()},
        {key: made.reason for key, made in decided.items()},
        tuple(unfit),
        lengths,
    )


def _decided(peak: PeakQuantiles, asked: ForecastOfDemand) -> Decision:
    """The demand to plan for, requests per second."""
    if (told := asked.prices) is not None:
        tail = None if told.tail is None else Tail(told.tail.level, told.tail.weight)
        return mix_demand(np.array(peak), STATUS_LEVELS, Prices(told.capacity, told.unserved), tail)
    risk = 1 - NAMED_LEVELS[asked.level] if asked.risk is None else asked.risk
    rate = peak.at_risk(risk)
    return Decision(rate, risk, "risk", f"{rate:.6g} is exceeded in {risk:.2%} of windows")


def reasons_of(spec: CapacityPlanSpec, outlooks: Outlooks) -> dict[str, str]:
    """By bucket how the forecasts of it and of the graphs that call it decided its demand."""
    told: dict[str, list[str]] = {}
    for part in parts_of(spec):
        if (asked := part.forecast) is None or (asked.name, asked.mark) not in outlooks.rates:
            continue
        reason = outlooks.reasons[asked.name, asked.mark]
        if outlooks.rates[asked.name, asked.mark] < part.requests_per_second:
            reason = f"{part.requests_per_second:g} is stated, {reason}"
        buckets = part.calls if isinstance(part, CallGraphSpec) else [part.name]
        for bucket in buckets:
            told.setdefault(bucket, []).append(f"{asked.name}: {reason}")
    return {bucket: "; ".join(dict.fromkeys(lines))[:512] for bucket, lines in told.items()}


def parts_of(spec: CapacityPlanSpec) -> list[BucketSpec | CallGraphSpec]:
    """What states a demand."""
    return [*spec.buckets, *spec.graphs]


def digest_of(spec: CapacityPlanSpec, gpu_types: ProfileBook, predictor: str) -> str:
    """Of everything but the demand that an answer rests on: 16 hexadecimal digits.

    Args:
        spec: The question.
        gpu_types: Profiles of the types on offer count.
        predictor: The digest of the model of served language models.
    """
    parts: list[object] = [spec.to_json()]
    if spec.serving is not None:
        parts.append(predictor)
        parts += [_profile(gpu_types, model) for model in _models(spec)]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _models(spec: CapacityPlanSpec) -> Iterable[str]:
    return sorted({offer.gpu_model for offer in spec.offers})


def _profile(gpu_types: ProfileBook, model: str) -> object:
    known = {name: profile for name, profile in gpu_types.items() if profile.model == model}
    return [profile.as_dict() for profile in {id(p): p for p in known.values()}.values()]


def has_moved(status: CapacityPlanStatus, demand: Mapping[str, float]) -> bool:
    """Whether any bucket's demand is 5 % and more away from what was planned for."""
    moves = _moves(status, demand)
    return moves is None or any(abs(moved) > same for moved, same in moves)


def is_early(
    status: CapacityPlanStatus,
    demand: Mapping[str, float],
    now_seconds: float,
    lower_seconds: float,
) -> bool:
    """Whether a demand that moved may wait: it only fell, and the last answer is young.

    Whoever needs more is never held back. That answer's time stands in the status, so that neither
    a restart nor a second replica answers more often.

    Args:
        status: What was planned.
        demand: Of now, by bucket, requests per second.
        now_seconds: Unix time.
        lower_seconds: From an answer to one for less.
    """
    moves = _moves(status, demand)
    if moves is None or any(moved > same for moved, same in moves):
        return False
    return is_young(status, now_seconds, lower_seconds)


def is_young(status: CapacityPlanStatus, now_seconds: float, lower_seconds: float) -> bool:
    """Whether the last answer is too young to be followed by one for less."""
    solved_seconds = told_seconds(status.solved_at)
    return solved_seconds is not None and 0 <= now_seconds - solved_seconds < lower_seconds


def _moves(
    status: CapacityPlanStatus, demand: Mapping[str, float]
) -> list[tuple[float, float]] | None:
    """How far each bucket moved, and how far is the same demand; None for other buckets."""
    planned = {row.bucket: row.requests_per_second for row in status.demand}
    if planned.keys() != demand.keys():
        return None
    return [(demand[b] - old, MOVED_SHARE * max(old, 1e-9)) for b, old in planned.items()]
