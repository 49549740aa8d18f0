"""What a training fleet is made of; each number is one that an operator of such a fleet knows."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from wattpack.settings import Settings

Share = Annotated[float, Field(ge=0, le=1)]
Hours = Annotated[float, Field(gt=0, le=1000)]


class FleetSettings(Settings):
    """What runs on a training fleet; the defaults were fitted to Acme's (docs/simulation.md)."""

    spare_share: Annotated[
        float, Field(ge=0, le=0.9, description="Servers that run nothing: spare, failed, cordoned")
    ] = 0.16
    gang_share: Annotated[
        float,
        Field(ge=0, le=0.9, description="Servers that are reserved for gangs of whole servers"),
    ] = 0.44
    gang_gap_share: Annotated[
        float, Field(ge=0, le=0.9, description="Time that reserved servers are free between gangs")
    ] = 0.05
    gang_hours: Annotated[Hours, Field(description="Median length of a gang's job, log-normal")] = (
        6.0
    )
    gang_level_lowest: Annotated[
        Share, Field(description="What the coolest gang wants of a board, over its limit")
    ] = 0.73
    gang_level_highest: Annotated[
        float, Field(gt=0, le=1.33, description="The hottest gang; above 1 the limit holds it")
    ] = 1.04
    gang_stall_share: Annotated[
        Share, Field(description="Time that a gang waits: checkpoints, data, restarts, evaluation")
    ] = 0.07
    gang_stall_minutes: Annotated[
        float, Field(gt=0, le=600, description="Mean length of one such wait")
    ] = 6.0
    small_load: Annotated[
        float,
        Field(gt=0, le=3, description="GPUs that other jobs ask for over GPUs there are for them"),
    ] = 0.85
    small_hours: Annotated[
        Hours, Field(description="Median length of a job inside a server, log-normal")
    ] = 1.0
    small_active_share: Annotated[
        Share,
        Field(description="Time that such a job computes; else it waits and holds its boards"),
    ] = 0.55
    small_active_minutes: Annotated[
        float, Field(gt=0, le=600, description="Mean length of a stretch of computing")
    ] = 8.0
    small_level_lowest: Annotated[
        Share, Field(description="What the coolest such job wants computing; the hottest: 1")
    ] = 0.7
    small_gpus: Annotated[
        tuple[Share, Share, Share, Share],
        Field(description="Shares of jobs inside a server that have 1, 2, 4 and 8 GPUs"),
    ] = (0.55, 0.15, 0.15, 0.15)
    waiting_level: Annotated[
        Share, Field(description="Draw of a board that a waiting job holds, over the limit")
    ] = 0.235
    day_ratio: Annotated[
        Share, Field(description="Arrivals of small jobs: deviation from the mean by day and night")
    ] = 0.4
    hours_sigma: Annotated[
        float, Field(gt=0, le=3, description="Standard deviation of the logarithm of lengths")
    ] = 1.2

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.spare_share + self.gang_share > 1.0:
            raise ValueError("spare_share and gang_share exceed 1 together")
        if self.gang_level_lowest > self.gang_level_highest:
            raise ValueError("gang_level_lowest exceeds gang_level_highest")
        if abs(sum(self.small_gpus) - 1.0) > 1e-6:
            raise ValueError("small_gpus do not sum to 1")
        return self
