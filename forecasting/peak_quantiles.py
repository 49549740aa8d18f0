"""Quantiles of a window's peak as statuses carry them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from forecasting.risk_scale import between_levels
from wattpack.api.forecast_subject import LEAST_RISK, MOST_RISK
from wattpack.units import require_number

NAMED_LEVELS: Final[Mapping[str, float]] = MappingProxyType(
    {"p50": 1.0 - MOST_RISK, "p95": 0.95, "p99": 1.0 - LEAST_RISK}
)
"""Levels that every status carries, by their names there."""

STATUS_LEVELS: Final = tuple(NAMED_LEVELS.values())


class PeakQuantiles(NamedTuple):
    """Of one window, in the unit of the series, rising."""

    p50: float
    p95: float
    p99: float

    def at_risk(self, risk: float) -> float:
        """What is exceeded in this share of windows; between two quantiles by ``risk_scale``.

        Raises:
            InputError: a risk below 0.01 or above 0.5.
        """
        asked = require_number("risk", risk, minimum=LEAST_RISK, maximum=MOST_RISK)
        return float(
            between_levels(np.array([1.0 - asked]), np.array(STATUS_LEVELS), np.array(self))[0]
        )

    def cut(self, top: float) -> PeakQuantiles:
        """None of them above the top."""
        return PeakQuantiles(*(min(value, top) for value in self))

    def certain(self) -> PeakQuantiles:
        """Its p99 at every risk: for what was not forecast, so that nobody bets on it."""
        return PeakQuantiles(self.p99, self.p99, self.p99)
