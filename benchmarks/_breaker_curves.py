"""Which trip curves the objects of a simulated row declare; the plant's breakers have their own."""

from __future__ import annotations

from simulation.row_objects import domain_objects
from simulation.scenario import Scenario

__all__ = ["breaker_curves"]


def breaker_curves(scenario: Scenario) -> str:
    """Names of the curves of the row and of its racks; all of them are hot ones."""
    declared = [body["spec"]["breaker"]["curve"] for _, body in domain_objects(scenario)]
    row, *racks = declared
    return f"row {row}, racks {', '.join(sorted(set(racks)))}"
