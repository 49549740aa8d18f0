"""Whole scenarios that come with wattpack, beside the reference row.

Each is what its benchmark plays uncapped or under a policy (``polca_row``, ``training_fleet``), as
a file for the twin and the demo, where the product's own controller holds it. ``python -m
simulation.reference`` writes the files.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from simulation.inference_row.row_power import RATED_SERVERS, ServerPower
from simulation.inference_row.row_under_policy import polca_scenario
from simulation.inference_settings import InferenceRowSettings
from simulation.plant_constants import frozen_plant
from simulation.scenario import BatchSettings, Scenario, load_scenario
from simulation.training_fleet.fleet_row import fleet_scenario
from simulation.training_fleet.fleet_settings import FleetSettings
from wattpack.errors import InputError

SERVERS: Final = 52
"""On a breaker for 40: +30 %, as the published row was oversubscribed."""

FLEET_RATED_SERVERS: Final = 30.0
"""Of the same servers by nameplate, which a training fleet draws 0.45 of on average: about as few
as carry all boards at their lowest limits (I1), 28. Assumed."""


class Preset(NamedTuple):
    """One shipped scenario.

    Attributes:
        text: What runs, for people.
        values: What differs from the reference scenario, as in a file.
    """

    text: str
    values: Callable[[], dict[str, Any]]


def _inference_row() -> dict[str, Any]:
    row = polca_scenario(SERVERS, load_scenario().seed, ServerPower.of())
    return _values(
        row.model_copy(
            update={
                "name": "inference-row",
                "inference_row": InferenceRowSettings(lengths="azure"),
                "services": (),
                "training": (),
                "batch": BatchSettings(pods_per_hour=0.0, initial_pods=0),
            }
        )
    )


def _training_fleet() -> dict[str, Any]:
    fleet = fleet_scenario(SERVERS, load_scenario().seed, FleetSettings())
    row = fleet.row.model_copy(update={"rated_servers": FLEET_RATED_SERVERS})
    return _values(fleet.model_copy(update={"row": row}))


def _values(scenario: Scenario) -> dict[str, Any]:
    """Of a scenario, what the reference one does not say."""
    plain = load_scenario()
    plant = {
        name: value for name, value in scenario.plant if value != getattr(frozen_plant(), name)
    }
    keys = [
        name for name in Scenario.model_fields if getattr(scenario, name) != getattr(plain, name)
    ]
    said = scenario.model_dump(mode="json", exclude_defaults=True)
    return {name: plant if name == "plant" else said[name] for name in keys}


PRESETS: Final[dict[str, Preset]] = {
    "inference-row": Preset(
        f"{SERVERS} A100 servers that answer requests behind a breaker for {RATED_SERVERS}: "
        "POLCA's row, arrivals of its clients, lengths of Azure's requests",
        _inference_row,
    ),
    "training-fleet": Preset(
        f"{SERVERS} A100 servers of a training fleet as Acme's behind a breaker for "
        f"{FLEET_RATED_SERVERS:g}",
        _training_fleet,
    ),
}


def preset_file(name: str) -> Path:
    """The file of a preset.

    Raises:
        InputError: for a name that none has.
    """
    if name not in PRESETS:
        raise InputError("preset", f"one of {', '.join(sorted(PRESETS))}", name)
    folder = resources.files("simulation") / "data" / "scenarios"
    return Path(str(folder / f"{name.replace('-', '_')}.yaml"))
