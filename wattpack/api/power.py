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
    CelRule,
    Conditions,
    Counter,
    Fraction,
    KindMeta,
    LabelValue,
    Name,
    NonNegativeWatts,
    ObservedGeneration,
    PrintColumn,
    Rfc3339,
    Rfc3339OrClock,
    Watts,
)
from wattpack.api.times import parse_rfc3339


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
    points: Annotated[
        list[CurvePoint],
        Field(max_length=32, description="The curve, rising in loadRatio; only with curve Points"),
    ] = []
    thermal_cold_curve: Annotated[
        bool, Field(description="The points are of a cold breaker: times count a quarter")
    ] = False
    short_time_pickup_ratio: Annotated[
        float, Field(gt=1, le=20, description="Lowest short-time or magnetic pick-up over rating")
    ] = 5.0
    cooling_seconds: Annotated[
        float, Field(gt=0, le=1e5, description="Time constant of cooling below rating, seconds")
    ] = 600.0

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(self.curve == 'Points') == (has(self.points) && self.points.size() > 0)",
            "points are needed with curve Points and only there",
        ),
        CelRule(
            "!has(self.points) || (self.points.map(p, p.loadRatio).isSorted()"
            " && self.points.all(p, self.points.exists_one(q, q.loadRatio == p.loadRatio))"
            " && self.points.all(p, self.points.all(q,"
            " p.loadRatio >= q.loadRatio || p.tripSeconds > q.tripSeconds)))",
            "points must rise in loadRatio and fall in tripSeconds",
        ),
    )

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

    mode: Annotated[
        Literal["None", "2N", "KofN"],
        Field(description="None: one feed; 2N: either feed carries all; KofN: k of N carry all"),
    ] = "None"
    feeds: Annotated[int, Field(ge=1, le=16, description="N for KofN; 2 for 2N; 1 for None")] = 1
    required_feeds: Annotated[int, Field(ge=1, le=16, description="k for KofN")] = 1

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.mode != 'KofN' || self.requiredFeeds < self.feeds",
            "requiredFeeds must be below feeds with KofN",
        ),
    )

    @model_validator(mode="after")
    def _counts_fit_the_mode(self) -> Self:
        if self.mode == "KofN" and not self.required_feeds < self.feeds:
            raise ValueError("requiredFeeds must be below feeds with KofN")
        return self


class ExternalLoad(ApiModel):
    """Load behind the breaker that wattpack does not control: switches, storage, CPU nodes."""

    name: Annotated[Name, Field(description="Name of the load, for people")]
    worst_watts: Annotated[NonNegativeWatts, Field(description="The most it can draw, AC watts")]


class MemberSpec(ApiModel):
    """Which nodes hang directly below this domain."""

    node_selector: Annotated[
        dict[str, LabelValue],
        Field(max_length=16, description="Labels that a member node carries, all of them"),
    ] = {}
    node_names: Annotated[
        list[Name], Field(max_length=4096, description="Member nodes by name, beside the selector")
    ] = []


class NonGpuLoad(ApiModel):
    """Worst and idle draw of one server without its GPUs (fans at maximum, CPUs, NICs)."""

    worst_watts: Annotated[NonNegativeWatts, Field(description="The most it draws, AC watts")]
    idle_watts: Annotated[
        NonNegativeWatts, Field(description="What it draws with idle GPUs, AC watts")
    ] = 0.0

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.idleWatts) || self.idleWatts <= self.worstWatts",
            "idleWatts must not exceed worstWatts",
        ),
    )

    @model_validator(mode="after")
    def _idle_is_not_above_worst(self) -> Self:
        if self.idle_watts > self.worst_watts:
            raise ValueError("idleWatts must not exceed worstWatts")
        return self


class MeterSpec(ApiModel):
    """Where the domain's measured power comes from, beside the sum of its nodes."""

    prometheus_query: Annotated[
        str, Field(max_length=4096, description="PromQL of one series, AC watts; empty = no meter")
    ] = ""
    max_age_seconds: Annotated[
        float, Field(gt=0, le=3600, description="Older readings count as missing, seconds")
    ] = 10.0


