"""PowerDomain: what operators declare about electricity."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from wattpack.api.breaker_and_feeds import BreakerSpec, Redundancy
from wattpack.api.object_meta import (
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
    Rfc3339OrClock,
    Watts,
)
from wattpack.times import parse_rfc3339


class Enforcement(StrEnum):
    """Whether decisions are written to the GPUs."""

    DRY_RUN = "DryRun"
    ENFORCE = "Enforce"


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


_SLOPE = "wattsPerGpuWatt: above 0 beside worstAtRestWatts (give both or neither)"
_AT_REST = "worstAtRestWatts: a value beside wattsPerGpuWatt (give both or neither)"


class NonGpuLoad(ApiModel):
    """Worst and idle draw of one server without its GPUs (fans at maximum, CPUs, NICs)."""

    worst_watts: Annotated[NonNegativeWatts, Field(description="The most it draws, AC watts")]
    idle_watts: Annotated[
        NonNegativeWatts, Field(description="What it draws with idle GPUs, AC watts")
    ] = 0.0
    worst_at_rest_watts: Annotated[
        Watts | None,
        Field(
            description="The most it draws while its GPUs draw nothing (fans at maximum, CPUs and "
            "NICs at full work), AC watts above 0. With wattsPerGpuWatt, I1 counts servers by what "
            "their GPUs are held to; without, at worstWatts"
        ),
    ] = None
    watts_per_gpu_watt: Annotated[
        float,
        Field(ge=0, le=1, description="AC watts that each watt of its GPUs adds to that"),
    ] = 0.0

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.idleWatts) || self.idleWatts <= self.worstWatts",
            "idleWatts: at most worstWatts",
        ),
        CelRule(
            "!has(self.worstAtRestWatts) || self.worstAtRestWatts <= self.worstWatts",
            "worstAtRestWatts: at most worstWatts",
        ),
        CelRule(
            "!has(self.idleWatts) || !has(self.worstAtRestWatts)"
            " || self.idleWatts <= self.worstAtRestWatts",
            "worstAtRestWatts: at least idleWatts",
        ),
        CelRule(
            "!has(self.worstAtRestWatts)"
            " || (has(self.wattsPerGpuWatt) && self.wattsPerGpuWatt > 0.0)",
            _SLOPE,
        ),
        CelRule(
            "has(self.worstAtRestWatts)"
            " || !has(self.wattsPerGpuWatt) || self.wattsPerGpuWatt == 0.0",
            _AT_REST,
        ),
    )

    @model_validator(mode="after")
    def _watts_are_ordered(self) -> Self:
        if self.idle_watts > self.worst_watts:
            raise ValueError("idleWatts: at most worstWatts")
        at_rest = self.worst_at_rest_watts
        if (at_rest is None) != (self.watts_per_gpu_watt == 0.0):
            raise ValueError(_AT_REST if at_rest is None else _SLOPE)
        if at_rest is not None and at_rest > self.worst_watts:
            raise ValueError("worstAtRestWatts: at most worstWatts")
        if at_rest is not None and at_rest < self.idle_watts:
            raise ValueError("worstAtRestWatts: at least idleWatts")
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
            "end: like start, both times of day or both dates",
        ),
        CelRule(
            "self.start.size() == 5 || self.end.size() == 5"
            " ? self.start != self.end : timestamp(self.start) < timestamp(self.end)",
            "end: a time after start",
        ),
    )

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Self:
        daily = [len(text) == len("HH:MM") for text in (self.start, self.end)]
        if daily[0] != daily[1]:
            raise ValueError("end: like start, both times of day or both dates")
        if daily[0]:
            is_empty = self.start == self.end
        else:
            is_empty = parse_rfc3339(self.start) >= parse_rfc3339(self.end)
        if is_empty:
            raise ValueError("end: a time after start")
        return self


_ONE_HEAT = (
    "breaker.heatBudgetRatio: 0 beside redundancy.useReserve, since both would spend the same heat "
    "(give one)"
)


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
        Redundancy,
        Field(description="How it is fed; limits hold after every loss of feeds that it declares"),
    ] = Redundancy()
    phases: Annotated[
        int,
        Field(
            ge=1, le=3, description="Phases. Recorded only: phaseImbalance is all that is counted"
        ),
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
        float, Field(gt=0, le=1, description="Fastest raise of caps, share of rating a second")
    ] = 0.02
    enforcement: Annotated[
        Enforcement, Field(description="DryRun decides and logs; Enforce writes caps")
    ] = Enforcement.DRY_RUN

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.breaker) || !has(self.redundancy) || !has(self.breaker.heatBudgetRatio)"
            " || self.breaker.heatBudgetRatio == 0.0 || !has(self.redundancy.useReserve)"
            " || !self.redundancy.useReserve",
            _ONE_HEAT,
        ),
    )

    @model_validator(mode="after")
    def _heat_is_spent_once(self) -> Self:
        if self.breaker.heat_budget_ratio > 0.0 and self.redundancy.use_reserve:
            raise ValueError(_ONE_HEAT)
        return self


#: A domain's arrivals beyond these count at their full nominal watts.
MAX_ARRIVALS = 256


class Arrival(ApiModel):
    """A pod that got a node lately, and how much of its draw has come."""

    pod_uid: Annotated[str, Field(min_length=1, max_length=64, description="metadata.uid")]
    draw_watts: Annotated[
        NonNegativeWatts, Field(description="What its GPUs draw above idle, DC watts at the boards")
    ]
    at_work: Annotated[
        bool, Field(description="It draws like work, not like a start: nothing is still to come")
    ] = False


class PromisableWatts(ApiModel):
    """Watts that may be promised to some priorities beyond what is promised now."""

    least_priority: Annotated[
        int | None,
        Field(description="Of pods that it is for; absent: all that no entry before it is for"),
    ] = None
    risk: Annotated[Fraction, Field(description="Share of windows in which caps may be needed")]
    watts: Annotated[
        NonNegativeWatts,
        Field(description="Beyond what is promised, AC watts at the requests of work"),
    ]


MAX_PROMISABLE = 16


def _spec_or_none(told: object, read: ValidatorFunctionWrapHandler) -> PowerDomainSpec | None:
    """An accepted spec that today's rules refuse is none: it may not run, nor hide the newest."""
    try:
        spec: PowerDomainSpec | None = read(told)
    except ValidationError:
        return None
    return spec


