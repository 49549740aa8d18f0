"""What a result names of the row it was played on: declared trip curves, and the plant."""

from __future__ import annotations

from simulation.plant_hash import plant_sha256
from simulation.row_objects import domain_objects
from simulation.scenario import Scenario

__all__ = ["breaker_curves", "row_marks"]


def breaker_curves(scenario: Scenario) -> str:
    """Names of the curves of the row and of its racks; all of them are hot ones.

    The plant's breakers have their own.
    """
    declared = [body["spec"]["breaker"]["curve"] for _, body in domain_objects(scenario)]
    row, *racks = declared
    return f"row {row}, racks {', '.join(sorted(set(racks)))}"


def row_marks(scenario: Scenario) -> dict[str, str]:
    """Both as figures; rows of the same hash are of the same plant (ADR 0030)."""
    return {
        "breaker_curves": breaker_curves(scenario),
        "plant_sha256": plant_sha256(scenario.plant, scenario.row.power_sensor),
    }
