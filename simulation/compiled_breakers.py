"""Breakers compiled: a step in which none is overloaded, the same to the last bit.

``Breakers`` stays the form to read, the oracle, and what carries overloads, which are rare.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulation.plant_breakers import Bools, Breakers, Floats
from wattpack.compiled import compiled

Integers = NDArray[np.int64]


@compiled
def _carry(  # noqa: PLR0913
    watts: Floats, feeds: int, lost_feeds: Integers, feed_watts: Floats, magnetic_ratio: float,
    cooled: float, heat: Floats, peaks: tuple[Floats, Floats], into: Floats,
) -> bool:  # fmt: skip
    """Loads over ratings and heat, (2, n), of a step without an overload; False if there is one.

    Args:
        peaks: Highest heat and load, (n,) each; raised where no breaker is overloaded.
        into: What is returned.
    """
    ratio, cooler = into[0], into[1]
    calm = True
    for i in range(len(watts)):
        ratio[i] = watts[i] / max(1, feeds - lost_feeds[i]) / feed_watts[i]
        calm &= ratio[i] <= 1.0 and ratio[i] < magnetic_ratio and heat[i] < 1.0
    if not calm:
        return False
    max_heat, peak_ratio = peaks
    for i in range(len(watts)):
        cooler[i] = heat[i] * cooled
        max_heat[i] = max(max_heat[i], cooler[i])
        peak_ratio[i] = max(peak_ratio[i], ratio[i])
    return True


class CompiledBreakers(Breakers):
    """``Breakers`` with compiled steps below the rating; arguments are the same."""

    _cooled = (0.0, 1.0)  # of a step of so many seconds

    def advance(self, watts: Floats, seconds: float) -> Bools:
        """As ``Breakers.advance``."""
        if seconds != self._cooled[0]:
            self._cooled = seconds, float(np.exp(-seconds / self._cooling_seconds))
        into = np.empty((2, len(watts)))
        peaks = (self.max_heat, self.peak_ratio)
        if not _carry(
            watts, self._feeds, self.lost_feeds, self._feed_watts, self._magnetic_ratio,
            self._cooled[1], self.heat, peaks, into,
        ):  # fmt: skip
            return super().advance(watts, seconds)
        self.ratio, self.heat = into
        return np.zeros(len(watts), dtype=np.bool_)