class PowerDomainStatus(ApiModel):
    """Summaries; live draw comes from the controller."""

    observed_generation: ObservedGeneration = 0
    accepted_spec: Annotated[
        PowerDomainSpec | None,
        WrapValidator(_spec_or_none),
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
    promisable: Annotated[
        list[PromisableWatts],
        Field(
            max_length=MAX_PROMISABLE,
            description="What may be promised beyond what is, by risk, the least first, as advice: "
            "placement counts by itself; absent where nothing is known of the coming draw",
        ),
    ] = []
    arrivals: Annotated[
        list[Arrival],
        Field(
            max_length=MAX_ARRIVALS,
            description="Pods that got a node directly below in the last 120 s, as drawWatts has "
            "them; placement counts what is still to come",
        ),
    ] = []
    headroom_watts: Annotated[float | None, Field(description="Budget minus draw, watts")] = None
    cap_band_watts: Annotated[
        float | None, Field(description="Above this draw GPUs are capped, AC watts")
    ] = None
    breaker_heat_ratio: Annotated[
        float | None, Field(description="Thermal state of the breaker; 1 trips")
    ] = None
    band: Annotated[
        str | None,
        Field(max_length=32, description="Where the draw lies: Normal, Releasing, Capping, Brake"),
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
            PrintColumn(
                "Promisable",
                "number",
                ".status.promisable[0].watts",
                "Watts that may be promised beyond what is, at the least risk",
                1,
            ),
            PrintColumn("Epoch", "integer", ".status.epoch", "Fencing epoch of the leader", 1),
            PrintColumn("Heat", "number", ".status.breakerHeatRatio", "Breaker heat, 1 = trip", 1),
            AGE,
        ),
    )
    spec: Annotated[PowerDomainSpec, Field(description="What the operator declares")]
    status: Annotated[PowerDomainStatus, Field(description="What the controller found")] = (
        PowerDomainStatus()
    )
