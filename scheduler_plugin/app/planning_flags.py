"""What commands that plan compare plans by: flags, or the file of the scheduler's settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.documents.objective_order import (
    DEFAULT_ORDER,
    ObjectiveStage,
    objective_order,
)
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.policy_values import (
    PolicyChoice,
    ThroughputPolicy,
    with_policy_values,
)
from scheduler_plugin.packing.priced_nodes import ObjectiveChoice, with_objective
from wattpack.errors import InputError

__all__ = [
    "OBJECTIVE_HELP",
    "RISK_HELP",
    "PlanningChoice",
    "add_planning_flags",
    "chosen",
    "figures",
    "stage_names",
]

OBJECTIVE_HELP: Final = (
    "what plans that place as much are compared by, in this order, of "
    f"{', '.join(stage.value for stage in ObjectiveStage)}; default "
    f"{','.join(stage.value for stage in DEFAULT_ORDER)}"
)

RISK_HELP: Final = (
    "share of windows, 0.01 to 0.5, whose peak may be above what is counted on, for pods of a "
    "priority below each (of a cluster); default 0.01 for all"
)


@dataclass(frozen=True, slots=True)
class PlanningChoice:
    """How plans are to be made.

    Attributes:
        settings: Of the scheduler.
        order: Of the objective's stages; None for what the snapshot says.
    """

    settings: PlacementSettings
    order: tuple[ObjectiveStage, ...] | None

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the objective, prices, carbon and the policy's values.

        Raises:
            InputError: for a stage without a figure on any node.
        """
        policy = PolicyChoice(self.settings.policy, self.settings.gpu_prices)
        objective = ObjectiveChoice(
            self.order, self.settings.gpu_prices, self.settings.carbon_grams_per_kwh
        )
        made = with_objective(with_policy_values(snapshot, policy), objective)
        for stage, (field, flag) in _FIGURES.items():
            if stage in made.objective and not any(getattr(n, field) for n in made.nodes):
                expected = f"with stage {stage.value} {field} of at least one node, or {flag}"
                raise InputError("objective", expected, [each.value for each in made.objective])
        return made


def add_planning_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that ``chosen`` reads."""
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="the scheduler's settings, to plan as it would: its objective, policy and figures, "
        "and of a cluster its cap levels, peaks and links; flags win",
    )
    add("--objective", type=stage_names, metavar="STAGE,…", help=OBJECTIVE_HELP)
    add(
        "--policy",
        choices=[policy.value for policy in ThroughputPolicy],
        help="which GPU models waiting work with speeds gets; default none, each by its own",
    )
    add(
        "--gpu-prices",
        type=figures(float),
        metavar="MODEL=PRICE,…",
        help="an hour of one GPU, for stage or policy cost",
    )
    add(
        "--carbon-grams-per-kwh",
        type=figures(int),
        metavar="DOMAIN=GRAMS,…",
        help="of energy by power domain, for stage carbon",
    )


def chosen(arguments: argparse.Namespace) -> PlanningChoice:
    """What was given.

    Raises:
        InputError: naming the file or flag that gave something wrong.
    """
    settings = PlacementSettings.load(
        file=arguments.config,
        environment={},
        flags={name: getattr(arguments, name, None) for name in _FLAGS},
    )
    if arguments.objective is not None:
        return PlanningChoice(settings, _order(arguments.objective))
    given = "objective" in settings.model_fields_set
    return PlanningChoice(settings, settings.objective if given else None)


def _order(names: list[str]) -> tuple[ObjectiveStage, ...]:
    try:
        return objective_order(names)
    except InputError as error:
        raise InputError("--objective", error.expected, ",".join(names)) from error


def stage_names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",")]


def figures(number: Callable[[str], float]) -> Callable[[str], dict[str, float]]:
    """Reads names and their numbers."""

    def read(text: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for part in text.split(","):
            name, equals, figure = part.strip().rpartition("=")
            try:
                value = number(figure)
            except ValueError:
                equals = ""
            if not name or not equals or name in found:
                expected = "NAME=NUMBER between commas, each name once"
                raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
            found[name] = value
        return found

    return read


_FLAGS: Final[Sequence[str]] = (
    "policy",
    "gpu_prices",
    "carbon_grams_per_kwh",
    "risk_below_priority",
)
_FIGURES: Final = {
    ObjectiveStage.COST: ("gpu_hour_cost_milli", "--gpu-prices"),
    ObjectiveStage.CARBON: ("carbon_grams_per_kwh", "--carbon-grams-per-kwh"),
}
