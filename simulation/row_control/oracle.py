"""The most work that any policy could get through a row of limited domains: a bound, not a policy.

It knows at every moment what every board wants, what servers draw besides, and what a watt buys;
its limits act at once and hold exactly. It fills every domain to its limit and keeps the order that
policies keep: low priority gives first, down to its floor, then high, then all below their floors,
low first. Within a class, watts go where they buy most.

Watts are AC at the breaker. Along concave curves the filling below is exact: domains form a tree,
and there taking the next best piece that still fits is optimal, so each rack is cut at its own
limit and what is left of all racks at the row's (greedy on a polymatroid; Federgruen and
Groenevelt, Operations Research 34, 1986). Speed curves are made concave from above for it
(``ShareCurves.hulled``), which only raises the bound.

It shares nothing with ``controller`` or ``wattpack.power``, which it helps to judge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.row_control.compiled_oracle import MOST_RACKS, shares_with_room
from simulation.row_control.random_work import Worth
from simulation.row_control.share_curves import share_grid
from simulation.row_control.work import HIGH
from wattpack.compiled import AVAILABLE

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OracleLimits:
    """What boards and domains may and must draw.

    Attributes:
        rack_of_gpu: (n_gpus,).
        rack_watts: AC watts left for boards in each rack, (n_racks,).
        row_watts: AC watts left for boards in the row.
        ac_per_watt: AC watts that a board's watt brings at the breaker, (n_gpus,).
        floor_watts: Kept while anything else can give, (n_gpus,).
        least_watts: Below which no limit holds a board, (n_gpus,).
        most_watts: Above which no board is let, whatever it wants, (n_gpus,).
    """

    rack_of_gpu: Integers
    rack_watts: Floats
    row_watts: float
    ac_per_watt: Floats
    floor_watts: Floats
    least_watts: Floats
    most_watts: Floats


def best_shares(worth: Worth, wanted_watts: Floats, limits: OracleLimits) -> Floats:
    """As ``best_shares_in_numpy``; compiled where there is room for everybody."""
    if AVAILABLE and len(limits.rack_watts) <= MOST_RACKS:
        share = np.empty(len(wanted_watts))
        of_boards = (limits.rack_of_gpu, limits.ac_per_watt, limits.floor_watts,
                     limits.least_watts, limits.most_watts)  # fmt: skip
        room = np.append(limits.rack_watts, limits.row_watts)
        unit, priority = worth.unit_of_gpu, worth.priority
        if shares_with_room(unit, priority, wanted_watts, of_boards, room, share):
            return share
    return best_shares_in_numpy(worth, wanted_watts, limits)


def best_shares_in_numpy(worth: Worth, wanted_watts: Floats, limits: OracleLimits) -> Floats:
    """Drawn over wanted watts of each board that gets the most work done, (n_gpus,).

    Boards of a unit get the same share. What cannot be held is drawn even where limits are too low.

    Args:
        worth: What a watt buys; its curves concave.
        wanted_watts: (n_gpus,).
        limits: What may be drawn.
    """
    unit, n = worth.unit_of_gpu, len(worth.rate)
    ac_watts = np.bincount(unit, wanted_watts * limits.ac_per_watt, n).astype(np.float64)

    def share_of(watts: Floats) -> Floats:
        kept = np.minimum(watts, wanted_watts) * limits.ac_per_watt
        return np.asarray(np.bincount(unit, kept, n) / ac_watts)

    least = share_of(limits.least_watts)
    floor = np.maximum(least, share_of(limits.floor_watts))
    high = worth.priority == HIGH
    filling = _Filling(worth, ac_watts, limits, least)
    filling.lift(floor, high)
    filling.lift(floor, ~high)
    most = np.maximum(floor, share_of(limits.most_watts))
    filling.lift(most, high)
    filling.lift(most, ~high)
    return np.asarray(filling.share[unit])


class _Filling:
    """Shares of all units, and the AC watts that are still free in racks and row."""

    def __init__(self, worth: Worth, ac_watts: Floats, limits: OracleLimits, share: Floats) -> None:
        self.share = share.copy()
        self._worth, self._ac_watts = worth, ac_watts
        self._rack = np.zeros(len(ac_watts), dtype=np.int64)
        self._rack[worth.unit_of_gpu] = limits.rack_of_gpu
        self._rack_room, self._row_room = limits.rack_watts, limits.row_watts
        self._take(np.arange(len(share)), share)

    def lift(self, end: Floats, of: Bools) -> None:
        """Take some units towards a share, as far as there is room."""
        units = np.flatnonzero(of & (end > self.share))
        whole = (end - self.share)[units]
        asked = self._by_rack(units, whole)
        fits = (asked <= self._rack_room).all() and asked.sum() <= self._row_room
        lifted = whole if fits else self._best_lift(units, end[units])
        self.share[units] += lifted
        self._take(units, lifted)

    def _best_lift(self, units: Integers, end: Floats) -> Floats:
        """How far each of the units is lifted, by the work that a watt buys, (len(units),)."""
        grid, begin = share_grid()[np.newaxis], self.share[units]
        # Cut where a curve bends: in between, each watt buys the same.
        points = np.clip(grid, begin[:, np.newaxis], end[:, np.newaxis])
        sizes = np.diff(points, axis=1)
        work = np.diff(self._speeds(units, points), axis=1)
        row, column = np.nonzero(sizes > 0.0)
        unit, size = units[row], sizes[row, column]
        watts = size * self._ac_watts[unit]
        worth = work[row, column] * self._worth.rate[unit] / np.maximum(watts, 1e-12)
        order = np.argsort(-worth, kind="stable")
        kept, rack = watts[order], self._rack[unit][order]
        for number, free in enumerate(self._rack_room):
            here = rack == number
            kept[here] = _cut(kept[here], float(free))
        kept = _cut(kept, self._row_room)
        lifts = size[order] * kept / watts[order]
        return np.bincount(row[order], lifts, len(units)).astype(np.float64)

    def _speeds(self, units: Integers, share: Floats) -> Floats:
        """Speeds of some units at some shares each, (len(units), n_points)."""
        worth, n = self._worth, share.shape[1]
        low, high = (
            worth.curves.at(np.repeat(curve[units], n), share.ravel()).reshape(share.shape)
            for curve in (worth.low_curve, worth.high_curve)
        )
        return np.asarray(low + worth.mix[units, np.newaxis] * (high - low))

    def _by_rack(self, units: Integers, share: Floats) -> Floats:
        watts = share * self._ac_watts[units]
        return np.bincount(self._rack[units], watts, len(self._rack_room)).astype(np.float64)

    def _take(self, units: Integers, share: Floats) -> None:
        taken = self._by_rack(units, share)
        self._rack_room = np.maximum(self._rack_room - taken, 0.0)
        self._row_room = max(0.0, self._row_room - float(taken.sum()))


def _cut(watts: Floats, room: float) -> Floats:
    """As much of a sequence, from its begin, as there is room for."""
    before = np.cumsum(watts) - watts
    return np.asarray(np.clip(room - before, 0.0, watts))
