"""Watts of work on boards, as the capacity model tells them; the only way to it from forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.gpu_profile import GpuProfile
from capacity.work_mix import CapCurve, WorkMix, cap_curve
from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.units import require_number

AC_OVER_BOARD: Final = 1.2
"""AC watts that a board's watt brings: regulators and processors that work with it, and losses of
supplies. 1.1 / 0.94 = 1.17
without fans on the twin's DGX-H100 (``simulation/data/plant.json``), fans assumed."""


@dataclass(frozen=True, slots=True)
class Boards:
    """Boards of one type with one kind of work under one cap.

    Attributes:
        profile: Their GPU type.
        mix: What they do when they work; None where nobody knows: their default limit then.
        count: How many.
        cap_watts: Power limit of each; None for the default limit.
    """

    profile: GpuProfile
    mix: WorkMix | None
    count: float
    cap_watts: float | None = None

    def __post_init__(self) -> None:
        require_number("count", self.count, minimum=0)
        if self.cap_watts is not None:
            require_number("cap_watts", self.cap_watts, exclusive_minimum=0)

    @property
    def limit_watts(self) -> float:
        """The cap, at most the default limit."""
        limit = self.profile.default_limit_watts
        return limit if self.cap_watts is None else min(self.cap_watts, limit)

    @property
    def idle_watts(self) -> float:
        """Board watts of all of them while they wait."""
        return self.count * self.profile.context_watts

    @property
    def busy_watts(self) -> float:
        """Mean board watts of all of them while they work."""
        curve = self._curve
        if curve is None:
            return self.count * self.limit_watts
        drawn = np.interp(self.limit_watts, curve.cap_watts, curve.draw_watts)
        return self.count * float(drawn)

    @property
    def speed(self) -> float:
        """Of their work under the cap over that without one; 1 where nobody knows."""
        curve = self._curve
        return 1.0 if curve is None else curve.speed_at(self.limit_watts)

    @property
    def _curve(self) -> CapCurve | None:
        return None if self.mix is None else cap_curve(self.profile, self.mix)


def startable_watts(free: Iterable[Boards]) -> float:
    """AC watts that a domain's draw would rise by if work came to all of its free boards."""
    return AC_OVER_BOARD * sum(boards.busy_watts - boards.idle_watts for boards in free)


def busy_watts(boards: Iterable[Boards]) -> float:
    """AC watts of all boards at work, without what servers draw beside them."""
    return AC_OVER_BOARD * sum(one.busy_watts for one in boards)


@dataclass(frozen=True, slots=True)
class LoadLine:
    """Draw of boards that share a load: idle, and a slope until they are full.

    Attributes:
        idle_watts: Without load, AC watts.
        watts_per_load: Added by each unit of load, AC watts.
        full_load: Beyond it draw does not rise: work queues.
    """

    idle_watts: float
    watts_per_load: float
    full_load: float

    @classmethod
    def of(cls, boards: Boards, full_load: float) -> LoadLine:
        """The line of boards under their cap.

        Args:
            boards: That serve it.
            full_load: What they all serve at their default limit, in units of the load.

        Raises:
            InputError: for a full load that is not positive.
        """
        if not 0 < full_load < np.inf:
            raise InputError("full_load", "a load above 0", full_load)
        served = full_load * boards.speed
        above = max(0.0, boards.busy_watts - boards.idle_watts)
        idle, slope = boards.idle_watts * AC_OVER_BOARD, above * AC_OVER_BOARD / served
        return cls(idle, slope, served)

    @classmethod
    def shared(cls, boards: Sequence[Boards], load_per_board: float) -> LoadLine:
        """The line of boards of several types that share a load evenly.

        Args:
            boards: At least one.
            load_per_board: What each serves at its default limit, in units of the load.

        Raises:
            InputError: for a load that is not positive, or no boards.
        """
        lines = [cls.of(one, load_per_board * one.count) for one in boards if one.count > 0]
        full = sum(line.full_load for line in lines)
        if full <= 0:
            raise InputError("boards", "at least one", len(boards))
        slope = sum(line.watts_per_load * line.full_load for line in lines) / full
        return cls(sum(line.idle_watts for line in lines), slope, full)

    def watts(self, load: Floats) -> Floats:
        """AC watts under a load, shape of ``load``; NaN where it is unknown."""
        result: Floats = self.idle_watts + self.watts_per_load * np.clip(load, 0.0, self.full_load)
        return result
