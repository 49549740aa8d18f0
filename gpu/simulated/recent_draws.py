"""What boards drew in the last second or so, so that a mean over any part of it can be taken."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from gpu.simulated.board_spec import Floats

Integers = NDArray[np.intp]

FIRST_ROWS = 64
"""Ticks that the buffer holds at first; it grows where ticks are short."""


class RecentDraws:
    """Energy at the end of every tick, linear in between; ticks may be of any length.

    Args:
        watts: What the boards drew before the first tick, (n,).
        keep_seconds: How far back means are asked for.
    """

    def __init__(self, watts: Floats, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        # Row i of the buffer is the energy at the i-th of these times.
        self._ends = [-keep_seconds, 0.0]
        self._rows = np.zeros((FIRST_ROWS, len(watts)))
        self._rows[0] = -keep_seconds * watts

    @property
    def joules(self) -> Floats:
        """Drawn since the first tick began, (n,)."""
        return np.array(self._rows[len(self._ends) - 1])

    def add(self, watts: Floats, seconds: float) -> None:
        """Append a tick with its mean draw, (n,)."""
        now = self._ends[-1] + seconds
        if len(self._ends) == len(self._rows):
            self._make_room(now)
        last = len(self._ends) - 1
        row = self._rows[last + 1]
        np.multiply(watts, seconds, out=row)
        row += self._rows[last]
        self._ends.append(now)

    def _make_room(self, now: float) -> None:
        """Forget what is too old; one entry older than what is kept stays to interpolate from."""
        old = max(0, bisect_right(self._ends, now - self._keep_seconds) - 1)
        left = self._rows[old : len(self._ends)].copy()
        del self._ends[:old]
        if 2 * len(left) > len(self._rows):
            self._rows = np.zeros((2 * len(self._rows), left.shape[1]))
        self._rows[: len(left)] = left

    def mean_watts(self, begin_ago_seconds: float, end_ago_seconds: float = 0.0) -> Floats:
        """Mean draw between two moments before now, (n,).

        Args:
            begin_ago_seconds: At most what is kept, and more than the end's.
            end_ago_seconds: At least 0.
        """
        now = self._ends[-1]
        joules = self._at(now - end_ago_seconds) - self._at(now - begin_ago_seconds)
        return joules / (begin_ago_seconds - end_ago_seconds)

    def _at(self, moment: float) -> Floats:
        """Energy at a moment, (n,); not to be written to."""
        i = bisect_right(self._ends, moment) - 1
        before: Floats = self._rows[i]
        if i == len(self._ends) - 1:
            return before
        share = (moment - self._ends[i]) / (self._ends[i + 1] - self._ends[i])
        return np.asarray(before + share * (self._rows[i + 1] - before))

    def scale(self, which: Integers, ratio: Floats) -> None:
        """Multiply the draws that are kept of some boards, each by its ratio, both (k,)."""
        last = len(self._ends) - 1
        first = max(0, bisect_right(self._ends, self._ends[-1] - self._keep_seconds) - 1)
        now = self._rows[last, which]
        kept = self._rows[first:last, which]
        self._rows[first:last, which] = now + (kept - now) * ratio
