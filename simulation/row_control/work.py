"""What a row works on: how much its boards want to draw, and what it loses by being held.

``RowWork`` is the port; ``LevelWork`` its plainest adapter: boards that want what a list says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wattpack.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

LOW, HIGH = 0, 1


@dataclass(frozen=True, slots=True)
class Held:
    """How boards were held in a step, (n_gpus,) each.

    Attributes:
        drawn_share: Watts drawn over watts wanted at the present clock.
        clock_share: Locked clock over highest clock, 1 without a lock.
        alive: The server has power and runs.
    """

    drawn_share: Floats
    clock_share: Floats
    alive: Bools


class RowWork(Protocol):
    """Work on every board of a row."""

    @property
    def priority(self) -> Integers:
        """``LOW`` or ``HIGH``, (n_gpus,)."""
        ...

    def step(self, begin_seconds: float, seconds: float, held: Held) -> Floats:
        """Advance by a step in which boards were held so.

        Args:
            begin_seconds: Since the run began.
            seconds: Length of the step.
            held: Of the boards when the step begins.

        Returns:
            Mean watts of each board in this step without limit or lock, (n_gpus,).
        """
        ...

    def done(self) -> Floats:
        """Work done so far in seconds of full speed, (n_gpus,)."""
        ...


class LevelWork:
    """Boards that want to draw so much from given times on; half the watts is half the work.

    Args:
        priority: ``LOW`` or ``HIGH``, (n_gpus,).
        levels: (since seconds, watts of every board or one number), in order of time, from 0 on.

    Raises:
        InputError: for no level at 0, levels out of order, or another number of boards.
    """

    def __init__(self, priority: Integers, levels: Sequence[tuple[float, Floats | float]]) -> None:
        begins = [since for since, _ in levels]
        if not begins or begins[0] != 0.0 or begins != sorted(begins):
            raise InputError("levels", "times in order, the first of them 0 s", begins)
        self._priority = np.asarray(priority, dtype=np.int64)
        n = len(self._priority)
        self._begins = np.array(begins)
        try:
            self._watts = np.array([np.broadcast_to(watts, (n,)) for _, watts in levels], float)
        except ValueError as error:
            raise InputError("levels", f"watts of {n} boards", "another number") from error
        self._done = np.zeros(n)

    @property
    def priority(self) -> Integers:
        """As given, (n_gpus,)."""
        return self._priority

    def step(self, begin_seconds: float, seconds: float, held: Held) -> Floats:
        """The level that holds at the step's begin, (n_gpus,)."""
        speed = np.minimum(held.drawn_share, 1.0) * held.clock_share
        self._done = self._done + np.where(held.alive, speed, 0.0) * seconds
        level = int(np.searchsorted(self._begins, begin_seconds + 1e-9, side="right")) - 1
        return np.asarray(self._watts[level], dtype=np.float64)

    def done(self) -> Floats:
        """Seconds of full speed, (n_gpus,)."""
        return self._done
