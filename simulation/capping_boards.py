"""How the row's boards hold their limits: the measured capping loop of each board's type.

A board is held by two loops (``capacity/model/capping_loop``, ADR 28): a ceiling above the limit
that acts within 50 ms, and what the mean of about the last second is too much. Assumed beyond the
recording (ADR 30): that both scale with the limit, and that a *lowered* limit finds the slow loop
in balance, so that it brings neither a dip nor a second of grace. A raised one is met like new
work, with the ceiling first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capacity.model.capping_loop import CEILING_SPREAD, CappingLoop, LimitWatts, capping_loop
from gpu.simulated.recent_draws import RecentDraws

Floats = NDArray[np.float64]


def row_loops(gpu_types: list[str], generator: np.random.Generator) -> CappingLoop:
    """One loop for boards of several types, its ceilings drawn a board.

    Args:
        gpu_types: wattpack's name of each board's type, (n_gpus,).
        generator: Of the ceilings.
    """
    loops = {name: capping_loop(name) for name in gpu_types}
    shared = next(iter(loops.values()))
    ceiling = np.array([float(loops[name].ceiling_share) for name in gpu_types])
    held = np.array([float(loops[name].held_share) for name in gpu_types])
    drawn = ceiling + CEILING_SPREAD * generator.standard_normal(len(gpu_types))
    return replace(shared, ceiling_share=np.maximum(drawn, held))


class CappingRegulation:
    """The boards of a row with what their loops remember.

    Attributes:
        loop: As given.
        felt_watts: What the fast loops take the demand for, (n_gpus,).
        counted: What the slow loops look back on.

    Args:
        loop: Constants; the ceiling one a board.
        idle_watts: What the boards drew before the first tick, (n_gpus,).
    """

    def __init__(self, loop: CappingLoop, idle_watts: Floats) -> None:
        self.loop = loop
        self.felt_watts = idle_watts.copy()
        self.counted = RecentDraws(idle_watts, loop.window_seconds + loop.delay_seconds)
        self._limit_watts = np.zeros(len(idle_watts))
        self._at_limit = loop.at_limit(self._limit_watts)

    def hold(
        self, wanted_watts: Floats, limit_watts: Floats, least_watts: Floats, seconds: float
    ) -> Floats:
        """Mean draw over the next tick, (n_gpus,); see ``gpu.simulated.board_regulation``."""
        at = self.at_limit(limit_watts)
        newest_ago, oldest_ago = self.loop.looks_ago(seconds)
        mean = self.counted.mean_watts(oldest_ago, newest_ago)
        held, self.felt_watts = self.loop.held_at(at, mean, self.felt_watts, wanted_watts, seconds)
        drawn = np.maximum(held, np.minimum(wanted_watts, least_watts))
        self.counted.add(drawn, seconds)
        return np.asarray(drawn, dtype=np.float64)

    def at_limit(self, limit_watts: Floats) -> LimitWatts:
        """The loops' watts at limits that act from now on, (n_gpus,).

        Past draws count as shares of a limit that falls: the slow loop stays in balance.
        """
        if limit_watts is self._limit_watts:
            return self._at_limit
        before = self._limit_watts
        self._at_limit = self.loop.at_limit(limit_watts)
        lowered = np.flatnonzero((limit_watts < before) & (before < np.inf))
        if lowered.size:
            self.counted.scale(lowered, limit_watts[lowered] / before[lowered])
        self._limit_watts = limit_watts
        return self._at_limit
