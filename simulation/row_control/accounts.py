"""What a run of the row came to: heat, trips, seconds above 1.00, means, work, cap changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import HIGH, LOW, Floats, Integers, RowWork

CHANGE_WATTS = 5.0
"""A power limit that moved by less since it was last counted is no cap change."""

MEAN_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RowResult:
    """A finished run.

    Attributes:
        seconds: End of each second since the run began, (n_seconds,).
        load_ratio: Mean load over rating in it, (n_seconds, n_domains).
        heat: Breaker heat at its end, (n_seconds, n_domains).
        done: Work so far of ``LOW`` and ``HIGH``, seconds of full speed, (n_seconds, 2).
        cap_watts: Mean power limit of ``LOW`` and ``HIGH`` at its end, (n_seconds, 2).
        above_seconds: Time above 1.00, (n_domains,).
        peak_ratio: Highest load of a step over rating, (n_domains,).
        max_heat: (n_domains,).
        trips: Breakers that opened.
        cap_changes: Moves of a power limit by ``CHANGE_WATTS`` or more, seen once a second.
        gpu_hours: Boards times hours.
        brakes: As the policy counts them.
        expired: Boards whose lease ran out.
        joules: AC energy of the row.
        violations: Of the invariants, by name.
    """

    seconds: Floats
    load_ratio: Floats
    heat: Floats
    done: Floats
    cap_watts: Floats
    above_seconds: Floats
    peak_ratio: Floats
    max_heat: Floats
    trips: int
    cap_changes: int
    gpu_hours: float
    brakes: int
    expired: int
    joules: float
    violations: dict[str, int]

    def minute_means(self) -> Floats:
        """Running means of the load ratio over 60 s, (n_seconds - 59, n_domains)."""
        sums = np.cumsum(np.vstack([np.zeros(self.load_ratio.shape[1]), self.load_ratio]), axis=0)
        return np.asarray((sums[MEAN_SECONDS:] - sums[:-MEAN_SECONDS]) / MEAN_SECONDS)

    def work_between(self, begin_seconds: float, end_seconds: float) -> Floats:
        """Work done in a span, of ``LOW`` and ``HIGH``, (2,)."""
        seconds = np.concatenate([[0.0], self.seconds])
        done = np.vstack([np.zeros(2), self.done])
        spans = [
            np.interp([begin_seconds, end_seconds], seconds, done[:, kind]) for kind in (LOW, HIGH)
        ]
        return np.array([span[1] - span[0] for span in spans])


class RowAccounts:
    """Keeps the books of a run.

    Args:
        plant: What is watched.
        work: Its work.
    """

    def __init__(self, plant: RowPlant, work: RowWork) -> None:
        self._plant, self._work = plant, work
        self._class = np.asarray(work.priority == HIGH, dtype=np.int64)
        self._class_size = np.maximum(np.bincount(self._class, minlength=2), 1)
        self._counted_watts = plant.bank.limit_watts.copy()
        self._seconds: list[float] = []
        self._rows: list[tuple[Floats, Floats, Floats, Floats]] = []
        self._ratio_seconds = np.zeros(len(plant.domain_names))
        self._span = self._now = 0.0
        self._joules = 0.0
        self.cap_changes = 0

    def took(self, seconds: float) -> None:
        """A step has passed."""
        plant = self._plant
        self._now += seconds
        self._span += seconds
        self._joules += float(plant.watts[0]) * seconds
        self._ratio_seconds += plant.breakers.ratio * seconds
        if self._span >= 1.0 - 1e-9:
            self._second()

    def _second(self) -> None:
        bank = self._plant.bank
        moved = np.abs(bank.limit_watts - self._counted_watts) >= CHANGE_WATTS
        self.cap_changes += int(moved.sum())
        self._counted_watts = np.where(moved, bank.limit_watts, self._counted_watts)
        self._seconds.append(self._now)
        self._rows.append(
            (
                self._ratio_seconds / self._span,
                self._plant.breakers.heat.copy(),
                self._by_class(self._work.done()),
                self._by_class(bank.limit_watts) / self._class_size,
            )
        )
        self._ratio_seconds = np.zeros(len(self._ratio_seconds))
        self._span = 0.0

    def _by_class(self, watts: Floats) -> Floats:
        return np.bincount(self._class, watts, 2).astype(np.float64)

    def result(self, brakes: int, expired: int, violations: dict[str, int]) -> RowResult:
        """The books, closed."""
        breakers = self._plant.breakers
        ratio, heat, done, caps = (np.array([row[i] for row in self._rows]) for i in range(4))
        return RowResult(
            seconds=np.array(self._seconds),
            load_ratio=ratio,
            heat=heat,
            done=done,
            cap_watts=caps,
            above_seconds=breakers.seconds_above_rating.copy(),
            peak_ratio=breakers.peak_ratio.copy(),
            max_heat=breakers.max_heat.copy(),
            trips=self._plant.trips,
            cap_changes=self.cap_changes,
            gpu_hours=self._plant.n_gpus * self._now / 3600.0,
            brakes=brakes,
            expired=expired,
            joules=self._joules,
            violations=violations,
        )


def classes_of(n_gpus: int, high_share: float, generator: np.random.Generator) -> Integers:
    """A class for each board, so many of them ``HIGH``, (n_gpus,)."""
    priority = np.full(n_gpus, LOW, dtype=np.int64)
    priority[generator.permutation(n_gpus)[: round(high_share * n_gpus)]] = HIGH
    return priority
