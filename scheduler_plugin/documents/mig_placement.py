"""Where a MIG instance is on its node."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scheduler_plugin.documents.snapshot_limits import MAX_GPUS
from scheduler_plugin.documents.value import Value

__all__ = ["MAX_INSTANCES", "BoardNumber", "MigPlacement"]

#: Every board of the largest server cut into as many as possible, for one pod.
MAX_INSTANCES = 112
BoardNumber = Annotated[int, Field(ge=0, lt=MAX_GPUS)]


class MigPlacement(Value):
    """A MIG instance on a board of its node, from which memory slice on."""

    profile: Annotated[str, Field(max_length=64)]
    board: BoardNumber
    start: Annotated[int, Field(ge=0, le=7)]
