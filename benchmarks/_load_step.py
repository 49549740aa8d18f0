"""A row that comes to a level and steps from it: its load and boards, step by step, and times."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._row_cases import ROW
from simulation.row_control.run import RowRun
from simulation.row_control.work import Held, Integers, RowWork

Floats = NDArray[np.float64]

BEGIN_SHARE: Final = 0.70
RISE_SECONDS: Final = (105.0, 150.0)
"""Until then a new controller has let go of what it held while it knew nobody; then work rises."""


class RisingWork:
    """Work that begins at a share of what it will want; a ``RowWork``.

    Args:
        work: What it will be.
    """

    def __init__(self, work: RowWork) -> None:
        self._work = work

    @property
    def priority(self) -> Integers:
        """As of the work, (n_gpus,)."""
        return self._work.priority

    def step(self, begin_seconds: float, seconds: float, held: Held) -> Floats:
        """As of the work, times a share that rises to 1, (n_gpus,)."""
        share = float(np.interp(begin_seconds, RISE_SECONDS, (BEGIN_SHARE, 1.0)))
        return share * self._work.step(begin_seconds, seconds, held)

    def done(self) -> Floats:
        """As of the work, (n_gpus,)."""
        return self._work.done()


def recorded_load(driven: RowRun) -> list[float]:
    """The row's load over its rating, filled in at every step that the run will take."""
    load: list[float] = []
    took = driven.accounts.took

    def take(seconds: float) -> None:
        took(seconds)
        load.append(float(driven.plant.breakers.load_ratio(driven.plant.watts)[ROW]))

    driven.accounts.took = take  # type: ignore[method-assign]
    return load


def recorded_boards(driven: RowRun) -> list[tuple[Floats, Floats]]:
    """Draw and limit of every board, filled in at every step that the run will take."""
    boards: list[tuple[Floats, Floats]] = []
    took, bank = driven.accounts.took, driven.plant.bank

    def take(seconds: float) -> None:
        took(seconds)
        boards.append((driven.plant.drawn_watts.copy(), bank.limit_watts.copy()))

    driven.accounts.took = take  # type: ignore[method-assign]
    return boards


def seconds_above(load_ratio: Floats, step_seconds: float) -> float:
    """From the first step above 1.00 to the end of the last one, 0 without any."""
    above = np.flatnonzero(load_ratio > 1.0)
    return float(above[-1] - above[0] + 1) * step_seconds if above.size else 0.0


def seconds_to_limits(drawn: Floats, limits: Floats, last_above: int, step_seconds: float) -> float:
    """Until each board has come down to its lowered limit, the last of them; 0 if none was lowered.

    What is lowered once the row is below its rating is fine adjustment and does not count.

    A board is there once it draws at most 1.10 of the limit in force, as for I7: sensors err by up
    to 5 %, and boards hold 1.03 of a limit for nearly a second.

    Args:
        drawn: Watts at each step from the load step on, (n_steps, n_gpus).
        limits: Power limits then, (n_steps, n_gpus).
        last_above: Last step at which the row was above its rating.
        step_seconds: Length of a step.
    """
    lowered = limits < limits[0] - 1.0
    there = lowered & (drawn <= 1.10 * limits)
    ever = lowered[: last_above + 1].any(axis=0)
    arrived = np.where(there.any(axis=0), there.argmax(axis=0) + 1, len(limits))
    return float(arrived[ever].max(initial=0)) * step_seconds
