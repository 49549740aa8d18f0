"""What a planning loop finds around it, and what one of its cycles did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scheduler_plugin.app.solver_process import Planner
from scheduler_plugin.documents.plan_document import Plan
from wattpack.clock import Clock


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What one step did.

    Attributes:
        outcome: idle (nobody waits), unchanged (the same question as before, which placed
            nothing), planned or failed (inputs were unusable, or the checker refused every plan;
            everything stays as it is).
        plan: The plan, if one was made.
        released: Node by pod key (``namespace/name``) of pods released now.
        pending: Reason and message by pod key.
        again_ns: When to step again although nothing changed, on the monotonic clock.
    """

    outcome: Literal["idle", "unchanged", "planned", "failed"]
    plan: Plan | None = None
    released: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    again_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PlannerSurroundings:
    """What a planning loop finds around it, whatever the term.

    Attributes:
        clock: Time.
        planner: Turns snapshots into plans.
        instance: Name of this process, for Events.
        threaded: Whether informers run in their own threads (see ``ClusterReader.start``).
    """

    clock: Clock
    planner: Planner
    instance: str = "wattpack-scheduler"
    threaded: bool = False
