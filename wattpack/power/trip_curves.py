"""Trip curves: how long a breaker bears a load ratio, and which ratio it bears for a given time.

A curve speaks of a hot breaker at the lower edge of its tolerance. Ratios are worst-phase load over
trip rating.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattpack.masks import some
from wattpack.power.domain_tree import BreakerCurve, FloatArray

__all__ = ["RACK_THERMAL", "SWITCHBOARD_THERMAL", "CurveBank", "cold_points"]

# Breakers trip up to 20 % earlier than their nominal curve (UL 489 bands; the safe edge).
LOWER_TOLERANCE_EDGE = 0.8
# A breaker that already carries its rating trips in a quarter of the time of a cold one (I2).
HOT_OVER_COLD = 0.25

# Fits t = a (r^2 - 1)^-b to trip times quoted of Dynamo (ISCA 2016): rack at 10 % and 40 %, main
# switchboard at 5 % and 15 % overload. Quoted second hand: a site gives its own curve as points.
RACK_THERMAL = BreakerCurve(LOWER_TOLERANCE_EDGE * 55.6, 1.864)
SWITCHBOARD_THERMAL = BreakerCurve(LOWER_TOLERANCE_EDGE * 30.3, 0.605)


def cold_points(seconds: Sequence[float]) -> tuple[float, ...]:
    """Trip times of a hot breaker from those of a cold one."""
    return tuple(HOT_OVER_COLD * s for s in seconds)


class CurveBank:
    """The curves of all domains, evaluated at once.

    Args:
        curves: One a domain.
    """

    def __init__(self, curves: Sequence[BreakerCurve]) -> None:
        self._a_seconds = np.array([c.a_seconds for c in curves], dtype=np.float64)
        self._b_exponent = np.array([c.b_exponent for c in curves], dtype=np.float64)
        self._points = [(i, c) for i, c in enumerate(curves) if c.load_ratios]
        self._feeds = [(i, c.feed) for i, c in enumerate(curves) if c.feed is not None]

    def trip_seconds(self, load_ratio: FloatArray) -> FloatArray:
        """Time to trip from heat 0 at a constant ratio, infinite up to ratio 1, (n_domains,)."""
        over = load_ratio > 1.0
        if not some(over):
            return np.full(len(load_ratio), np.inf)
        excess = np.maximum(np.square(load_ratio) - 1.0, 0.0)
        with np.errstate(divide="ignore"):
            seconds = self._a_seconds * excess**-self._b_exponent
        for i, curve in self._points:
            seconds[i] = _interpolated_seconds(curve, float(load_ratio[i]))
        for i, feed in self._feeds:
            seconds[i] = min(seconds[i], _interpolated_seconds(feed, float(load_ratio[i])))
        return np.asarray(np.where(over, seconds, np.inf), dtype=np.float64)

    def ratio_borne_for(self, seconds: FloatArray) -> FloatArray:
        """Highest load ratio that takes at least that long to trip, >= 1, (n_domains,)."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ratio = np.sqrt(1.0 + (self._a_seconds / seconds) ** (1.0 / self._b_exponent))
        for i, curve in self._points:
            ratio[i] = _interpolated_ratio(curve, float(seconds[i]))
        for i, feed in self._feeds:
            ratio[i] = min(ratio[i], _interpolated_ratio(feed, float(seconds[i])))
        return np.asarray(np.where(np.isinf(seconds), 1.0, ratio), dtype=np.float64)


def _interpolated_seconds(curve: BreakerCurve, load_ratio: float) -> float:
    """Log-log between points; held at the first and last point outside of them (both safe)."""
    if load_ratio <= 1.0:
        return float("inf")
    logs = np.interp(np.log(load_ratio), np.log(curve.load_ratios), np.log(curve.trip_seconds))
    return float(np.exp(logs))


def _interpolated_ratio(curve: BreakerCurve, seconds: float) -> float:
    if seconds > curve.trip_seconds[0]:
        return 1.0
    if seconds <= curve.trip_seconds[-1]:
        return float("inf")
    falling = np.log(curve.trip_seconds)
    logs = np.interp(np.log(seconds), falling[::-1], np.log(curve.load_ratios)[::-1])
    return float(np.exp(logs))
