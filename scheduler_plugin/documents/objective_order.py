"""What makes plans that place as much better than one another, and what counts first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, ValidationError

from scheduler_plugin.documents.value import Value
from scheduler_plugin.documents.value_json import named_error

__all__ = ["DEFAULT_ORDER", "ObjectiveOrder", "ObjectiveStage", "objective_order"]


class ObjectiveStage(StrEnum):
    """One thing that plans are compared by, behind power and placed value, which stay first."""

    DISRUPTION = "disruption"
    FRAGMENTATION = "fragmentation"
    WORTH = "worth"
    PREFERENCE = "preference"
    WATTS = "watts"
    COST = "cost"
    CARBON = "carbon"


DEFAULT_ORDER: Final = (
    ObjectiveStage.DISRUPTION,
    ObjectiveStage.WORTH,
    ObjectiveStage.PREFERENCE,
    ObjectiveStage.FRAGMENTATION,
    ObjectiveStage.WATTS,
)
"""Worth only counts where pods name speeds. Behind fragmentation, max-min shares on Gavel's table
reached 0.987, 0.989 and 0.984 of the optimum (``heterogeneity``'s rounds, seeds 101 to 103), before
it 0.986 and 0.992 (101, 102), as without fragmentation (0.985 on 103)."""


def _in_order(stages: tuple[ObjectiveStage, ...]) -> tuple[ObjectiveStage, ...]:
    twice = [stage.value for stage, count in Counter(stages).items() if count > 1]
    if twice:
        raise ValueError(f"every stage once, not {', '.join(twice)} twice")
    if ObjectiveStage.DISRUPTION not in stages:
        raise ValueError("disruption among the stages, since moves would cost nothing without it")
    return stages


ObjectiveOrder = Annotated[tuple[ObjectiveStage, ...], AfterValidator(_in_order)]
"""Stages, the one that counts first first; what is not named does not count."""


class _Named(Value):
    objective: ObjectiveOrder


def objective_order(names: Sequence[str], source: str = "") -> tuple[ObjectiveStage, ...]:
    """Stages by their names.

    Raises:
        InputError: for an unknown name, one that is there twice, or none for moves.
    """
    try:
        return _Named.model_validate({"objective": names}, strict=False).objective
    except ValidationError as error:
        raise named_error(error, source) from error
