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

    Attributes:
        ends: Times of the buffer's rows, (room,); those up to ``last`` count.
        rows: Energy at these times, (room, n).
        last: The newest row.

    Args:
        watts: What the boards drew before the first tick, (n,).
        keep_seconds: How far back means are asked for.
    """

    def __init__(self, watts: Floats, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self.ends = np.zeros(FIRST_ROWS)
        self.rows = np.zeros((FIRST_ROWS, len(watts)))
        self.ends[0] = -keep_seconds
        self.rows[0] = -keep_seconds * watts
        self.last = 1

    @property
    def joules(self) -> Floats:
        """Drawn since the first tick began, (n,)."""
        return np.array(self.rows[self.last])

    def add(self, watts: Floats, seconds: float) -> None:
        """Append a tick with its mean draw, (n,)."""
        self.make_room(1)
        last = self.last
        row = self.rows[last + 1]
        np.multiply(watts, seconds, out=row)
        row += self.rows[last]
        self.ends[last + 1] = self.ends[last] + seconds
        self.last = last + 1

    def make_room(self, ticks: int) -> None:
        """Room for so many more; what is too old is forgotten where there is none.

        One entry older than what is kept stays to interpolate from.
        """
        room = len(self.ends)
        if self.last + ticks < room:
            return
        old = self._oldest()
        left = self.last + 1 - old
        while left + max(left, ticks) > room:
            room *= 2
        ends, rows = self.ends[old : self.last + 1].copy(), self.rows[old : self.last + 1].copy()
        if room > len(self.ends):
            self.ends, self.rows = np.zeros(room), np.zeros((room, rows.shape[1]))
        self.ends[:left], self.rows[:left] = ends, rows
        self.last = left - 1

    def _oldest(self) -> int:
        """The newest entry that is older than all that is kept."""
        return max(0, self._place(self.ends[self.last] - self._keep_seconds))

    def _place(self, moment: float) -> int:
        """The last entry at or before a moment; -1 for one before all."""
        return bisect_right(self.ends, moment, 0, self.last + 1) - 1

    def mean_watts(self, begin_ago_seconds: float, end_ago_seconds: float = 0.0) -> Floats:
        """Mean draw between two moments before now, (n,).

        Args:
            begin_ago_seconds: At most what is kept, and more than the end's.
            end_ago_seconds: At least 0.
        """
        now = self.ends[self.last]
        joules = self._at(now - end_ago_seconds) - self._at(now - begin_ago_seconds)
        return joules / (begin_ago_seconds - end_ago_seconds)

    def _at(self, moment: float) -> Floats:
        """Energy at a moment, (n,); not to be written to."""
        i = self._place(moment)
        before: Floats = self.rows[i]
        if i == self.last:
            return before
        share = (moment - self.ends[i]) / (self.ends[i + 1] - self.ends[i])
        return np.asarray(before + share * (self.rows[i + 1] - before))

    def mean_watts_each(self, begin_ago_seconds: Floats, end_ago_seconds: Floats) -> Floats:
        """Mean draw of each board between two moments of its own before now, (n,).

        Args:
            begin_ago_seconds: At most what is kept, and more than the end's, (n,).
            end_ago_seconds: At least 0, (n,).
        """
        now = self.ends[self.last]
        joules = self._at_each(now - end_ago_seconds) - self._at_each(now - begin_ago_seconds)
        return np.asarray(joules / (begin_ago_seconds - end_ago_seconds), dtype=np.float64)

    def _at_each(self, moments: Floats) -> Floats:
        """Energy of each board at its moment, (n,)."""
        after = np.searchsorted(self.ends[: self.last + 1], moments, side="right")
        i, board = np.clip(after - 1, 0, self.last - 1), np.arange(len(moments))
        share = (moments - self.ends[i]) / (self.ends[i + 1] - self.ends[i])
        before = self.rows[i, board]
        return np.asarray(before + share * (self.rows[i + 1, board] - before), dtype=np.float64)

    def scale(self, which: Integers, ratio: Floats) -> None:
        """Multiply the draws that are kept of some boards, each by its ratio, both (k,)."""
        first, last = self._oldest(), self.last
        now = self.rows[last, which]
        kept = self.rows[first:last, which]
        self.rows[first:last, which] = now + (kept - now) * ratio
