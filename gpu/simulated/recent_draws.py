"""What boards drew in the last second or so, so that a mean over any part of it can be taken."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from gpu.simulated.board_spec import Bools, Floats


class RecentDraws:
    """Energy at the end of every tick, linear in between; ticks may be of any length.

    Args:
        watts: What the boards drew before the first tick, (n,).
        keep_seconds: How far back means are asked for.
    """

    def __init__(self, watts: Floats, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._ends = [-keep_seconds, 0.0]
        self._joules = [-keep_seconds * watts, np.zeros(len(watts))]

    @property
    def joules(self) -> Floats:
        """Drawn since the first tick began, (n,)."""
        return self._joules[-1]

    def add(self, watts: Floats, seconds: float) -> None:
        """Append a tick with its mean draw, (n,)."""
        now = self._ends[-1] + seconds
        self._joules.append(self._joules[-1] + watts * seconds)
        self._ends.append(now)
        # One entry older than what is kept stays: means interpolate from it.
        old = bisect_right(self._ends, now - self._keep_seconds) - 1
        if old > 0:
            del self._ends[:old], self._joules[:old]

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
        i = bisect_right(self._ends, moment) - 1
        if i == len(self._ends) - 1:
            return self._joules[-1]
        share = (moment - self._ends[i]) / (self._ends[i + 1] - self._ends[i])
        return self._joules[i] + share * (self._joules[i + 1] - self._joules[i])

    def scale(self, ratio: Floats, where: Bools) -> None:
        """Multiply all past draws of some boards, each by its ratio, both (n,)."""
        which = np.flatnonzero(where)
        now, factor = self._joules[-1][which].copy(), ratio[which]
        for joules in self._joules:
            joules[which] = now + (joules[which] - now) * factor
