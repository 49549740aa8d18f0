"""Since when a history is of the present: days that do not resemble it lose their authority.

A history is broken where the mean of an hour differs from the hour before by more than it ever did
before that. What lies before the break is another series under the same name: another mix of work,
a rebuilt row, synthetic days. An hour after the break it is seen; then the maxima of days before it
neither lift nor lower a forecast.
"""

from __future__ import annotations

from typing import Final

import numpy as np

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
first value say nothing either."""


def present_since(values: Floats, step_seconds: int) -> np.ndarray:
    """First bin of the present in each series, 0 where nothing broke, shape (n,).

    The oldest break of the last three days counts: what came after it is kept, also where it moved
    as strongly again.

    Args:
        values: (n, n_bins); NaN for gaps, which stand at the value before them, and before the
            first value, where nothing moves.
        step_seconds: Width of a bin.
    """
    n, n_bins = values.shape
    hour = max(1, HOUR_SECONDS // step_seconds)
    first = max(hour, LEAST_BEFORE_SECONDS // step_seconds)
    if n_bins < first + 2 * hour:
        return np.zeros(n, dtype=np.intp)
    filled = _filled(values)
    sums = np.concatenate([np.zeros((n, 1)), np.cumsum(filled, axis=1)], axis=1)
    means = (sums[:, hour:] - sums[:, :-hour]) / hour
    # change[i] is that between the hours before and after bin i + hour.
    change = np.abs(means[:, hour:] - means[:, :-hour])
    begun = np.maximum.accumulate(np.isfinite(values), axis=1)[:, : change.shape[1]]
    change = np.where(begun, change, 0.0)
    before = np.maximum.accumulate(change, axis=1)
    begin = max(first, change.shape[1] - LOOK_BACK_SECONDS // step_seconds)
    has_moved = np.cumsum(begun, axis=1)[:, begin - 1 : -1] >= first
    broken = change[:, begin:] > BREAK_RATIO * before[:, begin - 2 * hour : -2 * hour]
    broken &= has_moved
    # A break shows from an hour before it on, most clearly at its own bin.
    seen = begin + np.argmax(broken, axis=1)
    around = np.minimum(seen[:, None] + np.arange(2 * hour), change.shape[1] - 1)
    clearest = np.argmax(np.take_along_axis(change, around, axis=1), axis=1)
    return np.where(broken.any(axis=1), seen + clearest + hour, 0)


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
