"""Decaying histograms of scores, one a quantile level: what a pool remembers.

A pool of 10,000 series scores 360,000 steps a window: they are counted, not kept. Cells are narrow
near zero and grow with the score (2 % wide beyond 0.01), so a corrected quantile is off by at most
that share of its correction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forecasting.calibration.stored_fields import Fields
from forecasting.series_source import Floats
from wattpack.errors import InputError

FINEST: Final = 0.01
"""Scores below this are told apart by a fiftieth of it, larger ones by 2 %."""

GREATEST: Final = 1000.0
"""Scores beyond it count as it: one of them is one count, however wild."""

STEP: Final = 0.02
HALF: Final = int(np.ceil(np.arcsinh(GREATEST / FINEST) / STEP))
CELLS: Final = 2 * HALF + 1
EDGES: Final[Floats] = FINEST * np.sinh(STEP * (np.arange(CELLS + 1) - HALF - 0.5))


@dataclass(frozen=True, slots=True)
class ScoreSketch:
    """How many scores lay where.

    Attributes:
        counts: Decayed, shape (n_levels, CELLS).
    """

    counts: Floats

    @classmethod
    def new(cls, n_levels: int) -> ScoreSketch:
        """Nothing counted yet."""
        return cls(np.zeros((n_levels, CELLS)))

    def after(self, scores: Floats, keep: float = 1.0) -> ScoreSketch:
        """With more scores; what was known before counts ``keep`` times as much as it did.

        Args:
            scores: Finite, shape (n, n_levels).
            keep: In [0, 1].
        """
        place = np.arcsinh(np.clip(scores, -GREATEST, GREATEST) / FINEST) / STEP
        cell = np.clip(np.rint(place).astype(np.intp) + HALF, 0, CELLS - 1)
        n_levels = len(self.counts)
        flat = (cell + np.arange(n_levels) * CELLS).ravel()
        fresh = np.bincount(flat, minlength=n_levels * CELLS).reshape(n_levels, CELLS)
        return replace(self, counts=keep * self.counts + fresh)

    def above_zero(self) -> Floats:
        """Share of the scores that are above 0, level by level; 0 where nothing was counted."""
        total = self.counts.sum(axis=1)
        result: Floats = self.counts[:, HALF + 1 :].sum(axis=1) / np.where(total > 0, total, 1.0)
        return result

    def to_json(self) -> dict[str, list[float]]:
        """Cells that hold anything, by level: cell, count, cell, count and so on."""
        rows = {}
        for i, row in enumerate(self.counts):
            cells = np.flatnonzero(row)
            rows[str(i)] = np.stack([cells, row[cells]], axis=1).ravel().tolist()
        return rows

    @classmethod
    def from_json(cls, stored: Fields, n_levels: int) -> ScoreSketch:
        """The sketch that was written.

        Raises:
            InputError: damaged.
        """
        counts = np.zeros((n_levels, CELLS))
        for i in range(n_levels):
            pairs = stored.numbers(str(i), (None,))
            cells, held = pairs[0::2], pairs[1::2]
            fits = len(cells) == len(held) and np.all((cells >= 0) & (cells < CELLS))
            if not fits or np.any(cells % 1) or np.any(held < 0):
                raise InputError(f"{stored.path}.{i}", "pairs of a cell and its count")
            counts[i, cells.astype(np.intp)] = held
        return cls(counts)

    def quantiles(self, shares: Floats) -> Floats:
        """The scores that the given shares of all lie below, level by level.

        Args:
            shares: In [0, 1], shape (n, n_levels).

        Returns:
            Linear within a cell, shape (n, n_levels); 0 where nothing was counted.
        """
        result = np.zeros(shares.shape)
        for i, row in enumerate(self.counts):
            total = row.sum()
            if total > 0:
                heaped = np.concatenate([[0.0], np.cumsum(row)])
                result[:, i] = _inverse(heaped, shares[:, i] * total)
        return result


def _inverse(heaped: Floats, wanted: Floats) -> Floats:
    """Scores at which the heap of counts reaches what is wanted."""
    cell = np.searchsorted(heaped, wanted, side="left") - 1
    # A share of 0 or 1 is the edge of the outermost cell that holds anything.
    first, last = np.flatnonzero(np.diff(heaped))[[0, -1]]
    cell = np.clip(cell, first, last)
    inside = (wanted - heaped[cell]) / (heaped[cell + 1] - heaped[cell])
    inside = np.clip(inside, 0.0, 1.0)
    # The cell of zero holds series that stand still: they are exactly 0, not nearly.
    left = np.where(cell == HALF, 0.0, EDGES[cell])
    right = np.where(cell == HALF, 0.0, EDGES[cell + 1])
    result: Floats = left + inside * (right - left)
    return result
