"""Replicas of what a DemandForecast is about: what they are kept for, and how many to have."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self, cast

from pydantic import Field, model_validator

from wattpack.api.forecast_subject import LEAST_RISK, MOST_RISK
from wattpack.api.object_meta import ApiModel, CelRule, Counter, Fraction

MOST_LOWERINGS = 40
"""Of a count in any hour. Without a hold the minutes of ServeGen's totals lowered it 32 times in
their busiest hour, with the default hold 20 times (days 7-11), so that it binds for nobody who is
not flapping."""


class ReplicaRule(ApiModel):
    """What replicas of the target are kept for."""

    rate: Annotated[
        float | None,
        Field(gt=0, le=1e15, description="Served by one within its objectives, series' unit"),
    ] = None
    token_rate: Annotated[
        float | None,
        Field(
            gt=0,
            le=1e15,
            description="In place of rate: tokens a second, as spec.tokens counts them",
        ),
    ] = None
    risk: Annotated[
        float | None,
        Field(
            ge=LEAST_RISK,
            le=MOST_RISK,
            description="Share of windows that may be short; without a price 0.05",
        ),
    ] = None
    violation_price: Annotated[
        float | None,
        Field(
            gt=0,
            le=1e9,
            description="Replica windows that one short window is worth; by minutes: minutes",
        ),
    ] = None
    start_seconds: Annotated[
        float | None,
        Field(
            ge=0,
            le=7 * 86400,
            description="Until a new one works; default: what runs there, else 341 s",
        ),
    ] = None
    least: Annotated[int, Field(ge=0, le=10_000, description="That always run")] = 1
    most: Annotated[int, Field(ge=0, le=10_000, description="That there is room for")] = 10_000
    hold_seconds: Annotated[
        float | None,
        Field(
            ge=0,
            le=86400,
            description="Fewer only after so long; more at once. Default 1800, by minutes 480",
        ),
    ] = None
    most_lowerings: Annotated[
        int,
        Field(ge=1, le=3600, description="Fewer at most so often in any hour; more at any time"),
    ] = MOST_LOWERINGS
    wait_seconds: Annotated[
        float, Field(ge=0, le=3600, description="By minutes: wait that is within the objective")
    ] = 10.0
    queue_series: Annotated[
        str | None,
        Field(min_length=1, max_length=4096, description="By minutes: requests that wait"),
    ] = None
    clear_seconds: Annotated[
        float, Field(gt=0, le=3600, description="By minutes: in which they are worked off")
    ] = 60.0
    keep_ratio: Annotated[
        float,
        Field(ge=1, le=100, description="By minutes: price to keep one over price to order it"),
    ] = 2.0

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule("has(self.rate) != has(self.tokenRate)", "rate or tokenRate, one of both"),
        CelRule(
            "!(has(self.risk) && has(self.violationPrice))", "violationPrice: none beside risk"
        ),
        CelRule(
            "!has(self.most) || (has(self.least) ? self.least : 1) <= self.most",
            "most: at least the value of least",
        ),
    )

    @model_validator(mode="after")
    def _one_rate_one_goal_and_bounds_in_order(self) -> Self:
        if (self.rate is None) == (self.token_rate is None):
            raise ValueError("rate or tokenRate, one of both")
        if self.risk is not None and self.violation_price is not None:
            raise ValueError("violationPrice: none beside risk")
        if self.least > self.most:
            raise ValueError("most: at least the value of least")
        return self

    @property
    def served(self) -> float:
        """By one replica, a second: tokens where ``token_rate`` says so, else the series' unit."""
        # The rule has one of both.
        return cast("float", self.rate or self.token_rate)


class ReplicaNeed(ApiModel):
    """Replicas that the target should have now, started ones included."""

    count: Annotated[Counter, Field(description="For HPA or KEDA to follow")]
    within_seconds: Annotated[
        float, Field(ge=0, description="What is needed so soon later orders could not serve")
    ]
    short_risk: Annotated[
        Fraction | None, Field(description="Share of windows in which so many would be short")
    ] = None
    reason: Annotated[str, Field(max_length=512, description="With the figures")] = ""
    lowerings: Annotated[
        Counter, Field(description="Times that it was lowered in the hour until loweredAt")
    ] = 0
    lowered_at: Annotated[
        str | None, Field(max_length=64, description="When it last was, RFC 3339")
    ] = None
