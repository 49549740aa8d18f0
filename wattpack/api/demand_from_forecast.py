"""How a CapacityPlan takes its demand from a DemandForecast: amount and lengths."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from wattpack.api.forecast_subject import LEAST_RISK, MOST_RISK
from wattpack.api.object_meta import ApiModel, CelRule, Name

LARGEST: Final = 1e15
"""Beyond which a figure is a slip of the pen, not a plan."""

Positive = Annotated[float, Field(gt=0, le=LARGEST)]

TELLS_LENGTHS: Final = (
    "(has({0}.forecast) && has({0}.forecast.tellsOutputTokens) && {0}.forecast.tellsOutputTokens)"
)
"""In CEL: whether this part's forecast is asked for lengths."""


class DemandTail(ApiModel):
    """How much the windows of the highest losses count beside the mean of all (CVaR)."""

    level: Annotated[
        float,
        Field(ge=0, le=0.99, description="Worst windows are beyond it: at 0.9 a tenth"),
    ]
    weight: Annotated[
        float, Field(gt=0, le=1, description="Of their mean loss; what is left weighs that of all")
    ]


class DemandPrices(ApiModel):
    """What decides how much of an uncertain demand is bought for; any currency, any time."""

    capacity: Annotated[
        Positive, Field(description="Of GPUs for one request per second over that time")
    ]
    unserved: Annotated[
        Positive, Field(description="Of one request per second that is not served over it")
    ]
    tail: Annotated[
        DemandTail | None, Field(description="Fear the worst windows, too; unset: the mean counts")
    ] = None


class ForecastOfDemand(ApiModel):
    """Requests per second that a DemandForecast of this namespace expects."""

    name: Annotated[Name, Field(description="The DemandForecast, in requests per second")]
    level: Annotated[
        Literal["p50", "p95", "p99"],
        Field(description="Quantile of its window's peak that is planned for, else told below"),
    ] = "p95"
    risk: Annotated[
        float | None,
        Field(
            ge=LEAST_RISK,
            le=MOST_RISK,
            description="Share of windows whose peak may be above the plan's",
        ),
    ] = None
    prices: Annotated[
        DemandPrices | None,
        Field(description="Plan for the peak at which one GPU more costs what it serves"),
    ] = None
    tells_output_tokens: Annotated[
        bool,
        Field(
            description="Of a bucket: plan for answers of status.tokens.mean, for outputTokens "
            "until it is told; anew when it moves by 5 %"
        ),
    ] = False

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule("!(has(self.risk) && has(self.prices))", "prices: none beside risk"),
    )

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if self.risk is not None and self.prices is not None:
            raise ValueError("prices: none beside risk")
        return self

    @property
    def mark(self) -> str:
        """Alike for demands that are taken from a forecast in the same way."""
        if self.prices is not None:
            tail = self.prices.tail
            told = "" if tail is None else f" tail {tail.level:g} {tail.weight:g}"
            return f"prices {self.prices.capacity:g} {self.prices.unserved:g}{told}"
        return self.level if self.risk is None else f"risk {self.risk:g}"
