"""What a clock lock stands for on each GPU.

Every locked GPU has its power limit as well, and the limit alone carries I1 and I2: whatever is
wrong here costs work, never safety.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.model.clock_map import DRAW_EXPONENT, STANDING_SHARE
from wattpack.power.domain_tree import FloatArray

__all__ = ["LOWEST_CLOCK_SHARE", "LockLaw", "unknown_work"]

LOWEST_CLOCK_SHARE: Final = 0.4
"""Locks go no lower: 780 of 1,980 MHz is the lowest clock at which decode was found to keep 99 % of
its speed (arXiv 2605.11999, read second-hand)."""


@dataclass(frozen=True, slots=True)
class LockLaw:
    """What is known of locks, each (n_gpus,).

    Attributes:
        open_watts: Mean draw at the full clock; the default limit where the work is unknown.
        standing_share: Of that, what no clock lowers.
        free_share: Lowest clock over the highest that costs nothing worth counting.
    """

    open_watts: FloatArray
    standing_share: FloatArray
    free_share: FloatArray

    def share_for(self, watts: FloatArray) -> FloatArray:
        """Clock over the highest at which the work draws these watts, (n_gpus,)."""
        moving = (watts / self.open_watts - self.standing_share) / (1.0 - self.standing_share)
        share = np.clip(moving, 0.0, 1.0) ** (1.0 / DRAW_EXPONENT)
        return np.asarray(np.maximum(share, LOWEST_CLOCK_SHARE))

    def draw_share(self, clock_share: FloatArray) -> FloatArray:
        """Draw at a clock over that at the full clock, (n_gpus,)."""
        moving = (1.0 - self.standing_share) * clock_share**DRAW_EXPONENT
        return np.asarray(self.standing_share + moving)


def unknown_work(default_limit_watts: FloatArray) -> LockLaw:
    """The law of work that nobody knows: bound by the clock, at the default limit."""
    n = len(default_limit_watts)
    return LockLaw(default_limit_watts, np.full(n, STANDING_SHARE), np.ones(n))
