"""What a PowerDomain says of its breaker and its feeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from wattpack.api.object_meta import ApiModel, CelRule

__all__ = ["BreakerSpec", "CurvePoint", "FeedShareSpec", "Redundancy"]


class CurvePoint(ApiModel):
    """One point of a breaker's hot trip curve."""

    load_ratio: Annotated[float, Field(gt=1, le=20, description="Load over trip rating")]
    trip_seconds: Annotated[
        float, Field(gt=0, le=1e6, description="Lower tolerance edge of the hot curve, seconds")
    ]


_POINTS_FIT = "points: at least one with curve Points, none with a named curve"
_HEAT_BUDGET_NEEDS = (
    "heatBudgetRatio: 0 unless hundredPercentRated and curve Points are given, since a published "
    "fit is no site's curve"
)
_COLD_POINTS = "thermalColdCurve: false unless curve is Points, since named curves are hot ones"
# 1 / 0.8: I2 lets load jump to 0.8 of the pick-up (r_max of wattpack.power.power_grid).
_LEAST_PICKUP_RATIO = 1.25
_PICKUP_BEARS_THE_RATING = (
    f"shortTimePickupRatio: at least {_LEAST_PICKUP_RATIO}, since load may jump to 0.8 of the "
    "pick-up, and the rating must not lie above that"
)
_FEWER_THAN_FEEDS = "requiredFeeds: fewer than feeds with KofN"
_RISE_AND_FALL = "{}: rising loadRatio and falling tripSeconds"


def _rises_and_falls(field: str) -> CelRule:
    """A curve's points stand in one order."""
    points = f"self.{field}"
    return CelRule(
        f"!has({points}) || ({points}.map(p, p.loadRatio).isSorted()"
        f" && {points}.all(p, {points}.exists_one(q, q.loadRatio == p.loadRatio))"
        f" && {points}.all(p, {points}.all(q,"
        " p.loadRatio >= q.loadRatio || p.tripSeconds > q.tripSeconds)))",
        _RISE_AND_FALL.format(field),
    )


def _require_rise_and_fall(field: str, points: Sequence[CurvePoint]) -> None:
    pairs = [(p.load_ratio, p.trip_seconds) for p in points]
    if any(a[0] >= b[0] or a[1] <= b[1] for a, b in pairwise(pairs)):
        raise ValueError(_RISE_AND_FALL.format(field))


class BreakerSpec(ApiModel):
    """The breaker that must not trip. Either a published curve by name or points."""

    curve: Annotated[
        Literal["RackThermal", "SwitchboardThermal", "Points"],
        Field(description="RackThermal and SwitchboardThermal are the two published fits"),
    ] = "RackThermal"
    points: Annotated[
        list[CurvePoint],
        Field(
            max_length=32,
            description="The curve, rising in loadRatio; only with curve Points; what lies beyond "
            "the last counts as borne for no time",
        ),
    ] = []
    thermal_cold_curve: Annotated[
        bool,
        Field(
            description="The points are of a cold breaker: times count a quarter. Only with curve "
            "Points"
        ),
    ] = False
    short_time_pickup_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=20,
            description="Lowest short-time or magnetic pick-up over rating. At least "
            f"{_LEAST_PICKUP_RATIO}: load may jump to 0.8 of it",
        ),
    ] = 5.0
    cooling_seconds: Annotated[
        float, Field(gt=0, le=1e5, description="Time constant of cooling below rating, seconds")
    ] = 600.0
    hundred_percent_rated: Annotated[
        bool, Field(description="Listed for continuous load at 100 % of its rating, not at 80 %")
    ] = False
    heat_budget_ratio: Annotated[
        float,
        Field(
            ge=0,
            le=0.2,
            description="Heat that load may bring the breaker to while caps react, 1 = trip; the "
            "bands follow from it (0: none). Needs hundredPercentRated and a site's own points",
        ),
    ] = 0.0

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(self.curve == 'Points') == (has(self.points) && self.points.size() > 0)",
            _POINTS_FIT,
        ),
        _rises_and_falls("points"),
        CelRule(
            "!has(self.thermalColdCurve) || !self.thermalColdCurve || self.curve == 'Points'",
            _COLD_POINTS,
        ),
        CelRule(
            "!has(self.heatBudgetRatio) || self.heatBudgetRatio == 0.0 || (self.curve == 'Points'"
            " && has(self.hundredPercentRated) && self.hundredPercentRated)",
            _HEAT_BUDGET_NEEDS,
        ),
        CelRule(
            "!has(self.shortTimePickupRatio)"
            f" || self.shortTimePickupRatio >= {_LEAST_PICKUP_RATIO}",
            _PICKUP_BEARS_THE_RATING,
        ),
    )

    @model_validator(mode="after")
    def _points_fit_the_curve(self) -> Self:
        if (self.curve == "Points") != bool(self.points):
            raise ValueError(_POINTS_FIT)
        _require_rise_and_fall("points", self.points)
        if self.thermal_cold_curve and self.curve != "Points":
            raise ValueError(_COLD_POINTS)
        return self

    @model_validator(mode="after")
    def _a_jump_may_reach_the_rating(self) -> Self:
        if self.short_time_pickup_ratio < _LEAST_PICKUP_RATIO:
            raise ValueError(_PICKUP_BEARS_THE_RATING)
        return self

    @model_validator(mode="after")
    def _heat_budget_has_its_curve(self) -> Self:
        declared = self.hundred_percent_rated and self.curve == "Points"
        if self.heat_budget_ratio > 0.0 and not declared:
            raise ValueError(_HEAT_BUDGET_NEEDS)
        return self


