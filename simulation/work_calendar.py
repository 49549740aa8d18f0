"""When which work comes: standing services and gangs, then batch pods from the trace."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.pod_work import Work, batch_works, standing_works
from simulation.scenario import Scenario
from simulation.training_fleet.fleet_pods import fleet_works

__all__ = ["WorkCalendar"]


class WorkCalendar:
    """Gives out each piece of work once, when its time has come.

    Args:
        scenario: What comes when.

    Attributes:
        known: What was given out, by name.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.known: dict[str, Work] = {}
        self._coming: list[Work] = standing_works(scenario)
        fleet = scenario.training_fleet
        self._batch: Iterator[Work] = (
            batch_works(scenario) if fleet is None else fleet_works(scenario, fleet)
        )
        self._next_batch = next(self._batch, None)

    def due(self, seconds: float) -> list[Work]:
        """Work whose time has come, simulated seconds since the start."""
        works = [w for w in self._coming if w.start_seconds <= seconds]
        self._coming = [w for w in self._coming if w.start_seconds > seconds]
        while self._next_batch is not None and self._next_batch.start_seconds <= seconds:
            works.append(self._next_batch)
            self._next_batch = next(self._batch, None)
        self.known.update({work.name: work for work in works})
        return works
