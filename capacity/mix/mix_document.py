"""``wattpack.io/gpu-mix/v1``: the question as people write it, and the answer as it is printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from capacity.mix.embodied import Embodied
from capacity.mix.mix_explain import Explanation
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
from capacity.mix.mix_solution import MixSolution
from capacity.mix.throughput_table import GivenRates, with_rates
from wattpack.api.object_meta import ApiModel
from wattpack.api.planning import CapacityPlan, CapacityPlanSpec
from wattpack.errors import InputError, read_from
from wattpack.settings import validate

__all__ = ["MixDocument", "answer_json", "asked_by", "parse_mix", "problem_of"]

Quantity = Annotated[float, Field(ge=0, le=1e15)]
Label = Annotated[str, Field(min_length=1, max_length=128)]
#: The domain above all others that a CapacityPlan's budget makes.
PLAN_DOMAIN = "the plan"


class BucketText(ApiModel):
    """Requests of one size; ``capacity.mix.mix_problem.Bucket``."""

    name: Label
    requests_per_second: Quantity
    tier: Tier = Tier.HARD
    minimum_replicas: int = 1
    largest_spot_share: float = 0.0
    kv_bytes_per_request: float = 0.0
    longest_transfer_seconds: float | None = None


class RateText(ApiModel):
    """One replica's service; without a lower bound the mean stands for it."""

    requests_per_second: Quantity
    lower_requests_per_second: Quantity | None = None
    busy_watts: Quantity


class RatesText(ApiModel):
    """By phase."""

    whole: RateText | None = None
    prefill: RateText | None = None
    decode: RateText | None = None


class ShapeText(ApiModel):
    """One way to run a replica; ``capacity.mix.mix_problem.ReplicaShape``."""

    name: Label
    gpu_model: Label
    cap_watts: Quantity
    gpus: int = 1
    idle_watts: Quantity
    p99_watts: Quantity
    link_bytes_per_second: float | None = None
    rates: dict[Label, RatesText]


class EmbodiedText(ApiModel):
    """``capacity.mix.embodied.Embodied``."""

    kilograms_per_gpu: Quantity
    lifetime_years: Quantity
    utilisation: Quantity


class OfferText(ApiModel):
    """GPUs of one type, price and place; ``capacity.mix.mix_problem.Offer``."""

    name: Label
    gpu_model: Label
    gpus: int
    dollars_per_gpu_hour: Quantity
    domain: str = ""
    is_spot: bool = False
    embodied: EmbodiedText | None = None
    running_replicas: Annotated[dict[Label, int], Field(default_factory=dict)]


class DomainText(ApiModel):
    """``capacity.mix.mix_problem.PowerLimit``."""

    name: Label
    parent: str = ""
    breaker_watts: Quantity | None = None
    budget_watts: Quantity | None = None


class PricesText(ApiModel):
    """``capacity.mix.mix_problem.MixPrices``."""

    dollars_per_kwh: float = 0.0
    grams_per_kwh: float = 0.0
    dollars_per_tonne: float = 0.0
    dollars_per_start: float = 0.0
    horizon_hours: float = 1.0


class LimitsText(ApiModel):
    """``capacity.mix.mix_problem.MixLimits``."""

    dollars_per_hour: Quantity | None = None
    grams_per_hour: Quantity | None = None


class MixDocument(ApiModel):
    """The whole file."""

    api_version: Literal["wattpack.io/gpu-mix/v1"]
    buckets: Annotated[list[BucketText], Field(min_length=1)]
    shapes: list[ShapeText]
    offers: list[OfferText]
    domains: Annotated[list[DomainText], Field(default_factory=list)]
    prices: PricesText = PricesText()
    limits: LimitsText = LimitsText()
    goal: Goal = Goal.LEAST_COST
    slo_p99_slowdown: Annotated[float | None, Field(ge=1, le=1000)] = None


def parse_mix(document: object, source: str = "") -> MixDocument:
    """The document behind parsed YAML or JSON.

    Raises:
        InputError: naming the first field that is unknown, missing or wrong.
    """
    if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
        raise InputError("file", "a mapping of names to values", document, source)
    return validate(MixDocument, document, source)


def problem_of(document: MixDocument, source: str = "") -> MixProblem:
    """The question in the document; buckets without requests are left out.

    Raises:
        InputError: naming what contradicts itself or leads nowhere.
    """
    with read_from(source):
        buckets = tuple(
            Bucket(**_fields(text)) for text in document.buckets if text.requests_per_second > 0
        )
        return MixProblem(
            buckets,
            _shapes(document, tuple(bucket.name for bucket in buckets)),
            tuple(_offer(text) for text in document.offers),
            tuple(PowerLimit(**_fields(text)) for text in document.domains),
            MixPrices(**_fields(document.prices)),
            MixLimits(**_fields(document.limits)),
            document.goal,
        )


