"""The hottest hours of six weeks as windows of a run; looks at no policy."""

from __future__ import annotations

from typing import Final

import numpy as np

from simulation.inference_row.client_arrivals import DAY_SECONDS, ClientArrivals
from simulation.inference_row.row_under_policy import Window

SIX_WEEKS_DAYS: Final = 42
PEAK_HOUR: Final = 13.0
LEAD_SECONDS: Final = 600.0
TAIL_SECONDS: Final = 300.0


def hottest_windows(arrivals: ClientArrivals, count: int, hours: float) -> list[Window]:
    """From 13:00 on of the days whose clients ask for most then, the hottest first.

    Args:
        arrivals: Of the row.
        count: Days.
        hours: Of each.
    """
    asked = []
    for day in range(SIX_WEEKS_DAYS):
        begin = day * DAY_SECONDS + PEAK_HOUR * 3600.0
        asked.append(arrivals.expected_seconds(begin, begin + hours * 3600.0))
    return [
        Window(
            float(day) * DAY_SECONDS + PEAK_HOUR * 3600.0 - LEAD_SECONDS,
            LEAD_SECONDS,
            hours * 3600.0,
            TAIL_SECONDS,
        )
        for day in np.argsort(asked)[::-1][:count]
    ]
