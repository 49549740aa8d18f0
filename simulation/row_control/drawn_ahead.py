"""Random numbers of a stream, drawn in blocks: the same ones, in the same order, as one by one."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from simulation.row_control.work import Floats

_BLOCK: Final = 4096


class DrawnAhead:
    """Uniform numbers from [0, 1) of one generator, of which nobody else may draw from then on.

    Args:
        generator: Of the stream.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._numbers: Floats = np.zeros(0)
        self._at = 0

    def random(self, shape: int | tuple[int, ...]) -> Floats:
        """The next ones, not to be written to."""
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        numbers, at = self.ahead(count)
        self.took(count)
        return numbers[at : at + count].reshape(shape)

    def ahead(self, count: int) -> tuple[Floats, int]:
        """An array in which the next ``count`` lie, and where the first; none is taken by that."""
        left = len(self._numbers) - self._at
        if left < count:
            fresh = self._generator.random(max(_BLOCK, count - left))
            self._numbers = np.concatenate([self._numbers[self._at :], fresh])
            self._at = 0
        return self._numbers, self._at

    def took(self, count: int) -> None:
        """So many of them were taken."""
        self._at += count
