"""A draw that load tells, on the level of what load does not tell now.

    draw ─ factor · load = residual ─► did it break? ─► days before, moved ─► fit anew

Work that came beside the load (batch jobs on free boards) lifts the residual and says nothing
against the load; load that doubles lifts the draw and is no break at all.
"""

from __future__ import annotations

import numpy as np

from forecasting.power_forecast.draw_aside import DrawAside
from forecasting.power_forecast.load_power import LoadFit, residual_watts
from forecasting.power_forecast.present_level import HOUR_SECONDS, present_since
from forecasting.series_source import Floats


def on_present_residual(
    aside: DrawAside, draw_watts: Floats, step_seconds: int
) -> tuple[Floats, LoadFit]:
    """The draw with all before a break of the residual moved by it, and how load tells that.

    Args:
        aside: With the load.
        draw_watts: What the domain wanted, (n_bins,); NaN for gaps.
        step_seconds: Width of a bin.
    """
    fit = aside.fit(draw_watts, step_seconds)
    if not len(aside.load_watts):
        return draw_watts, fit
    rest = residual_watts(draw_watts, aside.load_watts.sum(axis=0), fit)
    at, watts = _break_of(rest, step_seconds)
    if not at:
        return draw_watts, fit
    moved = draw_watts.copy()
    moved[:at] += watts
    return moved, aside.fit(moved, step_seconds)


def _break_of(rest_watts: Floats, step_seconds: int) -> tuple[int, float]:
    """First bin after the break and by how much it moved the residual; 0 and 0 without one.

    A break shows once the newest hour's mean has moved; its own bin is where the residual moved
    most within that hour. So the level is known from the first bin after it on: by means of whole
    hours a sixth of the way would be told, and the rest taken for a peak that goes by.
    """
    since = int(present_since(rest_watts[None], step_seconds)[0])
    if not since:
        return 0, 0.0
    hour = max(1, HOUR_SECONDS // step_seconds)
    changes = np.abs(np.diff(rest_watts[since - 1 : since + hour]))
    if not np.isfinite(changes).any():
        return 0, 0.0
    at = since + int(np.nanargmax(changes))
    before, after = rest_watts[at - hour : at], rest_watts[at : at + hour]
    return at, float(np.nanmean(after) - np.nanmean(before))
