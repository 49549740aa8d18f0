"""Integers of a snapshot, each with the most that is no mistake of units."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from scheduler_plugin.documents.snapshot_limits import MAX_GPUS

MILLI_PER_GPU: Final = 1000

#: Far above any real node, far below where sums of 200,000 items leave 64 bits.
MAX_QUANTITY: Final = 2**45
Quantity = Annotated[int, Field(ge=0, le=MAX_QUANTITY)]
#: As in core/v1: a name of 63 characters behind a domain of 253.
ResourceName = Annotated[str, Field(min_length=1, max_length=317)]
GpuMilli = Annotated[int, Field(ge=0, le=MAX_GPUS * MILLI_PER_GPU)]
#: Twenty kilowatts on one GPU is a figure in milliwatts, or of a whole node.
GpuWatts = Annotated[int, Field(ge=0, le=20_000)]
WattsInt = Annotated[int, Field(ge=0, le=10**9)]
#: What a placement is worth beside others, per GPU; sums of 200,000 pods stay below 64 bits.
GpuValue = Annotated[int, Field(ge=0, le=10**6)]
#: Thousandths of the fastest class.
CpuValue = Annotated[int, Field(ge=0, le=1000)]
SlowDownMilli = Annotated[int, Field(ge=0, le=100_000)]
