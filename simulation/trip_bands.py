"""Trip curves of the plant's breakers: points of published curves, shifted inside their band.

Between its points a curve is a straight line of log time over log overload, and goes on beyond
them. The time of a real breaker lies anywhere in the band that its curve is printed with, and not
at the same place for small and large overloads: each breaker draws both ends once a run. A share of
runs has every breaker at the band's lower edge. Times are those of a breaker that carries its
rating already (hot). Written without a look at the controller's fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Points = tuple[tuple[float, float], ...]
"""(load over rating, seconds to trip), rising in the first and falling in the second."""

LOWER_EDGE_SHARE = 0.25
"""Of runs, in which all breakers trip as early as their band allows."""

SMALL_OVERLOAD, LARGE_OVERLOAD = np.log(0.05), np.log(1.0)
"""Between 5 and 100 % above the rating a breaker's place in its band moves from end to end."""


class TripBands:
    """Times to trip of n breakers.

    Args:
        points: Of each breaker's curve.
        tolerance: Half width of the band, a share of the time.
        generator: Of the places in the band; None leaves all in the middle.
    """

    def __init__(
        self,
        points: Sequence[Points],
        tolerance: float,
        generator: np.random.Generator | None = None,
    ) -> None:
        n = len(points)
        self._curves = [_log_points(curve) for curve in points]
        self._low = low = 1.0 - tolerance
        self.factors = np.ones((2, n))  # at small and at large overloads
        if generator is not None:
            places = generator.uniform(low, 1.0 + tolerance, (2, n))
            at_edge = generator.random() < LOWER_EDGE_SHARE
            self.factors = np.full((2, n), low) if at_edge else places

    def seconds_to_trip(self, ratio: Floats) -> Floats:
        """From heat 0 at a constant load over rating, infinite up to 1, (n,)."""
        return self._seconds(ratio, self.factors)

    def earliest_seconds(self, ratio: Floats) -> Floats:
        """The same at the lower edge of the band, (n,)."""
        return self._seconds(ratio, np.full_like(self.factors, self._low))

    def _seconds(self, ratio: Floats, factors: Floats) -> Floats:
        result = np.full(len(ratio), np.inf)
        for i in np.flatnonzero(ratio > 1.0):
            overload = np.log(ratio[i] - 1.0)
            place = np.interp(overload, (SMALL_OVERLOAD, LARGE_OVERLOAD), factors[:, i])
            result[i] = place * np.exp(np.interp(overload, *self._curves[i]))
        return result


def _log_points(curve: Points) -> tuple[Floats, Floats]:
    """A curve as log seconds over log overload, drawn out far beyond both ends."""
    ratios, seconds = np.array(curve).T
    x, y = np.log(ratios - 1.0), np.log(seconds)
    slopes = np.diff(y) / np.diff(x)
    far = np.array([np.log(1e-6), np.log(1e3)])
    begin, end = y[0] + slopes[0] * (far[0] - x[0]), y[-1] + slopes[-1] * (far[1] - x[-1])
    return np.array([far[0], *x, far[1]]), np.array([begin, *y, end])
