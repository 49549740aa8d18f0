"""What the boards of a training fleet would draw without limits, at any time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulation.plant_constants import PlantConstants
from simulation.training_fleet.fleet_jobs import Job
from simulation.training_fleet.fleet_settings import FleetSettings

Floats = NDArray[np.float64]


class FleetDraws:
    """Wanted draw of every board over its default limit, 0 for boards without a job.

    Args:
        jobs: As ``fleet_jobs`` made them.
        settings: Of the fleet.
        plant: Dips of training steps.
        boards: All of them.
    """

    def __init__(
        self, jobs: Sequence[Job], settings: FleetSettings, plant: PlantConstants, boards: int
    ) -> None:
        self._jobs = sorted(jobs, key=lambda job: job.begin_seconds)
        self._begin = np.array([job.begin_seconds for job in self._jobs])
        self._end = np.array([job.end_seconds for job in self._jobs])
        self._settings, self._plant, self._boards = settings, plant, boards

    def wanted(self, times: Floats) -> Floats:
        """At each of some times, close together or not, (n_times, n_boards)."""
        made = np.zeros((len(times), self._boards))
        around = np.flatnonzero((self._begin <= times.max()) & (self._end > times.min()))
        for number in around.tolist():
            job = self._jobs[number]
            inside = np.flatnonzero((times >= job.begin_seconds) & (times < job.end_seconds))
            if len(inside):
                level = self._level(job, times[inside])
                made[np.ix_(inside, np.array(job.boards))] = level[:, None]
        return made

    def _level(self, job: Job, times: Floats) -> Floats:
        """Of one job; gangs dip together at the end of each step, in the exchange."""
        turn = (times + job.offset_seconds) % job.turn_seconds / job.turn_seconds
        level = np.full(len(times), job.level)
        if job.gang:
            step = (times + job.offset_seconds) / self._plant.training_step_seconds % 1.0
            dips = step >= 1.0 - self._plant.training_dip_share
            level = np.where(dips, self._plant.training_dip_ratio * level, level)
        waiting = self._settings.waiting_level
        return np.asarray(np.where(turn < job.active_share, np.maximum(level, waiting), waiting))
