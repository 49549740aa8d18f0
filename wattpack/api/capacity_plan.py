"""CapacityPlan: which GPUs, how many and at which cap serve a demand, and what limits the answer.

The question is ``wattpack/api/capacity_question.py``; this is its answer and the kind of both.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattpack.api.capacity_question import MAX_BUCKETS, CapacityPlanSpec
from wattpack.api.object_meta import (
    AGE,
    READY,
    ApiModel,
    ApiObject,
    Conditions,
    Fraction,
    KindMeta,
    ModelName,
    ObservedGeneration,
    PrintColumn,
    Watts,
)

__all__ = [
    "MAX_COSTS",
    "MAX_SERVES",
    "BucketDemand",
    "CapacityPlan",
    "CapacityPlanStatus",
    "ConstraintCostStatus",
    "CountedRates",
    "PlanReason",
    "PlannedCosts",
    "PlannedReplicas",
]

MAX_COSTS = MAX_SERVES = 16


class PlanReason(StrEnum):
    """Every reason of a CapacityPlan's conditions."""

    VALID = "Valid"
    SPEC_REFUSED = "SpecRefused"
    AWAITING_ANSWER = "AwaitingAnswer"
    SOLVED = "Solved"
    GAP_LEFT = "GapLeft"
    INFEASIBLE = "Infeasible"
    OUT_OF_TIME = "OutOfTime"
    RATES_UNKNOWN = "RatesUnknown"
    FORECAST_UNFIT = "ForecastUnfit"
    SOLVER_FAILED = "SolverFailed"


class PlannedReplicas(ApiModel):
    """Replicas of one kind that the plan has."""

    gpu_model: Annotated[ModelName, Field(description="GPU type")]
    cap_watts: Annotated[Watts, Field(description="Power cap of each board")]
    gpus: Annotated[int, Field(ge=1, description="Boards of one replica")]
    replicas: Annotated[int, Field(ge=1, description="How many")]
    offer: Annotated[str, Field(max_length=128, description="Whose stock")]
    serves: Annotated[
        list[Annotated[str, Field(max_length=256)]],
        Field(max_length=MAX_SERVES, description="Bucket, phase and share, the largest first"),
    ] = []


class PlannedCosts(ApiModel):
    """Dollars per hour by cause."""

    rent: Annotated[float, Field(description="GPUs")]
    energy: Annotated[float, Field(description="Energy")]
    carbon: Annotated[float, Field(description="Price put on CO2e")]
    start: Annotated[float, Field(description="Starts, spread over the horizon")]


class ConstraintCostStatus(ApiModel):
    """What the plan would gain without one constraint."""

    constraint: Annotated[str, Field(max_length=256, description="Its name: stock of h200")]
    gain: Annotated[
        float, Field(description="Dollars per hour less, or share of the demand served on top")
    ]
    least_gain: Annotated[float, Field(description="What of it is proved")]


class BucketDemand(ApiModel):
    """The demand that was planned for."""

    bucket: Annotated[str, Field(max_length=128, description="Its name")]
    requests_per_second: Annotated[float, Field(description="With its share of graphs")]
    output_tokens: Annotated[
        int | None, Field(ge=1, description="Of one answer, where a forecast is asked for them")
    ] = None
    reason: Annotated[
        str | None, Field(max_length=512, description="How forecasts decided it, with the figures")
    ] = None


class CountedRates(ApiModel):
    """What hard tiers count on, of the rates that the plan uses."""

    least_share: Annotated[Fraction, Field(description="Lower rate over the mean, the least")]
    most_share: Annotated[Fraction, Field(description="Lower rate over the mean, the most")]
    time_factor: Annotated[
        float | None,
        Field(ge=1, description="What everything lasts at predicted lower rates, over the mean's"),
    ] = None
    confidence: Annotated[
        Fraction | None, Field(description="Share of held-out runs that lasted no longer")
    ] = None


class CapacityPlanStatus(ApiModel):
    """The answer."""

    observed_generation: ObservedGeneration = 0
    answered_generation: Annotated[
        int | None, Field(ge=0, description="The metadata.generation that the figures answer")
    ] = None
    solved_at: Annotated[
        str | None, Field(max_length=64, description="When they were found, RFC 3339")
    ] = None
    inputs_digest: Annotated[
        str | None, Field(max_length=64, description="Of spec and GPU profiles behind them")
    ] = None
    rates_from: Annotated[
        Literal["Given", "Predicted", "Both"] | None,
        Field(description="Whether rates were given by shapes or predicted by the serving model"),
    ] = None
    counted_rates: Annotated[
        CountedRates | None, Field(description="How careful the plan is; unset: no hard tier")
    ] = None
    demand: Annotated[
        list[BucketDemand], Field(max_length=MAX_BUCKETS, description="What was planned for")
    ] = []
    cost_per_hour: Annotated[float | None, Field(description="Cost per hour, dollars")] = None
    costs: Annotated[PlannedCosts | None, Field(description="By cause")] = None
    power_watts: Annotated[float | None, Field(description="Expected draw, AC watts")] = None
    p99_watts: Annotated[
        float | None, Field(description="Sum of the replicas' 99th percentiles, AC watts")
    ] = None
    operational_grams_per_hour: Annotated[
        float | None, Field(description="CO2e of the energy, grams per hour")
    ] = None
    embodied_grams_per_hour: Annotated[
        float | None, Field(description="CO2e of making the GPUs, grams per hour of use")
    ] = None
    served_fraction: Annotated[
        float | None, Field(description="Share of every bucket's demand that is served")
    ] = None
    replicas: Annotated[
        list[PlannedReplicas],
        Field(max_length=1024, description="Replicas by GPU type and cap"),
    ] = []
    constraint_costs: Annotated[
        list[ConstraintCostStatus],
        Field(max_length=MAX_COSTS, description="What constraints cost, the dearest first"),
    ] = []
    gap: Annotated[float | None, Field(ge=0, description="Distance to the bound, share")] = None
    saved_fraction: Annotated[
        float | None, Field(description="Cost saved against today's mix, share")
    ] = None
    conditions: Conditions = []


class CapacityPlan(ApiObject):
    """Replicas by GPU type and cap for a demand."""

    meta: ClassVar[KindMeta] = KindMeta(
        "CapacityPlan",
        "capacityplans",
        ("cplan",),
        True,
        (
            PrintColumn("Cost", "number", ".status.costPerHour", "Dollars per hour"),
            PrintColumn("Power", "number", ".status.powerWatts", "Expected draw, AC watts"),
            PrintColumn("Saved", "number", ".status.savedFraction", "Share, against today's mix"),
            READY,
            PrintColumn(
                "Reason",
                "string",
                '.status.conditions[?(@.type=="Ready")].reason',
                "Why it is ready or not",
                priority=1,
            ),
            AGE,
        ),
    )
    spec: Annotated[CapacityPlanSpec, Field(description="The question")]
    status: Annotated[CapacityPlanStatus, Field(description="The answer")] = CapacityPlanStatus()
