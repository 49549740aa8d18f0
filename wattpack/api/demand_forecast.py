"""DemandForecast: what is expected of a series, and how well such promises have held."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from wattpack.api.forecast_replicas import ReplicaNeed, ReplicaRule
from wattpack.api.forecast_subject import (
    MAX_FORECAST_LOADS,
    ForecastLoad,
    ForecastTarget,
    ForecastTokenLengths,
    ForecastTokens,
)
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
    ObservedGeneration,
    PrintColumn,
    Watts,
)

DEFAULT_HORIZON_SECONDS = 6 * 3600
DEFAULT_STEP_SECONDS = 600
MAX_FORECAST_STEPS = 1024
MAX_FORECAST_TIERS = 16

LOWEST_LEVEL = 0.01
HIGHEST_LEVEL = 0.999
"""Of quantiles that are computed (``forecasting/tiers/level_grid.py``): what is asked beyond them
would be theirs under another name."""

MAX_LEVELS = 21

EVENT_TIME_PATTERN = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?$"
MAX_EVENTS = 64


class ForecastEvent(ApiModel):
    """Something planned: a launch, a reservation, a holiday.

    The series becomes ``value * factor + added``, at least ``atLeast``, at most ``atMost``; with
    none of the four the effect is learned from earlier events of the same name.
    """

    name: Annotated[
        str,
        Field(min_length=1, max_length=63, description="Events of one name are of one kind"),
    ]
    start: Annotated[
        str,
        Field(
            max_length=64,
            pattern=EVENT_TIME_PATTERN,
            description="RFC 3339; without an offset a local time of timeZone",
        ),
    ]
    end: Annotated[
        str,
        Field(max_length=64, pattern=EVENT_TIME_PATTERN, description="After start, likewise"),
    ]
    time_zone: Annotated[
        str | None, Field(min_length=1, max_length=64, description="IANA name, e.g. Europe/Berlin")
    ] = None
    factor: Annotated[
        float | None, Field(ge=0, le=20, description="What the series is multiplied by")
    ] = None
    added: Annotated[
        float | None, Field(ge=-1e15, le=1e15, description="Added after that, in the series' unit")
    ] = None
    at_least: Annotated[
        float | None, Field(ge=0, le=1e15, description="For example what is reserved")
    ] = None
    at_most: Annotated[float | None, Field(ge=0, le=1e15, description="For example a quota")] = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.atLeast) || !has(self.atMost) || self.atLeast <= self.atMost",
            "atLeast: at most the value of atMost",
        ),
    )

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("atLeast: at most the value of atMost")
        return self


class DemandForecastSpec(ApiModel):
    """A series, a horizon and levels."""

    target: Annotated[ForecastTarget, Field(description="What is forecast")]
    horizon_seconds: Annotated[
        int, Field(ge=600, le=7 * 86400, description="How far ahead, seconds")
    ] = DEFAULT_HORIZON_SECONDS
    step_seconds: Annotated[int, Field(ge=60, le=3600, description="Width of one bin, seconds")] = (
        DEFAULT_STEP_SECONDS
    )
    levels: Annotated[
        list[Annotated[float, Field(ge=LOWEST_LEVEL, le=HIGHEST_LEVEL)]],
        Field(min_length=1, max_length=MAX_LEVELS, description="Quantile levels, strictly rising"),
    ] = [0.5, 0.9, 0.95, 0.99]
    ceiling_watts: Annotated[
        Watts | None,
        Field(
            description="Sum of caps: the series cannot exceed it; nor, where its PowerDomain "
            "enforces, the rating"
        ),
    ] = None
    replicas: Annotated[
        ReplicaRule | None,
        Field(description="Say how many replicas the target should have (status.replicas)"),
    ] = None
    events: Annotated[
        list[ForecastEvent],
        Field(max_length=MAX_EVENTS, description="What is planned, and earlier events like it"),
    ] = []
    load: Annotated[
        list[ForecastLoad],
        Field(max_length=MAX_FORECAST_LOADS, description="What tells the domain's draw"),
    ] = []
    tokens: Annotated[
        ForecastTokenLengths | None, Field(description="To be told the tokens of these requests")
    ] = None
    held_series: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=4096,
            description="Share that caps held back, 0 to 1; bins of a tenth and more are no demand",
        ),
    ] = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule("self.stepSeconds <= self.horizonSeconds", "stepSeconds: at most horizonSeconds"),
        CelRule(
            f"self.horizonSeconds / self.stepSeconds <= {MAX_FORECAST_STEPS}",
            f"horizonSeconds: at most {MAX_FORECAST_STEPS} steps of stepSeconds",
        ),
        CelRule(
            "self.levels.isSorted() && self.levels.all(x, self.levels.exists_one(y, y == x))",
            "levels: values that rise strictly",
        ),
        CelRule(
            "has(self.target.powerDomain) || !has(self.load) || self.load.size() == 0",
            "load: none unless the target is a powerDomain",
        ),
        CelRule(
            "has(self.target.powerDomain) || !has(self.heldSeries)",
            "heldSeries: none unless the target is a powerDomain",
        ),
        CelRule(
            "!(has(self.target.powerDomain) && has(self.tokens))", "tokens: none of a powerDomain"
        ),
        CelRule(
            "!has(self.replicas) || !has(self.replicas.tokenRate) || has(self.tokens)",
            "replicas.tokenRate: none without tokens",
        ),
    )

    @model_validator(mode="after")
    def _steps_fit_and_levels_rise(self) -> Self:
        if self.step_seconds > self.horizon_seconds:
            raise ValueError("stepSeconds: at most horizonSeconds")
        if self.horizon_seconds // self.step_seconds > MAX_FORECAST_STEPS:
            raise ValueError(f"horizonSeconds: at most {MAX_FORECAST_STEPS} steps of stepSeconds")
        if any(a >= b for a, b in pairwise(self.levels)):
            raise ValueError("levels: values that rise strictly")
        is_domain = self.target.power_domain is not None
        if not is_domain and self.load:
            raise ValueError("load: none unless the target is a powerDomain")
        if not is_domain and self.held_series:
            raise ValueError("heldSeries: none unless the target is a powerDomain")
        if is_domain and self.tokens:
            raise ValueError("tokens: none of a powerDomain")
        if self.replicas is not None and self.replicas.token_rate is not None and not self.tokens:
            raise ValueError("replicas.tokenRate: none without tokens")
        return self


class QuantilePath(ApiModel):
    """One level over the horizon."""

    level: Annotated[Fraction, Field(description="Quantile level")]
    values: Annotated[
        list[float],
        Field(max_length=MAX_FORECAST_STEPS, description="One value a step, in the series' unit"),
    ]


class ForecastLead(ApiModel):
    """What may be needed before a replica that is ordered now works."""

    workload: Annotated[
        str, Field(max_length=253, description="Of what runs there, what takes longest to start")
    ]
    seconds: Annotated[
        float, Field(ge=0, description="Within which a new replica of it works, 19 times in 20")
    ]
    kinds: Annotated[Counter, Field(description="Kinds of work that were asked for their start")]
    p50: Annotated[float | None, Field(description="Highest step within it, level 0.5")] = None
    p95: Annotated[float | None, Field(description="Highest step within it, level 0.95")] = None
    p99: Annotated[float | None, Field(description="Highest step within it, level 0.99")] = None


class ForecastRunning(ApiModel):
    """Peak of the horizon of what runs now: work that may start on free boards is left out."""

    p50: Annotated[float, Field(description="Level 0.5")]
    p95: Annotated[float, Field(description="Level 0.95")]
    p99: Annotated[float, Field(description="Level 0.99")]


class ForecastTier(ApiModel):
    """One of the models that were combined, and how much it counted."""

    name: Annotated[str, Field(min_length=1, max_length=64, description="Of the model")]
    weight: Annotated[Fraction, Field(description="Its share of the combination")]


class ForecastCalibration(ApiModel):
    """What the correction of the peaks rests on; its windows are those of the whole pool."""

    live_windows: Annotated[
        Counter, Field(description="Finished windows of promises that were really made")
    ] = 0
    rehearsed_windows: Annotated[
        Counter, Field(description="Windows of the history that were gone through afterwards")
    ] = 0
    offset_p99: Annotated[
        float | None,
        Field(description="Added to the p99 of the peak, in the series' unit; may be negative"),
    ] = None
    updated_at: Annotated[
        str | None, Field(max_length=64, description="End of the newest window in it, RFC 3339")
    ] = None


class DemandForecastStatus(ApiModel):
    """The newest forecast and how well earlier ones did."""

    observed_generation: ObservedGeneration = 0
    issued_at: Annotated[
        str | None, Field(max_length=64, description="When it was made, RFC 3339")
    ] = None
    data_until: Annotated[
        str | None, Field(max_length=64, description="End of the newest observation, RFC 3339")
    ] = None
    valid_until: Annotated[
        str | None, Field(max_length=64, description="Users fall back after this, RFC 3339")
    ] = None
    window_start: Annotated[
        str | None, Field(max_length=64, description="Start of the first step, RFC 3339")
    ] = None
    method: Annotated[
        str | None, Field(max_length=64, description="Forecaster that won the comparison")
    ] = None
    fallback: Annotated[
        bool | None, Field(description="True: last-24-h maximum plus offset, not a forecast")
    ] = None
    now: Annotated[float | None, Field(description="Latest observed value")] = None
    p50: Annotated[float | None, Field(description="Peak of the horizon, level 0.5")] = None
    p95: Annotated[float | None, Field(description="Peak of the horizon, level 0.95")] = None
    p99: Annotated[float | None, Field(description="Peak of the horizon, level 0.99")] = None
    running: Annotated[
        ForecastRunning | None,
        Field(
            description="Peak without work that may start on free boards, which p50 to p99 "
            "include; placement takes it. Absent: nobody told the boards"
        ),
    ] = None
    quantiles: Annotated[
        list[QuantilePath], Field(max_length=21, description="The paths, one a level")
    ] = []
    lead: Annotated[
        ForecastLead | None,
        Field(description="Start-up of what runs there, and what is needed until then"),
    ] = None
    replicas: Annotated[
        ReplicaNeed | None,
        Field(
            description="Replicas to have now, where spec.replicas asks and the forecast is ready"
        ),
    ] = None
    tokens: Annotated[
        ForecastTokens | None, Field(description="What the requests will be in tokens")
    ] = None
    coverage_p99: Annotated[
        Fraction | None,
        Field(description="Observed share below p99, windows gone through afterwards included"),
    ] = None
    coverage_n: Annotated[
        Counter | None, Field(description="Windows behind coverageP99, live or rehearsed")
    ] = None
    violations: Annotated[Counter | None, Field(description="Of coverageN, those above p99")] = None
    live_windows: Annotated[
        Counter | None,
        Field(
            description="Of coverageN, those of promises really made for this series; none overlap"
        ),
    ] = None
    live_violations: Annotated[
        Counter | None, Field(description="Of liveWindows, those above p99")
    ] = None
    live_violation_bound95: Annotated[
        Fraction | None,
        Field(
            description="Upper 95 % bound (Clopper-Pearson) of the share of live windows above p99"
        ),
    ] = None
    violation_bound95: Annotated[
        Fraction | None,
        Field(description="Upper 95 % bound (Clopper-Pearson) of the share above p99"),
    ] = None
    reserve_ratio: Annotated[
        float | None,
        Field(
            ge=0,
            description="Sum of promised p99 over sum of realised peaks, windows that were gone "
            "through afterwards included",
        ),
    ] = None
    live_reserve_ratio: Annotated[
        float | None,
        Field(ge=0, description="The same of live windows that are over"),
    ] = None
    tiers: Annotated[
        list[ForecastTier],
        Field(max_length=MAX_FORECAST_TIERS, description="What was combined, heaviest first"),
    ] = []
    model_version: Annotated[
        str | None,
        Field(
            max_length=128,
            description="Of models or of the fall-back: equal versions answer equally to equal "
            "histories",
        ),
    ] = None
    fitted_until: Annotated[
        str | None,
        Field(max_length=64, description="End of the data that it was fitted on, RFC 3339"),
    ] = None
    calibration: Annotated[
        ForecastCalibration | None, Field(description="State of the peaks' correction")
    ] = None
    flags: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(max_length=16, description="What a user should know about it, one word each"),
    ] = []
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
            PrintColumn("Lead", "number", ".status.lead.seconds", "Until a new replica works, s"),
            PrintColumn("Coverage", "number", ".status.coverageP99", "Observed share below p99"),
            PrintColumn("Live", "integer", ".status.liveWindows", "Of it, promises really made"),
            PrintColumn("Missed", "integer", ".status.liveViolations", "Of these, above p99"),
            READY,
            AGE,
        ),
    )
    spec: Annotated[DemandForecastSpec, Field(description="A series, a horizon and levels")]
    status: Annotated[DemandForecastStatus, Field(description="The newest forecast")] = (
        DemandForecastStatus()
    )
