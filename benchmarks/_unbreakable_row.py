"""The row that losses are held against: its breakers never open, so that everybody is answered."""

from __future__ import annotations

from typing import Final

from simulation.scenario import Scenario

__all__ = ["unbreakable"]

UNREACHED: Final = 10.0
"""Ratings times this are never reached."""


def unbreakable(scenario: Scenario) -> Scenario:
    """The same row, whose breakers are never reached."""
    row = scenario.row
    ratings = {
        "rated_servers": UNREACHED * row.rated_servers,
        "rack_rated_servers": UNREACHED * row.rack_rated_servers,
    }
    return scenario.model_copy(update={"row": row.model_copy(update=ratings)})
