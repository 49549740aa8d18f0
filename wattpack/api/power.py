"""PowerDomain, PowerPolicy and PowerOverride: what operators declare about electricity."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

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


class Enforcement(StrEnum):
    """Whether decisions are written to the GPUs."""

    DRY_RUN = "DryRun"
    ENFORCE = "Enforce"


class CurvePoint(ApiModel):
    """One point of a breaker's hot trip curve."""

    load_ratio: Annotated[float, Field(gt=1, le=20, description="Load over trip rating")]
    trip_seconds: Annotated[
        float, Field(gt=0, le=1e6, description="Lower tolerance edge of the hot curve, seconds")
    ]


class BreakerSpec(ApiModel):
    """The breaker that must not trip. Either a published curve by name or points."""

    curve: Annotated[
        Literal["RackThermal", "SwitchboardThermal", "Points"],
        Field(description="RackThermal and SwitchboardThermal are the two published fits"),
    ] = "RackThermal"
    points: Annotated[list[CurvePoint], Field(max_length=32)] = []
    thermal_cold_curve: Annotated[
        bool, Field(description="The points are of a cold breaker: times count a quarter")
    ] = False
    short_time_pickup_ratio: Annotated[
        float, Field(gt=1, le=20, description="Lowest short-time or magnetic pick-up over rating")
    ] = 5.0
    cooling_seconds: Annotated[
        float, Field(gt=0, le=1e5, description="Time constant of cooling below rating, seconds")
    ] = 600.0

    @model_validator(mode="after")
    def _points_fit_the_curve(self) -> Self:
        if (self.curve == "Points") != bool(self.points):
            raise ValueError("points are needed with curve Points and only there")
        pairs = [(p.load_ratio, p.trip_seconds) for p in self.points]
        if any(a[0] >= b[0] or a[1] <= b[1] for a, b in pairwise(pairs)):
            raise ValueError("points must rise in loadRatio and fall in tripSeconds")
        return self


class Redundancy(ApiModel):
    """How the domain is fed; limits hold after the loss of any single feed."""

    mode: Literal["None", "2N", "KofN"] = "None"
    feeds: Annotated[int, Field(ge=1, le=16, description="N for KofN; 2 for 2N; 1 for None")] = 1
    required_feeds: Annotated[int, Field(ge=1, le=16, description="k for KofN")] = 1

    @model_validator(mode="after")
    def _counts_fit_the_mode(self) -> Self:
        if self.mode == "KofN" and not self.required_feeds < self.feeds:
            raise ValueError("requiredFeeds must be below feeds with KofN")
        return self


class ExternalLoad(ApiModel):
    """Load behind the breaker that wattpack does not control: switches, storage, CPU nodes."""

    name: Name
    worst_watts: Annotated[NonNegativeWatts, Field(description="The most it can draw, AC watts")]


class MemberSpec(ApiModel):
    """Which nodes hang directly below this domain."""

    node_selector: Annotated[dict[str, str], Field(max_length=16)] = {}
    node_names: Annotated[list[Name], Field(max_length=4096)] = []


class NonGpuLoad(ApiModel):
    """Worst and idle draw of one server without its GPUs (fans at maximum, CPUs, NICs)."""

    worst_watts: NonNegativeWatts
    idle_watts: NonNegativeWatts = 0.0


class MeterSpec(ApiModel):
    """Where the domain's measured power comes from, beside the sum of its nodes."""

    prometheus_query: Annotated[str, Field(max_length=4096)] = ""
    max_age_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0


class BudgetWindow(ApiModel):
    """A budget below the rating for part of the day (UTC) or until a date."""

    start: Annotated[str, Field(max_length=64, description="RFC 3339 time or HH:MM (UTC)")]
    end: Annotated[str, Field(max_length=64, description="RFC 3339 time or HH:MM (UTC)")]
    budget_watts: Watts


class PowerDomainSpec(ApiModel):
    """One node of the power tree. All watts are AC at the breaker."""

    parent: Annotated[Name | None, Field(description="The domain that feeds this one")] = None
    rating_watts: Annotated[
        Watts, Field(description="Continuous rating of one feed after derating, AC watts")
    ]
    breaker: BreakerSpec = BreakerSpec()
    redundancy: Redundancy = Redundancy()
    phases: Annotated[
        int, Field(ge=1, le=3, description="Phases; imbalance is counted by phaseImbalance")
    ] = 1
    phase_imbalance: Annotated[
        float, Field(ge=1, le=3, description="Worst phase over mean phase current")
    ] = 1.0
    members: MemberSpec = MemberSpec()
    external_loads: Annotated[list[ExternalLoad], Field(max_length=64)] = []
    non_gpu_per_node: NonGpuLoad = NonGpuLoad(worst_watts=0.0)
    supply_efficiency: Annotated[
        float, Field(gt=0.3, le=1, description="Lowest efficiency in use, supplies times UPS/PDU")
    ] = 0.94
    load_declared_complete: Annotated[
        bool, Field(description="Every load under the breaker is a member or declared (I10)")
    ] = False
    meter: MeterSpec | None = None
    budgets: Annotated[list[BudgetWindow], Field(max_length=32)] = []
    max_raise_fraction_per_second: Annotated[float, Field(gt=0, le=1)] = 0.02
    enforcement: Annotated[
        Enforcement, Field(description="DryRun decides and logs; Enforce writes caps")
    ] = Enforcement.DRY_RUN


