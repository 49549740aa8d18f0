"""Two placed pods change nodes so that a third has room: a move that no free room could make.

    p ─▶ j: c leaves j ─▶ i, d leaves i ─▶ j

All pairs of pods are looked at together, as arrays. A pod that gets back to where it runs costs
less than nothing, one that has no place of its own costs nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import BoolArray, IntArray

__all__ = ["ANY_PRICE", "price_of_coming", "price_of_leaving", "swap_in"]

TRIED: Final = 4
"""Of the cheapest pairs, so many are tried; each is checked as it is made."""

MOST_PLACES: Final = 400
"""Of classes on nodes, so that all pairs take a few milliseconds."""


ANY_PRICE: Final = 2**60


class _Places(NamedTuple):
    """Classes on nodes, shape (m,) each; what leaving costs, and what coming there gives (c, n)."""

    of_class: IntArray
    node: IntArray
    leaving: IntArray
    homecoming: dict[tuple[int, int], int]


def swap_in(
    packing: Packing,
    class_index: int,
    targets: BoolArray | None = None,
    most_price: int = ANY_PRICE,
) -> bool:
    """Place one more pod of a class on one of the targets if two pods that swap make room.

    Args:
        packing: Changed only if True is returned.
        class_index: Of which one waits.
        targets: Nodes that it may come to, shape (n,); None for all that its rules allow.
        most_price: The pair may cost so much.
    """
    if targets is None:
        targets = packing.problem.eligible[class_index]
    places = _places(packing, class_index, targets)
    rows = np.flatnonzero(targets[places.node])
    if not len(rows) or not packing.within_quotas(class_index, 1):
        return False
    one, other, price = _pairs(packing, class_index, places, rows)
    good = np.flatnonzero(price <= most_price)
    for k in good[np.argsort(price[good], kind="stable")[:TRIED]].tolist():
        first, second = int(one[k]), int(other[k])
        pair = (
            (int(places.of_class[first]), int(places.node[first])),
            (int(places.of_class[second]), int(places.node[second])),
        )
        if _made(packing, class_index, *pair):
            return True
    return False


def price_of_leaving(packing: Packing, class_index: int, node: int) -> int:
    """GPU seconds if one more of those that run there leaves; 0 while others are there."""
    key = class_index, node
    gone = packing.problem.start.get(key, 0) - packing.assignment.get(key, 0)
    return packing.problem.prices[key][gone] if gone >= 0 and key in packing.problem.prices else 0


def price_of_coming(packing: Packing, class_index: int, node: int) -> int:
    """GPU seconds that are saved if one that ran there stays; 0 where nobody left."""
    key = class_index, node
    gone = packing.problem.start.get(key, 0) - packing.assignment.get(key, 0)
    return packing.problem.prices[key][gone - 1] if gone > 0 else 0


def _places(packing: Packing, class_index: int, targets: BoolArray) -> _Places:
    problem = packing.problem
    kept, start = problem.kept_in_place, problem.start
    gangs = [pod_class.pod.gang for pod_class in problem.classes]
    keys = [key for key in packing.assignment if key[0] not in kept and not gangs[key[0]]]
    if len(keys) > MOST_PLACES:
        keys = _nearest(packing, class_index, targets, keys)
    leaving = [price_of_leaving(packing, *key) for key in keys]
    homes = {key: price_of_coming(packing, *key) for key in start}
    homes = {key: price for key, price in homes.items() if price}
    columns = np.array(keys, dtype=np.int64).reshape(-1, 2)
    return _Places(columns[:, 0], columns[:, 1], np.array(leaving, dtype=np.int64), homes)


def _nearest(
    packing: Packing, class_index: int, targets: BoolArray, keys: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Those on the nodes that lack least for the pod: targets first, then the emptiest."""
    problem = packing.problem
    scale = np.maximum(problem.total, 1)
    lack = np.maximum(problem.requests[class_index] - packing.free, 0) / scale
    nodes = np.argsort(lack.sum(axis=1) - targets, kind="stable")
    rank = np.empty(len(nodes), dtype=np.int64)
    rank[nodes] = np.arange(len(nodes))
    return sorted(keys, key=lambda key: int(rank[key[1]]))[:MOST_PLACES]


def _pairs(
    packing: Packing, class_index: int, places: _Places, rows: npt.NDArray[np.intp]
) -> tuple[IntArray, IntArray, IntArray]:
    """Places that can be exchanged so that the pod has room on the first's node, and the price."""
    problem, free = packing.problem, packing.free
    eligible, c, n = problem.eligible, places.of_class, places.node
    able = (n[rows][:, None] != n) & eligible[c[rows]][:, n] & eligible[c][:, n[rows]].T
    for r in np.flatnonzero(problem.requests.any(axis=0)).tolist():
        asked = problem.requests[:, r]
        more = asked[c[rows]][:, None] - asked[c]
        able &= free[n[rows], r][:, None] + more >= asked[class_index]
        able &= free[n, r] >= more
    first, second = np.nonzero(able)
    first = rows[first]
    price = places.leaving[first] + places.leaving[second]
    for (k, home), gain in places.homecoming.items():
        price -= gain * ((c[first] == k) & (n[second] == home))
        price -= gain * ((c[second] == k) & (n[first] == home))
    return first, second, price


def _made(packing: Packing, class_index: int, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """The pods change places and the waiting one comes in; nothing is changed where that fails."""
    mark = packing.mark()
    packing.put(*one, -1)
    packing.put(*other, -1)
    for c, node in ((one[0], other[1]), (other[0], one[1]), (class_index, one[1])):
        if not packing.capacity(c)[node]:
            packing.undo_to(mark)
            return False
        packing.put(c, node, 1)
    return True
