"""A power cap that plans may count a kind of work at, as a value of snapshots."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CapMilli", "CapOption"]

#: Of a board's default limit, thousandths.
CapMilli = Annotated[int, Field(ge=0, le=1000)]
_Name = Annotated[str, Field(min_length=1, max_length=640)]


class CapOption(BaseModel):
    """One cap below the default limit, for one kernel class on one GPU model.

    Attributes:
        cap_watts: Of the board.
        cap_milli: The same in thousandths of the board's default limit, rounded down: a pod that
            keeps more than that is never counted at this cap.
        watts_milli: What the work adds at the cap, thousandths of what it adds without one.
        speed_milli: Its speed at the cap, thousandths of its speed without.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    gpu_model: _Name
    kernel_class: _Name
    cap_watts: Annotated[int, Field(ge=1, le=20_000)]
    cap_milli: Annotated[int, Field(ge=0, le=999)]
    watts_milli: Annotated[int, Field(ge=0, le=1000)]
    speed_milli: Annotated[int, Field(ge=1, le=1000)]
