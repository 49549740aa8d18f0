"""What cannot be computed with together is tried piece by piece: one bad one costs only itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wattpack.errors import WattpackError

INCALCULABLE: Final = (WattpackError, ArithmeticError, ValueError)
"""What a computation raises that a history, not the program, is to blame for."""


def culprits(
    count: int, attempt: Callable[[int], object]
) -> dict[int, WattpackError | ArithmeticError | ValueError]:
    """Which of so many pieces fail when each is tried alone, and why.

    Args:
        count: Pieces, by number from 0.
        attempt: Computes with one of them alone; the lightest models are enough, since others cost
            only themselves when they fail.
    """
    found: dict[int, WattpackError | ArithmeticError | ValueError] = {}
    for i in range(count):
        try:
            attempt(i)
        except INCALCULABLE as error:
            found[i] = error
    return found
