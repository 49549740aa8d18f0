"""From a CapacityPlan's spec to the optimiser's problem: demand, replicas, offers, limits.

Replicas come from shapes with measured rates and, where ``serving`` names a language model, from
the GPU profiles at several caps with predicted rates. A given rate wins over a predicted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from capacity.mix.embodied_share import Embodied
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
from capacity.mix.predicted_rates import (
    PredictedRates,
    RatePredictor,
    predicted_shapes,
    start_seconds,
)
from capacity.mix.throughput_table import FirstOf, GivenRates, ThroughputTable, with_rates
from capacity.profile_book import ProfileBook
from wattpack.api.capacity_question import (
    BucketSpec,
    CallGraphSpec,
    CapacityPlanSpec,
    OfferSpec,
    RateSpec,
    ServingSpec,
)
from wattpack.api.object_meta import ApiModel
from wattpack.errors import InputError, read_from

__all__ = ["PLAN_DOMAIN", "Knowledge", "demand_of", "problem_of"]

#: The domain above all others that a plan's budget makes.
PLAN_DOMAIN = "the plan"
#: Of one question; the serving model takes up to 0.5 s for each that it has not answered before.
MOST_PREDICTIONS = 1_000
#: More columns than this would not be answered in seconds, nor fit a small process.
MOST_SHARES = 50_000


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known beside the question.

    Attributes:
        gpu_types: For replicas of predicted rates; None: only given shapes.
        predictor: Rates of a served language model; None: only given rates.
        forecasts: Requests per second by (forecast, ``mark``), for those that can be used.
    """

    gpu_types: ProfileBook | None = None
    predictor: RatePredictor | None = None
    forecasts: Mapping[tuple[str, str], float] = field(default_factory=dict)


def demand_of(
    spec: CapacityPlanSpec, forecasts: Mapping[tuple[str, str], float]
) -> dict[str, float]:
    """Requests per second by bucket: its own, at least its forecast, and the calls of graphs.

    Raises:
        InputError: if a graph calls what is no bucket.
    """
    demand = {bucket.name: _rate_of(bucket, forecasts) for bucket in spec.buckets}
    for graph in spec.graphs:
        asked = _rate_of(graph, forecasts)
        for bucket, calls in graph.calls.items():
            if bucket not in demand:
                wanted = f"one of {', '.join(sorted(demand))}"
                raise InputError(f"graphs.{graph.name}.calls", wanted, bucket)
            demand[bucket] += asked * calls
    return demand


def _rate_of(part: BucketSpec | CallGraphSpec, forecasts: Mapping[tuple[str, str], float]) -> float:
    stated = part.requests_per_second
    if part.forecast is None:
        return stated
    return max(stated, forecasts.get((part.forecast.name, part.forecast.mark), stated))


def problem_of(
    spec: CapacityPlanSpec, source: str = "", knowledge: Knowledge | None = None
) -> MixProblem:
    """The question as numbers; buckets without requests are left out.

    Raises:
        InputError: naming what contradicts itself, leads nowhere, or is too large.
    """
    known = knowledge or Knowledge()
    with read_from(source):
        if spec.keep_owned_within_cost_ratio is not None and spec.goal != Goal.LEAST_COST.value:
            # The most requests have no least cost that a ratio could speak of.
            raise InputError("keepOwnedWithinCostRatio", "only with goal leastCost", spec.goal)
        if spec.keep_owned_within_cost_ratio is not None and not any(
            offer.is_owned for offer in spec.offers
        ):
            wanted = "an offer with isOwned: true (keepOwnedWithinCostRatio, --keep-old)"
            raise InputError("offers", wanted, [offer.name for offer in spec.offers])
        demand = demand_of(spec, known.forecasts)
        asked = [bucket for bucket in spec.buckets if demand[bucket.name] > 0]
        offers = _offers(spec)
        shapes = _shapes(spec, asked, {offer.gpu_model for offer in offers}, known)
        _require_size(asked, offers, shapes)
        return MixProblem(
            tuple(_bucket(bucket, demand[bucket.name], spec.serving, known) for bucket in asked),
            shapes,
            offers,
            _domains(spec),
            MixPrices(**_fields(spec.prices)) if spec.prices else MixPrices(),
            MixLimits(**_fields(spec.limits)) if spec.limits else MixLimits(),
            Goal(spec.goal),
        )


def _fields(text: ApiModel) -> dict[str, Any]:
    return {name: getattr(text, name) for name in type(text).model_fields}


def _bucket(
    text: BucketSpec, requests_per_second: float, serving: ServingSpec | None, known: Knowledge
) -> Bucket:
    kv_bytes = text.kv_bytes_per_request
    if not kv_bytes and text.splits_phases and serving is not None and known.predictor is not None:
        kv_bytes = known.predictor.kv_bytes(serving.language_model, text.input_tokens or 0)
    return Bucket(
        text.name,
        requests_per_second,
        Tier(text.tier),
        text.minimum_replicas,
        text.largest_spot_share,
        kv_bytes,
        text.longest_transfer_seconds,
    )


