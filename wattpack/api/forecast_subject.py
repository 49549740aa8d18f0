"""What a DemandForecast is about: a series, and what goes with it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from wattpack.api.object_meta import ApiModel, CelRule, Name

MAX_FORECAST_LOADS = 16

LEAST_RISK = 0.01
"""What nobody's setting goes below: beyond the p99 nothing is published."""

MOST_RISK = 0.5
"""Of the median."""

#: Units in which a domain's forecast is taken; one in kW would read as a thousandth.
WATT_UNITS = ("watts", "W")


class ForecastTarget(ApiModel):
    """What is forecast: a domain's power, a workload's power, or any query."""

    power_domain: Annotated[Name | None, Field(description="A PowerDomain by name")] = None
    workload: Annotated[
        str | None, Field(max_length=253, description="A workload of this namespace by name")
    ] = None
    series: Annotated[
        str,
        Field(min_length=1, max_length=4096, description="Series name in the history, or PromQL"),
    ]
    unit: Annotated[str, Field(max_length=64, description="Unit of the series")] = "watts"

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!(has(self.powerDomain) && has(self.workload))", "workload: none beside powerDomain"
        ),
        CelRule(
            "!has(self.powerDomain) || self.unit == 'watts' || self.unit == 'W'",
            "unit: watts or W, since the series is of a powerDomain",
        ),
    )

    @model_validator(mode="after")
    def _one_target_and_a_domain_in_watts(self) -> Self:
        if self.power_domain is not None and self.workload is not None:
            raise ValueError("workload: none beside powerDomain")
        if self.power_domain is not None and self.unit not in WATT_UNITS:
            raise ValueError("unit: watts or W, since the series is of a powerDomain")
        return self


class ForecastLoad(ApiModel):
    """A load whose power the capacity model tells."""

    series: Annotated[
        str,
        Field(min_length=1, max_length=4096, description="Requests or tokens a second, as series"),
    ]
    workload: Annotated[
        str, Field(min_length=1, max_length=253, description="Of the domain's pods that serve it")
    ]
    per_board: Annotated[
        float,
        Field(gt=0, le=1e15, description="What one board serves at its default limit, same unit"),
    ]


class ForecastTokenLengths(ApiModel):
    """How long requests are: tokens of the same requests, as series."""

    series: Annotated[
        str, Field(min_length=1, max_length=4096, description="Tokens a second of these requests")
    ]
    p99_series: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=4096,
            description="Tokens that one request in 100 exceeds; unset: told by how means stray",
        ),
    ] = None
    second_moment_series: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=4096,
            description="Mean of the squared length, as imported traces have it; unset: told by "
            "the p99, or by how means stray",
        ),
    ] = None


class ForecastTokens(ApiModel):
    """Tokens that the requests will be; lengths are of the last hours."""

    mean: Annotated[float, Field(ge=0, description="Of one request")]
    second_moment: Annotated[float, Field(ge=0, description="Mean of one request's square")]
    request_p99: Annotated[float, Field(ge=0, description="That one request in 100 exceeds")]
    p50: Annotated[float, Field(ge=0, description="Highest step, tokens a second, level 0.5")]
    p95: Annotated[float, Field(ge=0, description="Highest step, tokens a second, level 0.95")]
    p99: Annotated[float, Field(ge=0, description="Highest step, tokens a second, level 0.99")]
    lengths_until: Annotated[
        str | None,
        Field(max_length=64, description="End of the newest bin that told lengths, RFC 3339"),
    ] = None
