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

from capacity.model.capping_loop import CEILING_SPREAD, CappingLoop, capping_loop
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

    Args:
        loop: Constants; the ceiling one a board.
        idle_watts: What the boards drew before the first tick, (n_gpus,).
    """

    def __init__(self, loop: CappingLoop, idle_watts: Floats) -> None:
        self._loop = loop
        self._felt_watts = idle_watts.copy()
        self._limit_watts = np.zeros(len(idle_watts))
        self._at_limit = loop.at_limit(self._limit_watts)
        self._counted = RecentDraws(idle_watts, loop.window_seconds + loop.delay_seconds)

    def hold(
        self, wanted_watts: Floats, limit_watts: Floats, least_watts: Floats, seconds: float
    ) -> Floats:
        """Mean draw over the next tick, (n_gpus,); see ``gpu.simulated.board_regulation``."""
        self._count_anew(limit_watts)
        loop = self._loop
        newest_ago = max(loop.delay_seconds - seconds / 2.0, 0.0)
        oldest_ago = loop.delay_seconds + loop.window_seconds - seconds / 2.0
        mean = self._counted.mean_watts(oldest_ago, newest_ago)
        held, self._felt_watts = loop.held_at(
            self._at_limit, mean, self._felt_watts, wanted_watts, seconds
        )
        drawn = np.maximum(held, np.minimum(wanted_watts, least_watts))
        self._counted.add(drawn, seconds)
        return np.asarray(drawn, dtype=np.float64)

    def _count_anew(self, limit_watts: Floats) -> None:
        """Past draws count as shares of the limit once it falls: the slow loop stays in balance."""
        if limit_watts is self._limit_watts:
            return
        before = self._limit_watts
        self._at_limit = self._loop.at_limit(limit_watts)
        lowered = np.flatnonzero((limit_watts < before) & (before < np.inf))
        if lowered.size:
            self._counted.scale(lowered, limit_watts[lowered] / before[lowered])
        self._limit_watts = limit_watts
