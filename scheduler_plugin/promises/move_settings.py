"""How much placement may disturb what runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattpack.settings import Settings

__all__ = ["MoveSettings"]


class MoveSettings(Settings):
    """Limits of moves and evictions; all figures but the switch are assumed.

    Attributes:
        enabled: Whether running pods that opted in may be moved or evicted for waiting ones.
        per_hour: Most pods of the cluster that are evicted within any hour of wall-clock time.
        per_owner_per_hour: The same of one owner (its Deployment's ReplicaSet, its StatefulSet).
        at_once: Most evicted pods that are not gone yet, or whose successors have no place yet.
        after_seconds: A pod waits for room so long before others are disturbed for it.
        timeout_seconds: What cannot be carried out by then is given up; longer than any grace
            period of a pod that is moved.
        successor_seconds: How long a place is kept for a successor once the old pod has had its
            grace period.
    """

    enabled: bool = False
    per_hour: Annotated[int, Field(ge=0, le=10_000)] = 20
    per_owner_per_hour: Annotated[int, Field(ge=0, le=1000)] = 2
    at_once: Annotated[int, Field(ge=1, le=100)] = 4
    after_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    timeout_seconds: Annotated[float, Field(ge=30, le=3600)] = 600.0
    successor_seconds: Annotated[float, Field(ge=10, le=3600)] = 60.0
