"""Peaks of a model whose history is not of the present give way to the present's own.

For three days after a break (``present_level``) the models' quantiles are those of another series;
then the peak is the present's (``present_peaks``). So it is where somebody says what boards stand
below the domain: they tell more of how far a draw can rise than days do. Each issue looks anew, so
a forecast is right again an hour after its domain changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecasting.power_forecast.present_peaks import LEVELS, PresentDraw, present_peak_quantiles
from forecasting.series_source import Floats

WINDOW_SECONDS: Final = 6 * 3600
"""That ``present_peaks`` speaks of: a longer window is promised at least as much, not instead."""


class PresentPeaks(NamedTuple):
    """What to promise.

    Attributes:
        peaks: Quantiles of the window's peak, (n, n_levels), sorted.
        present: Rows that are the present's, not the models', (n,).
        broken: Those of them whose past is not like the present, (n,).
    """

    peaks: Floats
    present: NDArray[np.bool_]
    broken: NDArray[np.bool_]


def with_present(
    peaks: Floats, levels: Sequence[float], present: PresentDraw, window_seconds: int
) -> PresentPeaks:
    """The peaks, those of domains that broke or whose boards are known taken from the present.

    Args:
        peaks: The models', neither calibrated nor bounded, (n, n_levels).
        levels: Ascending; those below the median keep the models' value, at most the median's.
        present: The same domains.
        window_seconds: Of the peaks.
    """
    made = np.array(peaks, dtype=np.float64)
    nobody = np.zeros(len(made), dtype=np.bool_)
    first = int(np.searchsorted(np.asarray(levels), LEVELS[0]))
    if first == len(levels):
        return PresentPeaks(made, nobody, nobody)
    own = present_peak_quantiles(present, levels[first:])
    answers = np.asarray(np.isfinite(own).all(axis=1))
    broken = answers & (present.since > 0)
    told = broken | (answers & np.isfinite(present.startable_watts + present.busy_watts))
    if window_seconds > WINDOW_SECONDS:
        own = np.fmax(own, made[:, first:])
    made[told, first:] = own[told]
    made[told, :first] = np.minimum(made[told, :first], own[told, :1])
    return PresentPeaks(made, told, broken)