class BudgetWindow(ApiModel):
    """A budget below the rating for part of the day (UTC) or until a date."""

    start: Annotated[Rfc3339OrClock, Field(description="RFC 3339 time or HH:MM (UTC)")]
    end: Annotated[Rfc3339OrClock, Field(description="RFC 3339 time or HH:MM (UTC)")]
    budget_watts: Annotated[Watts, Field(description="Budget inside the window, AC watts")]

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(self.start.size() == 5) == (self.end.size() == 5)",
            "start and end must both be times of day or both be dates",
        ),
        CelRule(
            "self.start.size() == 5 || self.end.size() == 5"
            " ? self.start != self.end : timestamp(self.start) < timestamp(self.end)",
            "end must come after start",
        ),
    )

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Self:
        daily = [len(text) == len("HH:MM") for text in (self.start, self.end)]
        if daily[0] != daily[1]:
            raise ValueError("start and end must both be times of day or both be dates")
        if daily[0]:
            is_empty = self.start == self.end
        else:
            is_empty = parse_rfc3339(self.start) >= parse_rfc3339(self.end)
        if is_empty:
            raise ValueError("end must come after start")
        return self


class PowerDomainSpec(ApiModel):
    """One node of the power tree. All watts are AC at the breaker."""

    parent: Annotated[Name | None, Field(description="The domain that feeds this one")] = None
    rating_watts: Annotated[
        Watts, Field(description="Continuous rating of one feed after derating, AC watts")
    ]
    breaker: Annotated[BreakerSpec, Field(description="The breaker that must not trip")] = (
        BreakerSpec()
    )
    redundancy: Annotated[
        Redundancy, Field(description="How it is fed; limits hold after the loss of any one feed")
    ] = Redundancy()
    phases: Annotated[
        int, Field(ge=1, le=3, description="Phases; imbalance is counted by phaseImbalance")
    ] = 1
    phase_imbalance: Annotated[
        float, Field(ge=1, le=3, description="Worst phase over mean phase current")
    ] = 1.0
    members: Annotated[MemberSpec, Field(description="The nodes directly below this domain")] = (
        MemberSpec()
    )
    external_loads: Annotated[
        list[ExternalLoad],
        Field(max_length=64, description="Loads behind the breaker that wattpack cannot cap"),
    ] = []
    non_gpu_per_node: Annotated[
        NonGpuLoad, Field(description="Draw of one member server without its GPUs")
    ] = NonGpuLoad(worst_watts=0.0)
    supply_efficiency: Annotated[
        float, Field(gt=0.3, le=1, description="Lowest efficiency in use, supplies times UPS/PDU")
    ] = 0.94
    load_declared_complete: Annotated[
        bool, Field(description="Every load under the breaker is a member or declared (I10)")
    ] = False
    meter: Annotated[
        MeterSpec | None, Field(description="A meter at the breaker, beside the sum of the nodes")
    ] = None
    budgets: Annotated[
        list[BudgetWindow],
        Field(max_length=32, description="Budgets below the rating; the lowest open window rules"),
    ] = []
    max_raise_fraction_per_second: Annotated[
        float, Field(gt=0, le=1, description="Fastest raise after a mass expiry, share of rating")
    ] = 0.02
    enforcement: Annotated[
        Enforcement, Field(description="DryRun decides and logs; Enforce writes caps")
    ] = Enforcement.DRY_RUN


class PowerDomainStatus(ApiModel):
    """Summaries; live draw comes from the controller."""

    observed_generation: ObservedGeneration = 0
    accepted_spec: Annotated[
        PowerDomainSpec | None,
        Field(description="The spec that runs; the last one that keeps every domain safe (I1)"),
    ] = None
    budget_watts: Annotated[float | None, Field(description="Watts allowed now, AC")] = None
    draw_watts: Annotated[float | None, Field(description="Measured draw, AC watts")] = None
    forecast_p95_watts: Annotated[
        float | None, Field(description="Peak of the forecast horizon, level 0.95, AC watts")
    ] = None
    forecast_p99_watts: Annotated[
        float | None, Field(description="Peak of the forecast horizon, level 0.99, AC watts")
    ] = None
    headroom_watts: Annotated[float | None, Field(description="Budget minus draw, watts")] = None
    cap_band_watts: Annotated[
        float | None, Field(description="Above this draw GPUs are capped, AC watts")
    ] = None
    breaker_heat_ratio: Annotated[
        float | None, Field(description="Thermal state of the breaker; 1 trips")
    ] = None
    band: Annotated[
        str | None, Field(max_length=32, description="Where the draw lies: Free, Cap, Brake")
    ] = None
    members: Annotated[Counter | None, Field(description="Nodes below this domain")] = None
    gpus: Annotated[Counter | None, Field(description="GPUs below this domain")] = None
    capped_gpus: Annotated[Counter | None, Field(description="GPUs held below request")] = None
    epoch: Annotated[Counter | None, Field(description="Fencing epoch of the leader")] = None
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
    spec: Annotated[PowerDomainSpec, Field(description="What the operator declares")]
    status: Annotated[PowerDomainStatus, Field(description="What the controller found")] = (
        PowerDomainStatus()
    )


