"""Quantiles of a window's peak as statuses carry them, and what lies between."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from forecasting.series_source import Floats
from wattpack.units import require_number

LEAST_RISK: Final = 0.01
"""What nobody's setting goes below: beyond the p99 nothing is published."""

MOST_RISK: Final = 0.5
"""Of the median."""


def between_levels(asked: Floats, levels: Floats, values: Floats) -> Floats:
    """Quantiles at levels between known ones: linear in the logarithm of the risk.

    Args:
        asked: In (0, 1), shape (n,).
        levels: Rising, shape (n_levels,).
        values: Theirs, the same shape.

    Returns:
        Shape (n,); beyond the outermost levels their values.
    """
    return np.interp(-np.log1p(-asked), -np.log1p(-levels), values)


class PeakQuantiles(NamedTuple):
    """Of one window, in the unit of the series, rising."""

    p50: float
    p95: float
    p99: float

    def at_risk(self, risk: float) -> float:
        """What is exceeded in this share of windows: linear in the logarithm of the risk between.

        Between two quantiles an exponential tail is taken (assumed), as ``present_peaks`` does; it
        lies above the straight line in the risk wherever a peak's tail is longer.

        Raises:
            InputError: a risk below 0.01 or above 0.5.
        """
        asked = require_number("risk", risk, minimum=LEAST_RISK, maximum=MOST_RISK)
        known = ((MOST_RISK, self.p50), (0.05, self.p95), (LEAST_RISK, self.p99))
        for (high, low_value), (low, high_value) in pairwise(known):
            if asked > low:
                share = math.log(high / asked) / math.log(high / low)
                return low_value + share * (high_value - low_value)
            if asked == low:
                return high_value
        return self.p99

    def cut(self, top: float) -> PeakQuantiles:
        """None of them above the top."""
        return PeakQuantiles(*(min(value, top) for value in self))

    def certain(self) -> PeakQuantiles:
        """Its p99 at every risk: for what was not forecast, so that nobody bets on it."""
        return PeakQuantiles(self.p99, self.p99, self.p99)
