"""DemandForecast, CapacityPlan and PlacementPlan: what is expected and what is promised."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattpack.api.meta import (
    AGE,
    READY,
    ApiModel,
    ApiObject,
    Conditions,
    Fraction,
    KindMeta,
    Name,
    NonNegativeWatts,
    PrintColumn,
    Watts,
)


class ForecastTarget(ApiModel):
    """What is forecast: a domain's power, a workload's power, or any query."""

    power_domain: Name | None = None
    workload: Annotated[str | None, Field(max_length=253)] = None
    series: Annotated[
        str, Field(max_length=4096, description="Series name in the history, or PromQL")
    ]
    unit: Annotated[str, Field(max_length=64)] = "watts"


class DemandForecastSpec(ApiModel):
    """A series, a horizon and levels."""

    target: ForecastTarget
    horizon_seconds: Annotated[int, Field(ge=600, le=7 * 86400)] = 6 * 3600
    step_seconds: Annotated[int, Field(ge=60, le=3600)] = 600
    levels: Annotated[list[Fraction], Field(min_length=1, max_length=21)] = [0.5, 0.9, 0.95, 0.99]
    ceiling_watts: Annotated[
        NonNegativeWatts | None, Field(description="Sum of caps: the series cannot exceed it")
    ] = None


class QuantilePath(ApiModel):
    """One level over the horizon."""

    level: Fraction
    values: Annotated[list[float], Field(max_length=1024)]


class DemandForecastStatus(ApiModel):
    """The newest forecast and how well earlier ones did."""

    observed_generation: int = 0
    issued_at: Annotated[str | None, Field(max_length=64)] = None
    data_until: Annotated[str | None, Field(max_length=64)] = None
    method: Annotated[str | None, Field(max_length=64)] = None
    fallback: bool | None = None
    now: float | None = None
    p50: Annotated[float | None, Field(description="Peak of the horizon, level 0.5")] = None
    p95: Annotated[float | None, Field(description="Peak of the horizon, level 0.95")] = None
    p99: Annotated[float | None, Field(description="Peak of the horizon, level 0.99")] = None
    quantiles: Annotated[list[QuantilePath], Field(max_length=21)] = []
    coverage_p99: Annotated[Fraction | None, Field(description="Observed share below p99")] = None
    coverage_n: int | None = None
    violations: int | None = None
    conditions: Conditions = []


class DemandForecast(ApiObject):
    """Quantiles of a series over the next hours."""

    meta: ClassVar[KindMeta] = KindMeta(
        "DemandForecast",
        "demandforecasts",
        ("dfc",),
        True,
        (
            PrintColumn("Now", "number", ".status.now", "Latest value"),
            PrintColumn("P50", "number", ".status.p50", "Median peak of the horizon"),
            PrintColumn("P99", "number", ".status.p99", "p99 peak of the horizon"),
            PrintColumn("Coverage", "number", ".status.coverageP99", "Observed share below p99"),
            READY,
            AGE,
        ),
    )
    spec: DemandForecastSpec
    status: DemandForecastStatus = DemandForecastStatus()


class CapacityPlanSpec(ApiModel):
    """A question: how many GPUs of which type serve this mix within this budget?"""

    request_mix: Annotated[dict[str, NonNegativeWatts], Field(max_length=256)]
    gpu_models: Annotated[list[str], Field(min_length=1, max_length=32)]
    power_budget_watts: Watts
    slo_p99_slowdown: Annotated[float | None, Field(ge=1, le=1000)] = None


class CapacityPlanStatus(ApiModel):
    """The answer."""

    observed_generation: int = 0
    cost_per_hour: float | None = None
    power_watts: float | None = None
    saved_fraction: float | None = None
    conditions: Conditions = []


class CapacityPlan(ApiObject):
    """Replicas by GPU type and cap for a request mix."""

    meta: ClassVar[KindMeta] = KindMeta(
        "CapacityPlan",
        "capacityplans",
        ("cplan",),
        True,
        (
            PrintColumn("Cost", "number", ".status.costPerHour", "Per hour"),
            PrintColumn("Power", "number", ".status.powerWatts", "Watts"),
            PrintColumn("Saved", "number", ".status.savedFraction", "Against today's mix"),
            READY,
            AGE,
        ),
    )
    spec: CapacityPlanSpec
    status: CapacityPlanStatus = CapacityPlanStatus()


class Promise(ApiModel):
    """One pod that will get one node."""

    pod_uid: Annotated[str, Field(min_length=1, max_length=64)]
    namespace: Annotated[str, Field(max_length=253)]
    name: Annotated[str, Field(max_length=253)]
    node: Name
    gang: Annotated[str, Field(max_length=253)] = ""


class PendingPod(ApiModel):
    """One pod without a place, and why."""

    pod_uid: Annotated[str, Field(min_length=1, max_length=64)]
    namespace: Annotated[str, Field(max_length=253)]
    name: Annotated[str, Field(max_length=253)]
    reason: Annotated[str, Field(max_length=64)]
    message: Annotated[str, Field(max_length=1024)] = ""


class PlacementPlanSpec(ApiModel):
    """One planning cycle's promises; written before the first pod is patched."""

    snapshot_digest: Annotated[str, Field(max_length=128)]
    promises: Annotated[list[Promise], Field(max_length=2048)] = []
    pending: Annotated[list[PendingPod], Field(max_length=2048)] = []
    moves: Annotated[int, Field(ge=0)] = 0
    gap: Annotated[float | None, Field(ge=0, le=1)] = None
    method: Annotated[str, Field(max_length=64)] = ""
    created_at: Annotated[str, Field(max_length=64)] = ""


class PlacementPlanStatus(ApiModel):
    """How far the promises are kept."""

    observed_generation: int = 0
    state: Literal["Promised", "Applying", "Applied", "Expired"] | None = None
    pods: int | None = None
    bound: int | None = None
    conditions: Conditions = []


class PlacementPlan(ApiObject):
    """One planning cycle: promises, pending pods and the distance to the bound."""

    meta: ClassVar[KindMeta] = KindMeta(
        "PlacementPlan",
        "placementplans",
        ("plan",),
        False,
        (
            PrintColumn("Pods", "integer", ".status.pods", "Pods promised"),
            PrintColumn("Moves", "integer", ".spec.moves", "Running pods moved"),
            PrintColumn("Gap", "number", ".spec.gap", "Distance to the bound"),
            PrintColumn("State", "string", ".status.state", "Promised, Applying, Applied, Expired"),
            AGE,
        ),
    )
    spec: PlacementPlanSpec
    status: PlacementPlanStatus = PlacementPlanStatus()
