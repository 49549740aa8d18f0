"""The power tree of a snapshot."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scheduler_plugin.documents.snapshot_amounts import WattsInt
from scheduler_plugin.documents.value import Id, Label, Value

__all__ = ["PowerDomain"]


class PowerDomain(Value):
    """One node of the power tree.

    Attributes:
        limit_watts: The upper edge of the cap band.
        used_watts: Forecast p99 (or the worst, without a forecast) of everything that is bound.
        guaranteed_margin_watts: What I1 leaves; negative means that nothing may be added.
    """

    name: Id
    parent: Label = ""
    limit_watts: WattsInt
    used_watts: WattsInt = 0
    guaranteed_margin_watts: Annotated[int, Field(ge=-(10**9), le=10**9)] = 0
