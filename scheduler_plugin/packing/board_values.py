"""What a board with so much left is worth, by the shares that are expected to come.

A share leaves a rest that only smaller shares can use: 0.81 of a board leaves 0.19, which is waste
where few ask for so little. Prices of shares are the dual prices of the cutting-stock problem that
covers the expected shares with the fewest boards (Gilmore and Gomory, Operations Research 9, 1961:
columns are ways to fill a board, found by a knapsack); a rest is worth the dearest shares that fill
it. A board that nobody uses is worth 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.packing.board_fillings import dearest, dearest_filling

__all__ = ["board_values"]

FloatArray = npt.NDArray[np.float64]

MOST_SIZES: Final = 32
"""Sizes of shares that are priced, those that ask for most GPU in sum; assumed to be enough."""

MOST_COLUMNS: Final = 300
"""Entered into the basis at most; 20 to 60 were on the traces of openb."""

TOLERANCE: Final = 1e-7


def board_values(sizes_milli: Sequence[int], counts: Sequence[int]) -> FloatArray:
    """Worth of a board by what is left of it, in boards, shape (MILLI_PER_GPU + 1,), never falling.

    Args:
        sizes_milli: Of the shares, from 1 to 999, each once.
        counts: How many of each are expected; only their ratios matter.
    """
    asked = sorted(zip(sizes_milli, counts, strict=True), key=lambda one: -one[0] * one[1])
    kept = sorted((size, count) for size, count in asked[:MOST_SIZES] if count > 0)
    worth: FloatArray = _values(tuple(size for size, _ in kept), tuple(count for _, count in kept))
    mine: FloatArray = worth.copy()
    return mine


@lru_cache(maxsize=64)
def _values(sizes: tuple[int, ...], counts: tuple[int, ...]) -> FloatArray:
    if sizes:
        filled = dearest(_prices(np.array(sizes), np.array(counts, dtype=np.float64)), sizes)
    else:
        filled = np.zeros(MILLI_PER_GPU + 1)
    worth: FloatArray = filled / max(float(filled[-1]), TOLERANCE)
    worth[MILLI_PER_GPU] = 1.0
    return worth


def _prices(sizes: npt.NDArray[np.int64], counts: FloatArray) -> FloatArray:
    """Dual prices of the shares, in boards: revised simplex method over ways to fill a board."""
    each = MILLI_PER_GPU // sizes
    columns, costs = np.diag(each).astype(np.float64), np.ones(len(sizes))
    used = counts / each
    for _ in range(MOST_COLUMNS):
        prices: FloatArray = np.asarray(np.linalg.solve(columns.T, costs), dtype=np.float64)
        cheapest = int(prices.argmin())
        if prices[cheapest] < -TOLERANCE:
            # More of this share than expected costs nothing.
            entering, cost = -np.eye(len(sizes))[cheapest], 0.0
        else:
            entering, cost = dearest_filling(prices, sizes.tolist()), 1.0
            if entering @ prices <= 1.0 + TOLERANCE:
                break
        change = np.linalg.solve(columns, entering)
        steps = np.full(len(sizes), np.inf)
        falling = change > TOLERANCE
        steps[falling] = used[falling] / change[falling]
        leaving = int(steps.argmin())
        step = max(0.0, steps[leaving])
        used -= step * change
        used[leaving] = step
        columns[:, leaving], costs[leaving] = entering, cost
    paid: FloatArray = np.maximum(prices, 0.0)
    return paid
