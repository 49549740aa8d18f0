"""Breakers compiled: a step in which none is overloaded, the same to the last bit.

``Breakers`` stays the form to read, the oracle, and what carries overloads, which are rare.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulation.compiled import compiled
from simulation.plant_breakers import Bools, Breakers, Floats

Integers = NDArray[np.int64]


@compiled
def _load_ratio(
    watts: Floats, feeds: int, lost_feeds: Integers, feed_watts: Floats, ratio: Floats
) -> float:
    """Loads over ratings into ``ratio``; the highest."""
    highest = 0.0
    for i in range(len(watts)):
        ratio[i] = watts[i] / max(1, feeds - lost_feeds[i]) / feed_watts[i]
        highest = max(highest, ratio[i])
    return highest


@compiled
def _cool(
    heat: Floats, cooled: float, ratio: Floats, into: Floats, max_heat: Floats, peak_ratio: Floats
) -> None:
    for i in range(len(heat)):
        into[i] = heat[i] * cooled
        max_heat[i] = max(max_heat[i], into[i])
        peak_ratio[i] = max(peak_ratio[i], ratio[i])


class CompiledBreakers(Breakers):
    """``Breakers`` with compiled steps below the rating; arguments are the same."""

    _cooled = (0.0, 1.0)  # of a step of so many seconds

    def advance(self, watts: Floats, seconds: float) -> Bools:
        """As ``Breakers.advance``."""
        ratio, heat = np.empty((2, len(watts)))
        lost = self.lost_feeds
        highest = _load_ratio(watts, self._feeds, lost, self._feed_watts, ratio)
        if highest > 1.0 or highest >= self._magnetic_ratio or self.heat.max() >= 1.0:
            return super().advance(watts, seconds)
        if seconds != self._cooled[0]:
            self._cooled = seconds, float(np.exp(-seconds / self._cooling_seconds))
        _cool(self.heat, self._cooled[1], ratio, heat, self.max_heat, self.peak_ratio)
        self.ratio, self.heat = ratio, heat
        return np.zeros(len(watts), dtype=np.bool_)
