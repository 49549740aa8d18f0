"""Since when a history is of the present: days that do not resemble it lose their authority.

A history is broken where the mean of an hour differs from the hour before by more than it ever did
before that. What lies before the break is another series under the same name: another mix of work,
a rebuilt row, synthetic days. An hour after the break it is seen; then the maxima of days before it
neither lift nor lower a forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.series_source import Floats

HOUR_SECONDS: Final = 3600

BREAK_RATIO: Final = 1.25
"""Over the largest change before. On 150 twin domains whose days before are of another kind (seed
100 of ``benchmarks.power_forecast``) it finds 56 % of the breaks after one hour, others
being no larger than those days' own movements, and 2 % where there is none; 1.0 finds 62 and 11 %,
1.5 finds 47 and 0 %."""

LOOK_BACK_SECONDS: Final = 3 * 86400
"""Older breaks have passed: all that the maxima of three days see is of the present then."""

LEAST_BEFORE_SECONDS: Final = 86400
"""Of values before a break: with less nothing says how it used to move. The days before a domain's
first value say nothing either. Three days would flag fewer that did not break (9 % for 25 % of
noisy waves that are four days old) and miss what a day finds: promises break in its place."""


def present_since(values: Floats, step_seconds: int) -> np.ndarray:
    """First bin of the present in each series, 0 where nothing broke, shape (n,).

    The oldest break of the last three days counts: what came after it is kept, also where it moved
    as strongly again.

    Args:
        values: (n, n_bins); NaN for gaps. Those of up to half an hour stand on the line between
            their neighbours; the hours around a longer one are held against hours as far apart.
        step_seconds: Width of a bin.
    """
    n, n_bins = values.shape
    hour = max(1, HOUR_SECONDS // step_seconds)
    first = max(hour, LEAST_BEFORE_SECONDS // step_seconds)
    if n_bins < first + 2 * hour:
        return np.zeros(n, dtype=np.intp)
    hours = _Hours.of(values, hour)
    # change[i] is that between the hours before and after bin i + hour.
    change, is_told = hours.changes(hour)
    before = np.maximum.accumulate(change, axis=1)
    begin = max(first, change.shape[1] - LOOK_BACK_SECONDS // step_seconds)
    has_moved = np.cumsum(is_told, axis=1)[:, begin - 1 : -1] >= first
    broken = change[:, begin:] > BREAK_RATIO * before[:, begin - 2 * hour : -2 * hour]
    broken &= has_moved
    # A break shows from an hour before it on, most clearly at its own bin.
    seen = begin + np.argmax(broken, axis=1)
    around = np.minimum(seen[:, None] + np.arange(2 * hour), change.shape[1] - 1)
    clearest = np.argmax(np.take_along_axis(change, around, axis=1), axis=1)
    since = np.where(broken.any(axis=1), seen + clearest + hour, 0)
    for row, start, end in hours.gaps(begin + hour):
        if (since[row] == 0 or end < since[row]) and hours.rows(row).breaks(start, end, first):
            since[row] = end
    return since


@dataclass(frozen=True, slots=True)
class _Hours:
    """Means of hours.

    Attributes:
        bins: Bins of an hour.
        known: Bins with a value, or in a gap of up to half an hour, (n, n_bins).
        means: Of the hour from each bin on, (n, n_bins - bins + 1).
        told: Hours of which all bins are known; the other means say nothing.
    """

    bins: int
    known: NDArray[np.bool_]
    means: Floats
    told: NDArray[np.bool_]

    @classmethod
    def of(cls, values: Floats, bins: int) -> _Hours:
        """Of series, (n, n_bins)."""
        n, n_bins = values.shape
        at, known = np.arange(n_bins), np.isfinite(values)
        left = np.maximum.accumulate(np.where(known, at, -1), axis=1)
        right = np.minimum.accumulate(np.where(known, at, n_bins)[:, ::-1], axis=1)[:, ::-1]
        bridged = ~known & (left >= 0) & (right < n_bins) & (right - left <= bins // 2 + 1)
        filled = np.where(known, values, 0.0)
        row, place = np.nonzero(bridged)
        low, high = left[row, place], right[row, place]
        rise = (values[row, high] - values[row, low]) / (high - low)
        filled[row, place] = values[row, low] + rise * (place - low)
        known |= bridged
        sums, counts = (
            np.concatenate([np.zeros((n, 1)), np.cumsum(of, axis=1)], axis=1)
            for of in (filled, known)
        )
        means = (sums[:, bins:] - sums[:, :-bins]) / bins
        return cls(bins, known, means, counts[:, bins:] - counts[:, :-bins] == bins)

    def rows(self, row: int) -> _Hours:
        """One series alone."""
        of = slice(row, row + 1)
        return _Hours(self.bins, self.known[of], self.means[of], self.told[of])

    def changes(self, apart: int) -> tuple[Floats, NDArray[np.bool_]]:
        """How much hours so many bins apart differ, and which are told; 0 where they are not.

        Those of neighbours are told where nothing between them is missing.
        """
        told = self.told[:, apart:] & self.told[:, :-apart]
        return np.where(told, np.abs(self.means[:, apart:] - self.means[:, :-apart]), 0.0), told

    def gaps(self, since: int) -> Iterator[tuple[int, int, int]]:
        """Row, first bin and end of gaps that end from a bin on, the oldest first in each row."""
        ends = self.known[:, 1:] & ~self.known[:, :-1]
        ends[:, : since - 1] = False
        for row, last in np.argwhere(ends).tolist():
            before = np.flatnonzero(self.known[row, :last])
            if len(before):
                yield row, int(before[-1]) + 1, last + 1

    def breaks(self, start: int, end: int, least: int) -> bool:
        """Whether the hours around a gap of the first series differ as none so far apart did."""
        low, apart = start - self.bins, end - start + self.bins
        if low < 0 or low + apart >= self.means.shape[1]:
            return False
        change, told = self.changes(apart)
        ever = slice(0, max(0, low - apart + 1))
        if not told[0, low] or np.count_nonzero(told[0, ever]) < least:
            return False
        return bool(change[0, low] > BREAK_RATIO * change[0, ever].max())


def at_present_level(values: Floats, since: np.ndarray, step_seconds: int) -> Floats:
    """The history with all before a break moved by what the break moved, never negative.

    How the days before went may still tell how a day goes; how high they were does not.

    Args:
        values: (n, n_bins).
        since: First bin of the present, 0 where nothing broke, (n,).
        step_seconds: Width of a bin.
    """
    hour = max(1, HOUR_SECONDS // step_seconds)
    filled, made = _filled(values), np.array(values, dtype=np.float64)
    for row in np.flatnonzero(since):
        at = int(since[row])
        moved = filled[row, at : at + hour].mean() - filled[row, max(0, at - hour) : at].mean()
        made[row, :at] = np.maximum(made[row, :at] + moved, 0.0)
    return made


def _filled(values: Floats) -> Floats:
    """Gaps at the value before them, those at the begin at the first value."""
    known = np.isfinite(values)
    place = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), -1), axis=1)
    place = np.where(place < 0, np.argmax(known, axis=1)[:, None], place)
    return np.nan_to_num(np.take_along_axis(values, place, axis=1), posinf=0.0, neginf=0.0)