class FeedShareSpec(ApiModel):
    """Where it is read how unevenly the feeds carry: so a lost feed is seen."""

    prometheus_query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="PromQL of one series: the busiest feed's share of the domain's load, 0 to "
            "1, of one moment, for example max(feed_watts) / sum(feed_watts) and on() (time() - "
            "min(timestamp(feed_watts)) <= 3): only a plain series tells its age by itself",
        ),
    ]
    max_age_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=5,
            description="Older readings count as a lost feed, seconds; the load that the reserve "
            "may carry is what the curves bear for that long and the reaction",
        ),
    ] = 3.0


_RESERVE_NEEDS = (
    "useReserve: false unless there are mode 2N or KofN, overloadCurve (what a feed's UPS and "
    "transformer bear) and feedShare (how a lost feed is seen)"
)


class Redundancy(ApiModel):
    """How the domain is fed; limits hold after every loss of feeds that it declares."""

    mode: Annotated[
        Literal["None", "2N", "KofN"],
        Field(
            description="None: one feed, rated ratingWatts; 2N: either of two carries all, rated "
            "ratingWatts; KofN: any k of N carry all, N - k may be lost, rated k * ratingWatts"
        ),
    ] = "None"
    feeds: Annotated[
        int, Field(ge=1, le=16, description="N for KofN; without meaning for 2N (2) and None (1)")
    ] = 1
    required_feeds: Annotated[
        int, Field(ge=1, le=16, description="k for KofN: the feeds that must be left")
    ] = 1
    use_reserve: Annotated[
        bool,
        Field(
            description="Load may use all feeds while all carry; after a loss it is shed to what "
            "the required ones carry, which overloadCurve has to bear for so long"
        ),
    ] = False
    overload_curve: Annotated[
        list[CurvePoint],
        Field(
            max_length=32,
            description="What UPS, generator and transformer of a feed bear: load over "
            "ratingWatts, seconds from full load on; rising in loadRatio; nothing is borne beyond "
            "the last. Bounds what a jump may reach (I2), also without useReserve",
        ),
    ] = []
    feed_share: Annotated[
        FeedShareSpec | None,
        Field(description="How a lost feed is seen: needed with useReserve, not read without"),
    ] = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.mode != 'KofN' || self.requiredFeeds < self.feeds",
            _FEWER_THAN_FEEDS,
        ),
        _rises_and_falls("overloadCurve"),
        CelRule(
            "!has(self.useReserve) || !self.useReserve || (has(self.mode) && self.mode != 'None'"
            " && has(self.overloadCurve) && self.overloadCurve.size() > 0 && has(self.feedShare))",
            _RESERVE_NEEDS,
        ),
    )

    @model_validator(mode="after")
    def _counts_fit_the_mode(self) -> Self:
        if self.mode == "KofN" and not self.required_feeds < self.feeds:
            raise ValueError(_FEWER_THAN_FEEDS)
        return self

    @model_validator(mode="after")
    def _reserve_is_declared(self) -> Self:
        _require_rise_and_fall("overloadCurve", self.overload_curve)
        declared = self.mode != "None" and self.overload_curve and self.feed_share is not None
        if self.use_reserve and not declared:
            raise ValueError(_RESERVE_NEEDS)
        return self
