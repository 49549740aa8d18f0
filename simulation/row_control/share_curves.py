"""Speed of work by the share of its wanted watts that a board draws, from the capacity model.

One curve a GPU type and kernel class, on one even grid of shares from 0 to 1. ``hulled`` gives the
smallest concave curves above them: what time sharing between two caps could reach, and so a bound
for anybody. Above a share of 0.6 the two differ by less than 0.03 (bumps in the derived training
curve of the H100 and H200).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from capacity.capacity_table import ProfileTable, class_index, throughput
from capacity.gpu_profile import GpuProfile

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KERNELS: Final = ("prefill", "decode", "training", "batch")
PREFILL, DECODE, TRAINING, BATCH = range(len(KERNELS))
GRID_POINTS: Final = 41


@dataclass(frozen=True, slots=True)
class ShareCurves:
    """Curves of all GPU types of a row; curve ``type * len(KERNELS) + kernel``.

    Attributes:
        speed: Relative speed at shares 0 to 1, 0 at 0 and 1 at 1, (n_curves, GRID_POINTS).
        hot_watts: Median draw of each curve's kernels without a limit, (n_curves,).
    """

    speed: Floats
    hot_watts: Floats

    @classmethod
    def of(cls, profiles: Sequence[GpuProfile]) -> ShareCurves:
        """The curves of these types, in their order."""
        table = ProfileTable.of(profiles)
        model = np.repeat(np.arange(len(profiles), dtype=np.intp), len(KERNELS))
        kernel = np.tile(class_index(KERNELS), len(profiles))
        hot = table.p50_watts[model, kernel]
        full = throughput(table, model, kernel, hot)
        speed = np.empty((len(model), GRID_POINTS))
        for i, share in enumerate(share_grid()):
            watts = share * hot
            # Below its lowest cap the table stays level; less than that is not told: in proportion.
            lowest = table.grid[0] * table.default_limit_watts[model]
            below = np.minimum(1.0, watts / lowest)
            speed[:, i] = throughput(table, model, kernel, watts) / full * below
        return cls(np.minimum(speed, 1.0), hot)

    def hulled(self) -> ShareCurves:
        """The smallest concave curves above these."""
        return replace(self, speed=np.array([_concave(row) for row in self.speed]))

    def at(self, curve: Integers, share: Floats) -> Floats:
        """Speeds on the curves, (n,).

        Args:
            curve: Which curve, (n,).
            share: Drawn over wanted watts; held at 0 and 1, (n,).
        """
        low, above = _places(share)
        return self._between(curve, low, above)

    def at_both(self, first: Integers, second: Integers, share: Floats) -> tuple[Floats, Floats]:
        """Speeds on two curves at the same shares, as ``at`` has them, (n,) each."""
        low, above = _places(share)
        return self._between(first, low, above), self._between(second, low, above)

    def _between(self, curve: Integers, low: Integers, above: Floats) -> Floats:
        index = curve * GRID_POINTS + low
        below = self.speed.take(index)
        return np.asarray(below + above * (self.speed.take(index + 1) - below))


def _places(share: Floats) -> tuple[Integers, Floats]:
    """The point of the grid below each share, and how far it is above that, (n,) each."""
    place = np.minimum(np.maximum(share, 0.0), 1.0) * (GRID_POINTS - 1)
    low = np.minimum(place.astype(np.int64), GRID_POINTS - 2)
    return low, place - low


def share_grid() -> Floats:
    """The shares at which curves are kept, (GRID_POINTS,)."""
    return np.linspace(0.0, 1.0, GRID_POINTS)


def _concave(values: Floats) -> Floats:
    """Upper hull of values at even places, at the same places."""
    kept: list[int] = []
    for i in range(len(values)):
        while len(kept) >= 2 and _bends_up(values, kept[-2], kept[-1], i):
            kept.pop()
        kept.append(i)
    return np.interp(np.arange(len(values)), kept, values[kept])


def _bends_up(values: Floats, first: int, middle: int, last: int) -> bool:
    before = (values[middle] - values[first]) / (middle - first)
    after = (values[last] - values[middle]) / (last - middle)
    return bool(after >= before)
