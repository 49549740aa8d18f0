"""Which pods of given sizes and prices fill a board best: an unbounded knapsack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU

__all__ = ["dearest", "dearest_filling"]

FloatArray = npt.NDArray[np.float64]

TOLERANCE: Final = 1e-7
EQUAL: Final = 1e-12


def dearest(prices: FloatArray, sizes: Sequence[int]) -> FloatArray:
    """Sum of prices of the best filling by what a board has left, shape (MILLI_PER_GPU + 1,).

    Args:
        prices: Of one pod of each size; what is not above 0 is left out.
        sizes: Thousandths of a board, from 1 to 1000.
    """
    best = np.zeros(MILLI_PER_GPU + 1)
    for size, price in zip(sizes, prices.tolist(), strict=True):
        copies = 1
        while price > 0 and copies * size <= MILLI_PER_GPU:
            # Each power of two once makes every number of copies.
            more = copies * size
            best[more:] = np.maximum(best[more:], best[:-more] + copies * price)
            copies *= 2
    return best


def dearest_filling(
    prices: FloatArray,
    sizes: Sequence[int],
    left: int = MILLI_PER_GPU,
    best: FloatArray | None = None,
) -> FloatArray:
    """How many pods of each size such a filling has, (m,).

    Args:
        prices: As above.
        sizes: As above.
        left: Of the board, thousandths.
        best: What ``dearest`` says, if the caller has it already.
    """
    best = dearest(prices, sizes) if best is None else best
    chosen = np.zeros(len(sizes))
    while best[left] > TOLERANCE:
        for i, size in enumerate(sizes):
            if size <= left and best[left - size] + prices[i] >= best[left] - EQUAL:
                chosen[i] += 1
                left -= size
                break
        else:
            left -= 1
    return chosen
