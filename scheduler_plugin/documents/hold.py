"""Room that is kept for work which waited longer than its patience (ADR 41)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from scheduler_plugin.documents.snapshot_amounts import WattsInt
from scheduler_plugin.documents.snapshot_limits import MAX_NODES
from scheduler_plugin.documents.value import Id, Value

__all__ = ["Hold"]


class Hold(Value):
    """What pods of this priority and below leave alone, the held work itself excepted.

    Names that the snapshot does not have hold nothing: neither a hold for work of which it has no
    pod, nor nodes and domains that are not there. Times are told and not judged, since a snapshot
    has no clock: who writes one leaves out what is over.

    Attributes:
        work: Id of a gang, or uid of a pod without one; without a pod of it nothing is held.
        priority: Of the work; who is more important is not concerned.
        nodes: That take none of the others, whole, whatever these ask for.
        watts: By power domain, AC: what the work will add there. The others may take what the
            domain has left beyond that.
        since_unix_seconds: When this turn began; for messages.
        until_unix_seconds: When it ends at the latest; for messages, holds beyond it count too.
    """

    work: Id
    priority: Annotated[int, Field(ge=-(2**31), le=2**31)] = 0
    nodes: Annotated[tuple[Id, ...], Field(max_length=MAX_NODES)] = ()
    watts: dict[Id, WattsInt] = Field(default_factory=dict)
    since_unix_seconds: Annotated[int, Field(ge=0, le=2**40)] = 0
    until_unix_seconds: Annotated[int, Field(ge=0, le=2**40)] = 0

    @field_validator("nodes")
    @classmethod
    def _sorted(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))

    @field_validator("watts")
    @classmethod
    def _in_order(cls, value: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(value.items()))

    def is_for(self, uid: str, gang: str) -> bool:
        """Whether a pod is (part of) the held work."""
        return self.work == (gang or uid)
