"""Peaks of a model whose history is not of the present give way to the present's own.

For a day after a break (``present_level``) the models' quantiles are those of another series; then
the peak is the present's (``present_peaks``). Each issue looks anew, so a forecast is right again
an hour after its domain changed, while the models learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecasting.power_forecast.present_level import present_since
from forecasting.power_forecast.present_peaks import (
    DAY_SECONDS,
    LEVELS,
    PresentDraw,
    present_peak_quantiles,
)
from forecasting.series_source import Floats

WINDOW_SECONDS: Final = 6 * 3600
"""That ``present_peaks`` speaks of: a longer window is promised at least as much, not instead."""

LEARNED_SECONDS: Final = DAY_SECONDS
"""After a break until models know the new days. Assumed: one day, as the least that they need."""


class PresentPeaks(NamedTuple):
    """What to promise.

    Attributes:
        peaks: Quantiles of the window's peak, (n, n_levels), sorted.
        broken: Rows that are the present's, not the models', (n,).
    """

    peaks: Floats
    broken: NDArray[np.bool_]


def with_present(
    peaks: Floats, levels: Sequence[float], present: PresentDraw, window_seconds: int
) -> PresentPeaks:
    """The peaks, those of domains that broke within a day taken from the present.

    Args:
        peaks: The models', calibrated, not yet bounded, (n, n_levels).
        levels: Ascending; those below the median keep the models' value, at most the median's.
        present: The same domains.
        window_seconds: Of the peaks.
    """
    made = np.array(peaks, dtype=np.float64)
    first = int(np.searchsorted(np.asarray(levels), LEVELS[0]))
    if first == len(levels):
        return PresentPeaks(made, np.zeros(len(made), dtype=np.bool_))
    own = present_peak_quantiles(present, levels[first:])
    since = present_since(present.values, present.step_seconds)
    age_seconds = (present.values.shape[1] - since) * present.step_seconds
    broken = (since > 0) & (age_seconds < LEARNED_SECONDS) & np.isfinite(own).all(axis=1)
    if window_seconds > WINDOW_SECONDS:
        own = np.fmax(own, made[:, first:])
    made[broken, first:] = own[broken]
    made[broken, :first] = np.minimum(made[broken, :first], own[broken, :1])
    return PresentPeaks(made, np.asarray(broken))
