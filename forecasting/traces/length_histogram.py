"""How often each length came, gathered part by part: no more than the different ones are held."""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.series_source import Floats

_MERGE_AT: Final = 1 << 18
"""Lengths that wait to be merged: some megabytes."""


class LengthHistogram:
    """Weights by length."""

    def __init__(self) -> None:
        self._lengths: Floats = np.empty(0)
        self._weights: Floats = np.empty(0)
        self._waiting: list[tuple[Floats, Floats]] = []

    def add(self, lengths: Floats, weights: Floats) -> None:
        """Some more, each of shape (n,)."""
        self._waiting.append((lengths, weights))
        if sum(len(part) for part, _ in self._waiting) > _MERGE_AT:
            self.merged()

    def merged(self) -> tuple[Floats, Floats]:
        """All lengths, ascending, and their weights."""
        parts = [(self._lengths, self._weights), *self._waiting]
        every = np.concatenate([lengths for lengths, _ in parts])
        lengths, inverse = np.unique(every, return_inverse=True)
        weights = np.concatenate([weights for _, weights in parts])
        self._lengths = lengths
        self._weights = np.bincount(inverse, weights, len(lengths)).astype(np.float64)
        self._waiting = []
        return self._lengths, self._weights