def _domains(spec: CapacityPlanSpec) -> tuple[PowerLimit, ...]:
    domains = tuple(PowerLimit(**_fields(text)) for text in spec.domains)
    if spec.power_budget_watts is None:
        return domains
    root = PowerLimit(PLAN_DOMAIN, budget_watts=spec.power_budget_watts)
    return (root, *(d if d.parent else replace(d, parent=PLAN_DOMAIN) for d in domains))


def _offers(spec: CapacityPlanSpec) -> tuple[Offer, ...]:
    offered = {offer.gpu_model for offer in spec.offers}
    for model in spec.gpu_models:
        if model not in offered:
            wanted = f"a type on offer: {', '.join(sorted(offered)) or 'there is none'}"
            raise InputError("gpuModels", wanted, model)
    chosen = (o for o in spec.offers if not spec.gpu_models or o.gpu_model in spec.gpu_models)
    above = PLAN_DOMAIN if spec.power_budget_watts is not None else ""
    return tuple(_offer(text, above) for text in chosen)


def _offer(text: OfferSpec, above: str) -> Offer:
    fields = _fields(text)
    made = fields.pop("embodied")
    grams = Embodied(**_fields(made)).grams_per_used_hour if made is not None else 0.0
    fields["domain"] = text.domain or above
    return Offer(**fields, embodied_grams_per_gpu_hour=grams)


def _shapes(
    spec: CapacityPlanSpec, asked: Sequence[BucketSpec], models: set[str], known: Knowledge
) -> tuple[ReplicaShape, ...]:
    shapes, given = _given_shapes(spec, known)
    table: ThroughputTable = GivenRates(given)
    if spec.serving is not None and known.predictor is not None and known.gpu_types is not None:
        # A type that somebody measured is planned with what was measured, all of it.
        unmeasured = sorted(models - {shape.gpu_model for shape in shapes})
        shapes = [
            *shapes,
            *predicted_shapes(spec.serving, unmeasured, known.gpu_types, known.predictor),
        ]
        _require_few_predictions(asked, shapes)
        sizes = {bucket.name: bucket for bucket in asked}
        predicted = PredictedRates(spec.serving, sizes, known.gpu_types, known.predictor)
        table = FirstOf((table, predicted))
    made = with_rates(table, shapes, (bucket.name for bucket in asked))
    for bucket in asked:
        offered = (shape for shape in made if shape.gpu_model in models)
        if not any(name == bucket.name for shape in offered for name, _ in shape.rates):
            wanted = "a rate on some replica of a type on offer within its latency limits"
            raise InputError(f"buckets.{bucket.name}", wanted, "none")
    return made


def _given_shapes(
    spec: CapacityPlanSpec, known: Knowledge
) -> tuple[list[ReplicaShape], dict[tuple[str, str, Phase], ServiceRate]]:
    buckets = {bucket.name for bucket in spec.buckets}
    given: dict[tuple[str, str, Phase], ServiceRate] = {}
    shapes = []
    for text in spec.shapes:
        fields = _fields(text)
        for bucket, phases in fields.pop("rates").items():
            at = f"shapes.{text.name}.rates.{bucket}"
            if bucket not in buckets:
                raise InputError(at, f"one of {', '.join(sorted(buckets)) or 'none'}", bucket)
            for phase in Phase:
                rate = getattr(phases, phase.value)
                if rate is not None:
                    given[text.name, bucket, phase] = _rate(rate, f"{at}.{phase.value}")
        if text.start_seconds is None:
            fields["start_seconds"] = start_seconds(spec.serving, known.predictor, text.gpus)
        shapes.append(ReplicaShape(**fields, rates={}))
    return shapes, given


def _rate(text: RateSpec, at: str) -> ServiceRate:
    lower = text.lower_requests_per_second
    try:
        return ServiceRate(
            text.requests_per_second,
            text.requests_per_second if lower is None else lower,
            text.busy_watts,
        )
    except InputError as error:
        raise InputError(f"{at}.{error.field}", error.expected, error.got) from error


def _require_size(
    asked: Sequence[BucketSpec], offers: Sequence[Offer], shapes: Sequence[ReplicaShape]
) -> None:
    columns = sum(shape.gpu_model == offer.gpu_model for offer in offers for shape in shapes)
    size = columns * len(asked) * len(Phase)
    if size > MOST_SHARES:
        wanted = f"at most {MOST_SHARES} shares (offers x their shapes x buckets x phases)"
        raise InputError("shapes", wanted, size)


def _require_few_predictions(asked: Sequence[BucketSpec], shapes: Sequence[ReplicaShape]) -> None:
    size = sum(len(shapes) * (3 if bucket.splits_phases else 1) for bucket in asked)
    if size > MOST_PREDICTIONS:
        wanted = f"at most {MOST_PREDICTIONS} rates to predict (buckets x types x widths x caps)"
        raise InputError("serving", wanted, size)
