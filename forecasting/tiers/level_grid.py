"""The quantile levels that tiers compute, and how other levels come from them."""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.series_source import Floats

GRID: Final[tuple[float, ...]] = (
    0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999,
)  # fmt: skip
"""Levels that are computed. Every level that a benchmark or a default asks for is one of them."""

GRID_LEVELS: Final[Floats] = np.array(GRID)

MEDIAN: Final = GRID.index(0.5)


def at_levels(on_grid: np.ndarray, levels: Floats, known: Floats = GRID_LEVELS) -> Floats:
    """Quantiles at other levels: linear between neighbours, flat beyond the first and the last.

    Args:
        on_grid: Quantiles at ``known``, shape (..., n_known).
        levels: Wanted, shape (n_levels,).
        known: Levels of the last axis of ``on_grid``, ascending.

    Returns:
        Shape (..., n_levels); a wanted level that is known is taken as it is.
    """
    place = np.interp(levels, known, np.arange(len(known)))
    place = np.where(np.abs(place - np.rint(place)) < 1e-6, np.rint(place), place)
    below = np.floor(place).astype(np.intp)
    result: Floats = on_grid[..., below].astype(np.float64)
    between = np.nonzero(place > below)[0]
    if len(between):
        upper = on_grid[..., below[between] + 1]
        result[..., between] += (place - below)[between] * (upper - result[..., between])
    return result
