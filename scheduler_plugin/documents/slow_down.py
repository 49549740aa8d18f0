"""Measured pairs of kinds of work on one board."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scheduler_plugin.documents.value import Id, Label, Value

__all__ = ["SlowDown"]


class SlowDown(Value):
    """What one kind of work suffers beside another on one board, by measured pairs.

    Attributes:
        slow_down_milli: Time over time alone, in thousandths.
    """

    gpu_model: Label
    work: Id
    beside: Id
    slow_down_milli: Annotated[int, Field(ge=1000, le=100_000)]