def asked_by(plan: CapacityPlan, table: MixDocument, source: str = "") -> MixDocument:
    """The table with the plan's demand, GPU types and power budget.

    Raises:
        InputError: naming what the plan asks for and the table does not know.
    """
    spec = plan.spec
    with read_from(source):
        known = {bucket.name: bucket for bucket in table.buckets}
        for name in spec.request_mix:
            if name not in known:
                wanted = f"a bucket of the table: {', '.join(sorted(known)) or 'it has none'}"
                raise InputError(f"spec.requestMix.{name}", wanted, name)
        offered = {offer.gpu_model for offer in table.offers}
        for model in spec.gpu_models:
            if model not in offered:
                wanted = f"a type on offer: {', '.join(sorted(offered)) or 'there is none'}"
                raise InputError("spec.gpuModels", wanted, model)
        _require_quick_enough(spec, table)
    above = [
        domain if domain.parent else domain.model_copy(update={"parent": PLAN_DOMAIN})
        for domain in table.domains
    ]
    offers = [
        offer if offer.domain else offer.model_copy(update={"domain": PLAN_DOMAIN})
        for offer in table.offers
        if offer.gpu_model in spec.gpu_models
    ]
    asked = [
        bucket.model_copy(update={"requests_per_second": spec.request_mix.get(name, 0.0)})
        for name, bucket in known.items()
    ]
    root = DomainText(name=PLAN_DOMAIN, budget_watts=spec.power_budget_watts)
    changed = {"buckets": asked, "offers": offers, "domains": [root, *above]}
    return table.model_copy(update=changed)


def _require_quick_enough(spec: CapacityPlanSpec, table: MixDocument) -> None:
    """Rates hold within some latency limit; it may not be looser than the plan's."""
    wanted, given = spec.slo_p99_slowdown, table.slo_p99_slowdown
    if wanted is not None and (given is None or given > wanted):
        expected = f"at least the table's sloP99Slowdown ({given if given else 'it states none'})"
        raise InputError("spec.sloP99Slowdown", expected, wanted)


def _fields(text: ApiModel) -> dict[str, Any]:
    return {name: getattr(text, name) for name in type(text).model_fields}


def _offer(text: OfferText) -> Offer:
    fields = _fields(text)
    made = fields.pop("embodied")
    grams = Embodied(**_fields(made)).grams_per_used_hour if made is not None else 0.0
    return Offer(**fields, embodied_grams_per_gpu_hour=grams)


def _shapes(document: MixDocument, buckets: tuple[str, ...]) -> tuple[ReplicaShape, ...]:
    known = {bucket.name for bucket in document.buckets}
    given: dict[tuple[str, str, Phase], ServiceRate] = {}
    shapes = []
    for text in document.shapes:
        fields = _fields(text)
        for bucket, phases in fields.pop("rates").items():
            at = f"shapes.{text.name}.rates.{bucket}"
            if bucket not in known:
                raise InputError(at, f"one of {', '.join(sorted(known)) or 'none'}", bucket)
            for phase in Phase:
                rate = getattr(phases, phase.value)
                if rate is not None:
                    given[text.name, bucket, phase] = _rate(rate, f"{at}.{phase.value}")
        shapes.append(ReplicaShape(**fields, rates={}))
    return with_rates(GivenRates(given), shapes, buckets)


def _rate(text: RateText, at: str) -> ServiceRate:
    lower = text.lower_requests_per_second
    try:
        return ServiceRate(
            text.requests_per_second,
            text.requests_per_second if lower is None else lower,
            text.busy_watts,
        )
    except InputError as error:
        raise InputError(f"{at}.{error.field}", error.expected, error.got) from error


def answer_json(solution: MixSolution, explanation: Explanation | None = None) -> dict[str, Any]:
    """The answer as ``wattpack.io/gpu-mix-plan/v1``: every figure with its unit in the key."""
    costs = solution.costs
    body: dict[str, Any] = {
        "apiVersion": "wattpack.io/gpu-mix-plan/v1",
        "replicas": [asdict(row) for row in solution.replicas],
        "served": [asdict(row) for row in solution.served],
        "servedFraction": solution.served_fraction,
        "dollarsPerHour": {**asdict(costs), "total": costs.total},
        "meanWatts": solution.mean_watts,
        "p99Watts": solution.p99_watts,
        "kwhPerHour": solution.mean_watts / 1000,
        "operationalGramsPerHour": solution.operational_grams_per_hour,
        "embodiedGramsPerHour": solution.embodied_grams_per_hour,
        "bound": solution.bound,
        "gap": solution.gap,
    }
    if explanation is not None:
        body["constraintCosts"] = [
            {"constraint": c.constraint, "gain": c.gain, "leastGain": c.least_gain}
            for c in explanation.costs
        ]
        body["constraintsThatCostNothing"] = list(explanation.free)
        body["constraintsNotAsked"] = list(explanation.unasked)
    return body
