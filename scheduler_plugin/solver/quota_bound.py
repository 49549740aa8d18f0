"""How much quotas let any plan place: a knapsack for each, of groups that share no pods."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scheduler_plugin.packing.greedy import Packing

__all__ = ["quota_bound"]


def quota_bound(packing: Packing, possible: Sequence[int], members: Sequence[int]) -> int:
    """Upper bound on the value of placed pods, milliGPU.

    Args:
        packing: With nothing placed.
        possible: How many pods of each class could be placed, (c,).
        members: The classes that count.
    """
    quotas, classes = packing.problem.quotas, packing.problem.classes
    worth = {c: possible[c] * classes[c].value for c in members}
    of_row: dict[int, dict[int, int]] = {}
    for c in members:
        for row, amount in quotas.asked[c] if quotas.rows else ():
            of_row.setdefault(row, {})[c] = amount
    saved = []
    for row, amounts in of_row.items():
        unit, most = math.gcd(*amounts.values()), 0
        left = packing.quota_left[row] // unit * unit
        for c in sorted(amounts, key=lambda c: amounts[c] / classes[c].value):
            taken = min(left, possible[c] * amounts[c])
            most -= -taken * classes[c].value // amounts[c]
            left -= taken
        saved.append((sum(worth[c] for c in amounts) - most, set(amounts)))
    total, counted = sum(worth.values()), set[int]()
    for less, group in sorted(saved, key=lambda each: -each[0]):
        if less > 0 and counted.isdisjoint(group):
            total -= less
            counted |= group
    return total
