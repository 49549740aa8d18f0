"""The oracle's shares where there is room for everybody, compiled: the same to the last bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulation.row_control.work import Floats, Integers
from wattpack.compiled import compiled

MOST_RACKS = 7
"""Numpy adds up to so many numbers one after another; beyond, in an order of its own."""


class UnitShares(NamedTuple):
    """Of units, (n_units,) each: what they have, and to which share they are lifted."""

    share: Floats
    end: Floats
    ac_watts: Floats
    rack: Integers
    priority: Integers


@compiled
def _take(units: UnitShares, which: int, room: Floats) -> bool:
    """Lift the units of a priority to their ends if all fit; -1: note what all have.

    Args:
        units: Shares move to their ends.
        which: The priority.
        room: AC watts free in each rack and, the last one, in the row.
    """
    racks = len(room) - 1
    asked, row = np.zeros(racks), 0.0
    for k in range(len(units.share)):
        if which < 0:
            asked[units.rack[k]] += units.share[k] * units.ac_watts[k]
        elif units.priority[k] == which and units.end[k] > units.share[k]:
            asked[units.rack[k]] += (units.end[k] - units.share[k]) * units.ac_watts[k]
    fits = True
    for number in range(racks):
        fits &= asked[number] <= room[number]
        row += asked[number]
    if which >= 0 and not (fits and row <= room[racks]):
        return False
    for k in range(len(units.share)):
        if units.priority[k] == which and units.end[k] > units.share[k]:
            units.share[k] += units.end[k] - units.share[k]
    for number in range(racks):
        room[number] = max(room[number] - asked[number], 0.0)
    room[racks] = max(0.0, room[racks] - row)
    return True


@compiled
def shares_with_room(
    unit_of_gpu: Integers, priority: Integers, wanted_watts: Floats,
    limits: tuple[Integers, Floats, Floats, Floats, Floats], room: Floats, into: Floats,
) -> bool:  # fmt: skip
    """Shares of all boards, (n_gpus,); False where not everybody gets what is let.

    Args:
        priority: Of units, 1 high and 0 low, (n_units,).
        limits: Of ``OracleLimits``: rack, AC watts a watt, floor, least and most, (n_gpus,) each.
        room: AC watts left in each rack and, the last one, in the row; used up.
        into: What is returned.
    """
    rack_of_gpu, per_watt, floor_watts, least_watts, most_watts = limits
    n = len(priority)
    sums = np.zeros((4, n))
    rack = np.zeros(n, dtype=np.int64)
    for i in range(len(wanted_watts)):
        unit, wanted = unit_of_gpu[i], wanted_watts[i]
        rack[unit] = rack_of_gpu[i]
        sums[0, unit] += wanted * per_watt[i]
        sums[1, unit] += min(least_watts[i], wanted) * per_watt[i]
        sums[2, unit] += min(floor_watts[i], wanted) * per_watt[i]
        sums[3, unit] += min(most_watts[i], wanted) * per_watt[i]
    least, floor, most = sums[1], sums[2], sums[3]
    for k in range(n):
        least[k] /= sums[0, k]
        floor[k] = max(least[k], floor[k] / sums[0, k])
        most[k] = max(floor[k], most[k] / sums[0, k])
    share = least.copy()
    units = UnitShares(share, floor, sums[0], rack, priority)
    _take(units, -1, room)
    if not (_take(units, 1, room) and _take(units, 0, room)):
        return False
    units = UnitShares(share, most, sums[0], rack, priority)
    if not (_take(units, 1, room) and _take(units, 0, room)):
        return False
    for i in range(len(into)):
        into[i] = share[unit_of_gpu[i]]
    return True
