"""A history as if the work that is there now had always been there.

A pod that began an hour ago is missing from the ten days before; one that ended is in them and will
not draw again. What the capacity model expects of them is added or taken, so that what is learned
is how demand moves, not that pods came and went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forecasting.series_source import Floats, History
from wattpack.errors import InputError
from wattpack.units import require_number


@dataclass(frozen=True, slots=True)
class WorkChange:
    """Work that came to a series, or went.

    Attributes:
        row: Of the series.
        at_seconds: When, Unix time; after the data's end for what is only placed yet.
        watts: Mean that it draws, AC; negative for work that ended.
    """

    row: int
    at_seconds: float
    watts: float

    def __post_init__(self) -> None:
        require_number("at_seconds", self.at_seconds)
        require_number("watts", self.watts)


def history_of_present(history: History, changes: Sequence[WorkChange]) -> Floats:
    """The values with every change moved to before the history's begin, never negative.

    A change counts in all bins before it, and in its own bin for the part before it.

    Args:
        history: Of all series.
        changes: In any order.

    Returns:
        (n_series, n_bins); gaps stay gaps.

    Raises:
        InputError: for a change of no series.
    """
    n, n_bins = history.values.shape
    if any(not 0 <= change.row < n for change in changes):
        raise InputError("row", f"a series below {n}", [c.row for c in changes])
    begin = history.until_seconds - n_bins * history.step_seconds
    # Each change as a fall at its bin: the cumulative sum from the end is what all bins before get.
    falls = np.zeros((n, n_bins + 1))
    for change in changes:
        place = float(np.clip((change.at_seconds - begin) / history.step_seconds, 0.0, n_bins))
        whole = int(place)
        falls[change.row, whole] += change.watts * (place - whole)
        if whole > 0:
            falls[change.row, whole - 1] += change.watts * (1.0 - (place - whole))
    missing = np.cumsum(falls[:, ::-1], axis=1)[:, ::-1][:, :n_bins]
    return np.asarray(np.maximum(history.values + missing, 0.0))
