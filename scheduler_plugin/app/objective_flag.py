"""The flag that says in which order plans are compared, for every command that plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler_plugin.documents.objective_order import (
    DEFAULT_ORDER,
    ObjectiveStage,
    objective_order,
)
from scheduler_plugin.documents.snapshot import Snapshot
from wattpack.errors import InputError

__all__ = ["OBJECTIVE_HELP", "in_order", "stage_names"]

OBJECTIVE_HELP: Final = (
    "what plans that place as much are compared by, in this order, of "
    f"{', '.join(stage.value for stage in ObjectiveStage)}; default "
    f"{','.join(stage.value for stage in DEFAULT_ORDER)}"
)


def stage_names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",")]


def in_order(snapshot: Snapshot, names: Sequence[str] | None) -> Snapshot:
    """The snapshot with plans compared in that order; None for the order that it has.

    Raises:
        InputError: for names that are no order, or a stage without a figure on any node.
    """
    if names is not None:
        snapshot = snapshot.model_copy(update={"objective": objective_order(names, "--objective")})
    for stage, field in _FIGURES.items():
        if stage in snapshot.objective and not any(getattr(n, field) for n in snapshot.nodes):
            expected = f"{field} of at least one node with stage {stage.value}"
            raise InputError("objective", expected, list(snapshot.objective))
    return snapshot


_FIGURES: Final = {
    ObjectiveStage.COST: "gpu_hour_cost_milli",
    ObjectiveStage.CARBON: "carbon_grams_per_kwh",
}