class WorkSelector(ApiModel):
    """Which pods a policy speaks of; empty parts match everything."""

    priority_classes: Annotated[
        list[Name], Field(max_length=64, description="PriorityClass names, any of them")
    ] = []
    namespaces: Annotated[
        list[Name], Field(max_length=256, description="Namespaces, any of them")
    ] = []
    labels: Annotated[
        dict[str, LabelValue], Field(max_length=16, description="Pod labels, all of them")
    ] = {}


class Actuator(StrEnum):
    """How a GPU's power may be reduced."""

    POWER_LIMIT = "PowerLimit"
    CLOCK_LOCK = "ClockLock"


class PowerPolicySpec(ApiModel):
    """What caps may do to a class of work."""

    selector: Annotated[WorkSelector, Field(description="Which pods; empty matches all")] = (
        WorkSelector()
    )
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
    interactive: Annotated[
        bool, Field(description="Somebody waits for answers: capped after all other work")
    ] = False
    malleable: Annotated[
        bool, Field(description="May be shrunk or suspended at a checkpoint before others are cut")
    ] = False
    allowed_actuators: Annotated[
        list[Actuator],
        Field(min_length=1, max_length=2, description="How power may be reduced"),
    ] = [Actuator.POWER_LIMIT]
    disruptions_per_hour: Annotated[
        int, Field(ge=0, le=10000, description="Evictions allowed each hour to save power")
    ] = 0


class PowerPolicyStatus(ApiModel):
    """Which work matches."""

    observed_generation: ObservedGeneration = 0
    matched_gpus: Annotated[Counter | None, Field(description="GPUs whose work matches")] = None
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
    spec: Annotated[PowerPolicySpec, Field(description="What caps may do")]
    status: Annotated[PowerPolicyStatus, Field(description="What the controller found")] = (
        PowerPolicyStatus()
    )


class OverrideTarget(ApiModel):
    """Exactly one of the three."""

    domain: Annotated[Name | None, Field(description="A PowerDomain by name")] = None
    node: Annotated[Name | None, Field(description="A node by name: each of its GPUs")] = None
    gpu_uuid: Annotated[
        str | None, Field(min_length=1, max_length=128, description="One GPU by its UUID")
    ] = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "[has(self.domain), has(self.node), has(self.gpuUuid)].filter(x, x).size() == 1",
            "exactly one of domain, node, gpuUuid",
        ),
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(x is not None for x in (self.domain, self.node, self.gpu_uuid)) != 1:
            raise ValueError("exactly one of domain, node, gpuUuid")
        return self


class PowerOverrideSpec(ApiModel):
    """A manual cap, with a reason and an end."""

    target: Annotated[OverrideTarget, Field(description="What is capped; it cannot be changed")]
    cap_watts: Annotated[
        Watts, Field(description="Per GPU for node and gpuUuid; of the whole domain for domain")
    ]
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, description="Why, for those who read it later")
    ]
    expires_at: Annotated[Rfc3339, Field(description="When it ends, RFC 3339")]

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule("self.target == oldSelf.target", "target cannot be changed; make a new override"),
    )


class PowerOverrideStatus(ApiModel):
    """Whether it rules now."""

    observed_generation: ObservedGeneration = 0
    active: Annotated[bool | None, Field(description="Whether it rules now")] = None
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
    spec: Annotated[PowerOverrideSpec, Field(description="What is capped, how far and until when")]
    status: Annotated[PowerOverrideStatus, Field(description="What the controller found")] = (
        PowerOverrideStatus()
    )
