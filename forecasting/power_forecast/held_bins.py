"""Bins in which caps held work back: they show what was allowed, not what was wanted.

Where nobody told whether caps held (NaN), the bins around it tell more than an assumption: caps
hold in stretches.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.series_source import Floats

HELD_SHARE: Final = 0.1
"""Of a bin under binding caps from which on its mean is no demand. Assumed."""

MOST_MASKED: Final = 0.5
"""Of the last day: with more of it masked nothing would be left to learn of. Assumed."""


NEAR_SECONDS: Final = 3600
"""Around a held bin, within which a bin of which nobody told counts as held. Assumed."""


def held_bins(held_share: Floats, step_seconds: int) -> NDArray[np.bool_]:
    """Which bins caps held, those of which nobody told beside them included, (n_bins,).

    Args:
        held_share: Share of each bin in which caps held back, NaN for unknown, (n_bins,).
        step_seconds: Width of a bin.
    """
    held: NDArray[np.bool_] = held_share >= HELD_SHARE
    unknown = np.isnan(held_share)
    if not (held.any() and unknown.any()):
        return held
    reach = max(1, NEAR_SECONDS // step_seconds)
    near = np.convolve(held, np.ones(2 * reach + 1))[reach : reach + len(held)] > 0
    return held | (unknown & near)


def demand_of(
    draw_watts: Floats, held: NDArray[np.bool_], open_watts: Floats | None, day_bins: int
) -> Floats:
    """A history to learn demand of.

    A held bin counts as what the capacity model says that its load would draw without caps, at
    least its draw. Where nobody knows that it is a gap; if over half of the last day would be one,
    the draw stands: at least so much was wanted.

    Args:
        draw_watts: Measured, (n, n_bins); NaN for gaps.
        held: Bins that caps held, the same shape.
        open_watts: What the load would draw without caps, the same shape, NaN where unknown; None
            where nothing is known.
        day_bins: Bins in a day.

    Returns:
        (n, n_bins).
    """
    model = np.full(draw_watts.shape, np.nan) if open_watts is None else open_watts
    wanted = np.where(np.isnan(model), np.nan, np.fmax(model, draw_watts))
    made = np.where(held, wanted, draw_watts)
    day = slice(-day_bins, None)
    lost = np.isnan(made[:, day]) & np.isfinite(draw_watts[:, day])
    too_many = lost.mean(axis=1) > MOST_MASKED
    return np.where(too_many[:, None] & np.isnan(made), draw_watts, made)