class PowerDomainStatus(ApiModel):
    """Summaries; live draw comes from the controller."""

    observed_generation: int = 0
    accepted_spec: PowerDomainSpec | None = None
    budget_watts: float | None = None
    draw_watts: float | None = None
    forecast_p95_watts: float | None = None
    forecast_p99_watts: float | None = None
    headroom_watts: float | None = None
    cap_band_watts: float | None = None
    breaker_heat_ratio: float | None = None
    band: str | None = None
    members: int | None = None
    gpus: int | None = None
    capped_gpus: int | None = None
    epoch: int | None = None
    conditions: Conditions = []


class PowerDomain(ApiObject):
    """A node of the power tree: a breaker and what hangs below it."""

    meta: ClassVar[KindMeta] = KindMeta(
        "PowerDomain",
        "powerdomains",
        ("pdom",),
        False,
        (
            PrintColumn("Budget", "number", ".status.budgetWatts", "Watts allowed now"),
            PrintColumn("Draw", "number", ".status.drawWatts", "Measured watts"),
            PrintColumn("P95", "number", ".status.forecastP95Watts", "Forecast p95, next 6 h"),
            PrintColumn("Headroom", "number", ".status.headroomWatts", "Budget minus draw"),
            PrintColumn("Capped", "integer", ".status.cappedGpus", "GPUs held below request"),
            READY,
            PrintColumn("Epoch", "integer", ".status.epoch", "Fencing epoch of the leader", 1),
            PrintColumn("Heat", "number", ".status.breakerHeatRatio", "Breaker heat, 1 = trip", 1),
            AGE,
        ),
    )
    spec: PowerDomainSpec
    status: PowerDomainStatus = PowerDomainStatus()


class WorkSelector(ApiModel):
    """Which pods a policy speaks of; empty parts match everything."""

    priority_classes: Annotated[list[Name], Field(max_length=64)] = []
    namespaces: Annotated[list[Name], Field(max_length=256)] = []
    labels: Annotated[dict[str, str], Field(max_length=16)] = {}


class Actuator(StrEnum):
    """How a GPU's power may be reduced."""

    POWER_LIMIT = "PowerLimit"
    CLOCK_LOCK = "ClockLock"


class PowerPolicySpec(ApiModel):
    """What caps may do to a class of work."""

    selector: WorkSelector = WorkSelector()
    priority: Annotated[
        int, Field(ge=-1000000, le=1000000, description="Higher is capped later; no default")
    ]
    floor_fraction: Annotated[
        Fraction | None,
        Field(description="Floor as share of the default limit; the GPU type's knee if unset"),
    ] = None
    request_fraction: Annotated[
        Fraction, Field(description="Request as share of the default limit")
    ] = 1.0
    interactive: bool = False
    malleable: bool = False
    allowed_actuators: Annotated[list[Actuator], Field(min_length=1, max_length=2)] = [
        Actuator.POWER_LIMIT
    ]
    disruptions_per_hour: Annotated[int, Field(ge=0, le=10000)] = 0


class PowerPolicyStatus(ApiModel):
    """Which work matches."""

    observed_generation: int = 0
    matched_gpus: int | None = None
    conditions: Conditions = []


class PowerPolicy(ApiObject):
    """What caps may do to a class of work: order, floor, actuators."""

    meta: ClassVar[KindMeta] = KindMeta(
        "PowerPolicy",
        "powerpolicies",
        ("ppol",),
        False,
        (
            PrintColumn("Priority", "integer", ".spec.priority", "Higher is capped later"),
            PrintColumn("Floor", "number", ".spec.floorFraction", "Share of the default limit"),
            PrintColumn("Actuators", "string", ".spec.allowedActuators", "How power is reduced"),
            READY,
            AGE,
        ),
    )
    spec: PowerPolicySpec
    status: PowerPolicyStatus = PowerPolicyStatus()


class OverrideTarget(ApiModel):
    """Exactly one of the three."""

    domain: Name | None = None
    node: Name | None = None
    gpu_uuid: Annotated[str | None, Field(max_length=128)] = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(x is not None for x in (self.domain, self.node, self.gpu_uuid)) != 1:
            raise ValueError("exactly one of domain, node, gpuUuid")
        return self


class PowerOverrideSpec(ApiModel):
    """A manual cap, with a reason and an end."""

    target: OverrideTarget
    cap_watts: Annotated[
        Watts, Field(description="Per GPU for node and gpuUuid; of the whole domain for domain")
    ]
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    expires_at: Annotated[str, Field(min_length=1, max_length=64, description="RFC 3339 time")]


class PowerOverrideStatus(ApiModel):
    """Whether it rules now."""

    observed_generation: int = 0
    active: bool | None = None
    conditions: Conditions = []


class PowerOverride(ApiObject):
    """A manual cap with a reason and an expiry."""

    meta: ClassVar[KindMeta] = KindMeta(
        "PowerOverride",
        "poweroverrides",
        ("pover",),
        False,
        (
            PrintColumn("Target", "string", ".spec.target", "What is capped"),
            PrintColumn("Cap", "number", ".spec.capWatts", "Watts"),
            PrintColumn("Expires", "string", ".spec.expiresAt", "When it ends"),
            AGE,
        ),
    )
    spec: PowerOverrideSpec
    status: PowerOverrideStatus = PowerOverrideStatus()
