"""The question of a CapacityPlan: demand, replicas, offers, domains, prices and limits.

``wattpack plan gpus`` reads the same fields from a file (``wattpack.io/gpu-mix/v1``). Bounds keep
an object that everybody may write from becoming a question that nobody can answer in time.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from wattpack.api.demand_from_forecast import (
    LARGEST,
    TELLS_LENGTHS,
    ForecastOfDemand,
    Positive,
)
from wattpack.api.object_meta import (
    ApiModel,
    CelRule,
    Fraction,
    ModelName,
    Watts,
)

__all__ = [
    "MAX_BUCKETS",
    "MOST_TOKENS",
    "BucketSpec",
    "CallGraphSpec",
    "CapacityPlanSpec",
    "DomainSpec",
    "EmbodiedSpec",
    "LimitsSpec",
    "OfferSpec",
    "PhaseRates",
    "PricesSpec",
    "RateSpec",
    "ServingSpec",
    "ShapeSpec",
]

MAX_BUCKETS, MAX_GRAPHS, MAX_SHAPES = 64, 16, 128
MAX_OFFERS, MAX_DOMAINS, MAX_CAPS = 32, 32, 16
Quantity = Annotated[float, Field(ge=0, le=LARGEST)]
Label = Annotated[str, Field(min_length=1, max_length=128)]
Seconds = Annotated[float, Field(gt=0, le=86400)]


def _named(max_length: int, description: str, min_length: int = 0) -> Any:  # noqa: ANN401
    """A list of which every entry has its own name."""
    return Field(
        min_length=min_length,
        max_length=max_length,
        description=description,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


MOST_TOKENS: Final = 2**20
"""Of a prompt and of an answer: prompts without end would take the serving model minutes."""


class BucketSpec(ApiModel):
    """Requests of one size and service level; divisible among replicas."""

    name: Annotated[Label, Field(description="Its name in shapes, graphs and the answer")]
    requests_per_second: Annotated[
        Quantity, Field(description="To be served; with a forecast, the least to plan for")
    ] = 0.0
    forecast: Annotated[
        ForecastOfDemand | None,
        Field(description="Take the demand from a forecast; solved anew when it moves by 5 %"),
    ] = None
    input_tokens: Annotated[
        int | None, Field(ge=1, le=MOST_TOKENS, description="Prompt of one request, tokens")
    ] = None
    output_tokens: Annotated[
        int | None, Field(ge=1, le=MOST_TOKENS, description="Answer of one request, tokens")
    ] = None
    time_to_first_token_seconds: Annotated[
        Seconds | None, Field(description="Limit on the first token; unset: none")
    ] = None
    time_per_output_token_seconds: Annotated[
        Seconds | None, Field(description="Limit on each later token; unset: none")
    ] = None
    tier: Annotated[
        Literal["hard", "bestEffort"],
        Field(
            description="hard plans with lowerRequestsPerSecond (status.countedRates has what that "
            "is of predicted rates), bestEffort with means"
        ),
    ] = "hard"
    minimum_replicas: Annotated[
        int, Field(ge=1, le=1000, description="No replica carries more than 1 / this of the bucket")
    ] = 1
    largest_spot_share: Annotated[
        Fraction, Field(description="Share that may run on offers that can be taken away")
    ] = 0.0
    splits_phases: Annotated[
        bool,
        Field(description="Whether predicted rates may run prefill and decode on other replicas"),
    ] = False
    kv_bytes_per_request: Annotated[
        Quantity,
        Field(description="Handed over between prefill and decode; 0: that of the language model"),
    ] = 0.0
    longest_transfer_seconds: Annotated[
        Seconds | None, Field(description="Limit on one hand-over at either link; unset: none")
    ] = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            f"!{TELLS_LENGTHS.format('self')} || has(self.outputTokens)",
            "outputTokens: a value beside forecast.tellsOutputTokens",
        ),
    )

    @model_validator(mode="after")
    def _has_a_length_until_one_is_told(self) -> Self:
        if self.follows_lengths and self.output_tokens is None:
            raise ValueError("outputTokens: a value beside forecast.tellsOutputTokens")
        return self

    @property
    def follows_lengths(self) -> bool:
        """Whether a forecast tells how long its answers are."""
        return self.forecast is not None and self.forecast.tells_output_tokens


class CallGraphSpec(ApiModel):
    """A request that makes several calls: an agent, a pipeline of models."""

    name: Annotated[Label, Field(description="For people")]
    requests_per_second: Annotated[Quantity, Field(description="Of the whole graph")] = 0.0
    forecast: Annotated[
        ForecastOfDemand | None, Field(description="Take the demand from a forecast")
    ] = None
    calls: Annotated[
        dict[str, Annotated[float, Field(gt=0, le=10_000)]],
        Field(
            min_length=1,
            max_length=MAX_BUCKETS,
            description="Bucket to mean calls per request; they add to the bucket's own demand",
        ),
    ]

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            f"!{TELLS_LENGTHS.format('self')}",
            "forecast.tellsOutputTokens: false, since only buckets follow lengths",
        ),
    )

    @model_validator(mode="after")
    def _calls_have_their_own_lengths(self) -> Self:
        if self.forecast is not None and self.forecast.tells_output_tokens:
            raise ValueError("forecast.tellsOutputTokens: false, since only buckets follow lengths")
        return self


class ServingSpec(ApiModel):
    """How the model is served where rates are predicted and not given."""

    language_model: Annotated[
        str, Field(min_length=1, max_length=128, description="Name in the capacity model")
    ]
    tensor_parallel: Annotated[
        list[Annotated[int, Field(ge=1, le=64)]],
        Field(min_length=1, max_length=8, description="GPUs of one replica: widths to choose from"),
    ] = [1]
    number_format: Annotated[
        Literal["fp8", "bf16"],
        Field(description="Of weights and KV cache; types without it serve nothing"),
    ] = "bf16"
    caps_watts: Annotated[
        list[Watts],
        Field(max_length=MAX_CAPS, description="Caps to choose from; empty: five of each GPU type"),
    ] = []
    link_bytes_per_second_per_gpu: Annotated[
        float,
        Field(ge=0, le=1e13, description="What one GPU hands over to another server; 0: no split"),
    ] = 5e10
    server_watts_per_gpu: Annotated[
        float,
        Field(ge=0, le=5000, description="Server's share of one GPU (fans, CPU, links), DC watts"),
    ] = 125.0
    supply_efficiency: Annotated[
        float, Field(gt=0.5, le=1, description="AC to DC; lowest in use")
    ] = 0.94


class RateSpec(ApiModel):
    """What one replica serves of one phase when it does nothing else."""

    requests_per_second: Annotated[Quantity, Field(description="Mean, within the latency limits")]
    lower_requests_per_second: Annotated[
        Quantity | None,
        Field(description="Lower end of the 90 % interval; unset: the mean; 0: no hard tier"),
    ] = None
    busy_watts: Annotated[Quantity, Field(description="Mean draw while doing it, AC watts")]


class PhaseRates(ApiModel):
    """Rates by phase; prefill and decode together serve a request on two replicas."""

    whole: Annotated[RateSpec | None, Field(description="The whole request")] = None
    prefill: Annotated[RateSpec | None, Field(description="Prompts only")] = None
    decode: Annotated[RateSpec | None, Field(description="Answers only")] = None


class ShapeSpec(ApiModel):
    """One way to run a replica, with measured rates."""

    name: Annotated[Label, Field(description="For people and runningReplicas: H200@600")]
    gpu_model: Annotated[ModelName, Field(description="GPU type")]
    cap_watts: Annotated[Quantity, Field(description="Power cap of each board")]
    gpus: Annotated[int, Field(ge=1, le=4096, description="Boards of one replica")] = 1
    idle_watts: Annotated[Quantity, Field(description="Draw of a waiting replica, AC watts")]
    p99_watts: Annotated[Quantity, Field(description="99th percentile of its draw, AC watts")]
    link_bytes_per_second: Annotated[
        Positive | None, Field(description="What it can hand over or take; unset: no split phases")
    ] = None
    start_seconds: Annotated[
        Quantity | None,
        Field(description="Until a new replica works, mean; unset: predicted with serving, else 0"),
    ] = None
    rates: Annotated[
        dict[str, PhaseRates],
        Field(max_length=MAX_BUCKETS, description="By bucket; what is missing is not served"),
    ] = {}


class EmbodiedSpec(ApiModel):
    """CO2e of making one board with its share of the server."""

    kilograms_per_gpu: Annotated[Quantity, Field(description="Of making it, kg")]
    lifetime_years: Annotated[Quantity, Field(description="Until it is scrapped")]
    utilisation: Annotated[Quantity, Field(description="Share of its life in which it is used")]


class OfferSpec(ApiModel):
    """GPUs of one type, price and place."""

    name: Annotated[Label, Field(description="For people")]
    gpu_model: Annotated[ModelName, Field(description="GPU type")]
    gpus: Annotated[int, Field(ge=0, le=1_000_000, description="In stock")]
    dollars_per_gpu_hour: Annotated[Quantity, Field(description="Rent, or what owning them costs")]
    domain: Annotated[str, Field(max_length=128, description="Of domains; empty: none")] = ""
    is_spot: Annotated[bool, Field(description="Whether they can be taken away")] = False
    is_owned: Annotated[
        bool, Field(description="Whether the boards are there anyway: keepOwnedWithinCostRatio")
    ] = False
    embodied: Annotated[EmbodiedSpec | None, Field(description="CO2e of making them")] = None
    running_replicas: Annotated[
        dict[str, Annotated[int, Field(ge=0, le=1_000_000)]],
        Field(max_length=MAX_SHAPES, description="What runs now, by shape; more than this starts"),
    ] = {}


class DomainSpec(ApiModel):
    """What one part of the power tree leaves to this plan."""

    name: Annotated[Label, Field(description="As offers name it")]
    parent: Annotated[str, Field(max_length=128, description="The domain above; empty: none")] = ""
    breaker_watts: Annotated[
        Quantity | None, Field(description="For the sum of the replicas' p99, AC watts")
    ] = None
    budget_watts: Annotated[
        Quantity | None, Field(description="For the sum of mean draws, AC watts")
    ] = None


class PricesSpec(ApiModel):
    """What is paid beside the GPUs."""

    dollars_per_kwh: Annotated[Quantity, Field(description="Energy, AC")] = 0.0
    grams_per_kwh: Annotated[Quantity, Field(description="CO2e of that energy")] = 0.0
    dollars_per_tonne: Annotated[
        Quantity, Field(description="Price put on CO2e of energy and boards")
    ] = 0.0
    dollars_per_start: Annotated[
        Quantity | None,
        Field(
            description="One start of a replica, beyond those that run; unset: the price of its "
            "boards until it works"
        ),
    ] = None
    horizon_hours: Annotated[
        float, Field(gt=0, le=1e6, description="Life of the plan: starts are spread over it")
    ] = 1.0


class LimitsSpec(ApiModel):
    """Bounds on the whole plan."""

    dollars_per_hour: Annotated[Quantity | None, Field(description="Unset: none")] = None
    grams_per_hour: Annotated[
        Quantity | None, Field(description="CO2e of energy and boards; unset: none")
    ] = None


class CapacityPlanSpec(ApiModel):
    """A question: which GPUs, how many and at which cap serve this demand within these limits?"""

    buckets: Annotated[
        list[BucketSpec], _named(MAX_BUCKETS, "The demand, by size of request", min_length=1)
    ]
    graphs: Annotated[
        list[CallGraphSpec], _named(MAX_GRAPHS, "Requests that make calls of several buckets")
    ] = []
    serving: Annotated[
        ServingSpec | None,
        Field(description="Predict the rates that no shape gives, from this language model"),
    ] = None
    shapes: Annotated[
        list[ShapeSpec], _named(MAX_SHAPES, "Replicas with measured rates, which win")
    ] = []
    offers: Annotated[list[OfferSpec], _named(MAX_OFFERS, "GPUs that may be used")] = []
    domains: Annotated[list[DomainSpec], _named(MAX_DOMAINS, "Breakers and budgets")] = []
    gpu_models: Annotated[
        list[ModelName],
        Field(max_length=32, description="Only offers of these GPU types; empty: all"),
    ] = []
    power_budget_watts: Annotated[
        Watts | None, Field(description="Mean draw of the whole plan, AC watts; unset: any")
    ] = None
    prices: Annotated[PricesSpec | None, Field(description="Unset: GPUs only")] = None
    limits: Annotated[LimitsSpec | None, Field(description="Unset: none")] = None
    goal: Annotated[
        Literal["leastCost", "mostRequests"],
        Field(description="All of the demand at least cost, or the largest common share of it"),
    ] = "leastCost"
    keep_owned_within_cost_ratio: Annotated[
        float | None,
        Field(
            ge=1,
            le=100,
            description="Use as few boards that are not owned as this multiple of the least cost "
            "allows; unset: cost alone decides",
        ),
    ] = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            f"has(self.serving) || !self.buckets.exists(b, {TELLS_LENGTHS.format('b')})",
            "serving: a model, since given rates are of one length (forecast.tellsOutputTokens)",
        ),
    )

    @model_validator(mode="after")
    def _rates_can_follow_lengths(self) -> Self:
        if self.serving is None and any(bucket.follows_lengths for bucket in self.buckets):
            raise ValueError(
                "serving: a model, since given rates are of one length (forecast.tellsOutputTokens)"
            )
        return self
