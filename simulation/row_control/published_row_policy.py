"""Published threshold policies as row policies: the row's meter in, clock locks out of band.

Clocks are published for boards of 1410 MHz; other types are locked at the same share of theirs.
"""

from __future__ import annotations

import math

import numpy as np

from simulation.inference_row.published_policies import (
    Clocks,
    Command,
    PolicyName,
    ThresholdPolicy,
)
from simulation.row_control.messages import NO_ORDERS, BoardWrites, Orders, Reports
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import Answer, Known
from simulation.row_control.work import HIGH, Bools, Floats, Integers
from wattpack.units import NS_PER_SECOND

PUBLISHED_CLOCK_MHZ = 1410.0
"""Highest SM clock of the A100 that the published clocks are of."""


class PublishedRowPolicy:
    """A threshold policy on a row.

    Args:
        name: Which of the published ones.
        plant: For ratings, limits and clocks of its boards.
        priority: ``LOW`` or ``HIGH`` of each board, (n_gpus,).
    """

    uses_leases = False

    def __init__(self, name: PolicyName, plant: RowPlant, priority: Integers) -> None:
        self._policy = ThresholdPolicy(name)
        bank = plant.bank
        self._default_watts = bank.default_limit_watts.copy()
        self._clock_mhz, self._least_mhz = bank.max_clock_mhz.copy(), bank.min_clock_mhz.copy()
        # Of a row with several feeds, what one of them carries.
        self._rating_watts = float(plant.breakers.rating_watts[0])
        self._high: Bools = np.asarray(priority == HIGH)
        self._coming: list[tuple[int, Command]] = []
        self._decided_of_ns = -1

    @property
    def brakes(self) -> int:
        """How often the brake was pulled."""
        return self._policy.brakes

    def initial_watts(self) -> Floats:
        """Default limits: only clocks are touched, (n_gpus,)."""
        return self._default_watts

    def arrived(self, reports: Reports) -> Answer:
        """Nothing is made of reports."""
        return Answer(len(reports))

    def tick(self, known: Known) -> Orders:
        """Decide on the newest reading of the row; carry out what has taken its time.

        A reading that does not come leaves everything as it is. What comes to hold ends every
        order given before it: a lock still on its way does not lift a brake or undo its release.
        """
        watts, of_ns = float(known.meter_watts[0]), int(known.meter_time_ns[0])
        if math.isfinite(watts) and of_ns != self._decided_of_ns:
            self._decided_of_ns = of_ns
            now_seconds = known.now_ns / NS_PER_SECOND
            command = self._policy.decide(now_seconds, watts / self._rating_watts)
            if command is not None:
                due_ns = known.now_ns + round(command.delay_seconds * NS_PER_SECOND)
                self._coming.append((due_ns, command))
        due = [i for i, (due_ns, _) in enumerate(self._coming) if due_ns <= known.now_ns]
        if not due:
            return NO_ORDERS
        newest = due[-1]
        _, command = self._coming[newest]
        del self._coming[: newest + 1]
        return Orders(writes=self._writes(command.clocks))

    def _writes(self, clocks: Clocks) -> BoardWrites:
        published = np.where(self._high, clocks.high_mhz, clocks.low_mhz)
        share = published / PUBLISHED_CLOCK_MHZ
        mhz = np.maximum(np.rint(share * self._clock_mhz), self._least_mhz)
        locks = np.where(published > 0, mhz, 0).astype(np.int64)
        return BoardWrites(np.full(len(locks), np.nan), locks, 0.0)
