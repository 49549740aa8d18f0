"""What a miss is counted in, and which promises were missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from forecasting.series_source import Floats

Unit = Literal["spread", "change"]

SPREAD_FLOOR: Final = 0.02
"""Least unit of a score, in scales (assumed): an idle series promises no spread at all."""


def score_units(quantiles: Floats, levels: Sequence[float], scale: Floats, unit: Unit) -> Floats:
    """What misses are counted in: the 0.99 that was promised above the median, or the scale.

    Scores of steps in the forecast's own spread are alike over series and steps; scores in scales
    are not. Peaks have the mean change from one day to the next as their scale.

    Args:
        quantiles: Shape (n_series, n_steps, n_levels).
        levels: Of the last axis; the nearest to 0.5 and 0.99 are taken.
        scale: Positive, shape (n_series,).
        unit: Which of both.

    Returns:
        Positive, shape (n_series, n_steps).
    """
    if unit == "change":
        return np.broadcast_to(scale[:, None], quantiles.shape[:2])
    known = np.asarray(levels)
    middle, top = np.argmin(np.abs(known - 0.5)), np.argmin(np.abs(known - 0.99))
    spread = quantiles[:, :, top] - quantiles[:, :, middle]
    result: Floats = np.maximum(spread, SPREAD_FLOOR * scale[:, None])
    return result


def missed(
    realised: Floats, published: Floats, levels: Sequence[float], told: np.ndarray | None
) -> Floats:
    """Which promises were exceeded, shape of the promises; what was told early is left out.

    Up to the median a value that equals its promise is half a miss: an idle series equals it for
    days and is right.

    Args:
        realised: Shape (n_series, n_steps).
        published: Shape (n_series, n_steps, n_levels).
        levels: Of the last axis.
        told: Misses that were told early, shape of ``published``; None for none.
    """
    came = realised[:, :, None]
    above, level = came > published, came >= published
    with_ties = np.asarray(levels) <= 0.5
    result: Floats = np.where(with_ties, (above + level.astype(float)) / 2, above)
    return result if told is None else result - told
