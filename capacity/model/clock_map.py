"""What a clock lock leaves of speed and draw: apart from the cap map, assumed nearly everywhere.

A lock holds the multiprocessors' clock and lets the draw follow; a cap holds the draw and lets the
clock follow. No licensed sweep of locks is known. The constants come from the one recording of
clocks that is (a video model whose clock a limit lowered, RTX PRO 6000: the same silicon at the
same clock, so speed and draw at a clock are taken over); for every other type they are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from wattpack.units import require_number

Floats = npt.NDArray[np.float64]

DERIVED_TYPES: Final = frozenset({"RTX-PRO-6000"})

VIDEO_CLOCK_BOUND: Final = 0.62
"""Share of the video model's time that waits for the clock: fits 31 clocks from 0.50 to 1 of the
highest within 1.4 % (``ltx_video_power_sweep``)."""

STANDING_SHARE: Final = 0.2
"""Of the uncapped draw, that no clock lowers; assumed."""

DRAW_EXPONENT: Final = 1.4
"""Of the rest in the clock, given that share; fits the same 31 cells within 1.3 %."""


@dataclass(frozen=True, slots=True)
class ClockMap:
    """Speed and draw at a share of the highest clock, for one GPU type.

    Attributes:
        provenance: ``derived`` where clocks were recorded on the type, else ``assumed``.
    """

    provenance: Literal["derived", "assumed"]
    standing_share: float = STANDING_SHARE
    draw_exponent: float = DRAW_EXPONENT

    def __post_init__(self) -> None:
        require_number("standing_share", self.standing_share, minimum=0, maximum=1)
        require_number("draw_exponent", self.draw_exponent, minimum=1, maximum=3)

    def throughput(self, clock_share: Floats | float, clock_bound: Floats | float) -> Floats:
        """Speed relative to the highest clock, in (0, 1].

        Args:
            clock_share: Locked over highest clock, in (0, 1].
            clock_bound: Share of the time at the highest clock that waits for the clock: near 1
                for large products, near 0 for decode of small batches.
        """
        share = np.clip(clock_share, 1e-3, 1.0)
        return np.asarray(1 / (1 - np.asarray(clock_bound) * (1 - 1 / share)))

    def draw_watts(self, clock_share: Floats | float, uncapped_watts: Floats | float) -> Floats:
        """Mean draw at the lock of work that draws ``uncapped_watts`` without one."""
        moving = np.clip(clock_share, 0.0, 1.0) ** self.draw_exponent
        rest = self.standing_share + (1 - self.standing_share) * moving
        return np.asarray(np.asarray(uncapped_watts) * rest)


def clock_map(gpu: str) -> ClockMap:
    """The map of a GPU type; its label says whether anything was recorded on it."""
    return ClockMap("derived" if gpu in DERIVED_TYPES else "assumed")
