"""Bins in which caps held work back: they show what was allowed, not what was wanted."""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.series_source import Floats

HELD_SHARE: Final = 0.1
"""Of a bin under binding caps from which on its mean is no demand. Assumed."""

MOST_MASKED: Final = 0.5
"""Of the last day: with more of it masked nothing would be left to learn of. Assumed."""


def demand_of(
    draw_watts: Floats, held_share: Floats, open_watts: Floats | None, day_bins: int
) -> Floats:
    """A history to learn demand of.

    A held bin counts as what the capacity model says that its load would draw without caps, at
    least its draw. Where nobody knows that it is a gap; if over half of the last day would be one,
    the draw stands: at least so much was wanted.

    Args:
        draw_watts: Measured, (n, n_bins); NaN for gaps.
        held_share: Share of each bin in which caps held back, the same shape.
        open_watts: What the load would draw without caps, the same shape, NaN where unknown; None
            where nothing is known.
        day_bins: Bins in a day.

    Returns:
        (n, n_bins).
    """
    held = held_share >= HELD_SHARE
    model = np.full(draw_watts.shape, np.nan) if open_watts is None else open_watts
    wanted = np.where(np.isnan(model), np.nan, np.fmax(model, draw_watts))
    made = np.where(held, wanted, draw_watts)
    day = slice(-day_bins, None)
    lost = np.isnan(made[:, day]) & np.isfinite(draw_watts[:, day])
    too_many = lost.mean(axis=1) > MOST_MASKED
    return np.where(too_many[:, None] & np.isnan(made), draw_watts, made)
