"""A peak whose p99 the newest value has already passed: the present stands in for the models.

After a load has come that nothing before resembles, models take hours to believe it: of a service
that tripled, the p99 of the next six hours lay below what was already there for six hours. Domains
have a rule of their own an hour after a break (``power_forecast.present_floor``); this one holds
for every series, from the first bin on. It never held in 2,580 windows of 86 real series (bins
0-1439 of the forecasting sets, ridge), so it costs what is promised in ordinary hours nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.clean_history import Cleaned
from forecasting.forecast import level_index
from forecasting.power_forecast.present_peaks import LEVELS, PresentDraw, present_peak_quantiles
from forecasting.series_source import Floats

ABOVE_P99: Final = "above-p99"
"""Flag of an answer for which the present stands in."""


def with_passed(
    peaks: Floats, levels: Sequence[float], cleaned: Cleaned, step_seconds: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Peaks from the median up no lower than the present's where their p99 is passed, and where.

    A reading that is not believed passes nothing, nor does work that has gone since.

    Args:
        peaks: Calibrated, not bounded, shape (n_series, n_levels).
        levels: Ascending, 0.99 among them.
        cleaned: What the models were told.
        step_seconds: Width of a bin.
    """
    believed = cleaned.newest <= cleaned.highest
    here = np.fmin(cleaned.newest, cleaned.filled[:, -1])
    passed: NDArray[np.bool_] = believed & (peaks[:, level_index(levels, 0.99)] < here)
    rows = np.flatnonzero(passed)
    if not len(rows):
        return peaks, passed
    unknown = np.full(len(rows), np.nan)
    present = PresentDraw(cleaned.filled[rows], step_seconds, unknown, unknown, unknown)
    first = int(np.searchsorted(np.asarray(levels), LEVELS[0]))
    made = peaks.copy()
    own = present_peak_quantiles(present, levels[first:])
    made[rows, first:] = np.fmax(made[rows, first:], own)
    return made, passed
