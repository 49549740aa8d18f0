"""Short chains of moves that let a waiting pod in, found without a solver.

    p ─▶ j: c leaves j ─▶ i                      one move
    p ─▶ j: c leaves j ─▶ i: d leaves i ─▶ h     two, one behind the other
    p ─▶ j: c and d leave j ─▶ i, h              two from one node

All of one kind are looked at together, as arrays over the pods that may move; the cheapest that
holds is made. What needs more moves is left to neighbourhoods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import BoolArray, IntArray
from scheduler_plugin.solver.exchanges import ANY_PRICE, price_of_coming, price_of_leaving, swap_in

__all__ = ["goes_home", "let_in", "let_stay"]

FIRST_LINKS: Final = 48
"""Of the cheapest pods whose leaving would let the waiting one in, so many are followed further."""

TRIED: Final = 8
"""Of the cheapest chains, so many are tried; each is checked as it is made."""


class _Movable(NamedTuple):
    """Pods that may leave where they are, by class and node, shape (m,) each."""

    of_class: IntArray
    node: IntArray
    price: IntArray


Move = tuple[int, int, int]
"""Class, from which node, to which: -1 for any that has room."""


def let_in(
    packing: Packing,
    class_index: int,
    targets: BoolArray | None = None,
    most_price: int = ANY_PRICE,
) -> bool:
    """Place one more pod of a class of which one waits, if one or two moves make room for it.

    Args:
        packing: Changed only if True is returned.
        class_index: Of the pod.
        targets: Nodes that it may come to, shape (n,); None for all that its rules allow.
        most_price: The moves may cost so much.
    """
    movable = _movable(packing)
    if not len(movable.node) or not packing.within_quotas(class_index, 1):
        return False
    found = sorted(_chains(packing, class_index, movable, targets), key=lambda chain: chain[0])
    found = [chain for chain in found if chain[0] <= most_price][:TRIED]
    return any(_made(packing, class_index, target, moves) for _, target, moves in found)


def let_stay(packing: Packing) -> int:
    """Take back moves of pods whose own places have room again; how many."""
    start, taken_back = packing.problem.start, 0
    for (c, source), count in start.items():
        if packing.assignment.get((c, source), 0) >= count:
            continue
        for key in [k for k in packing.assignment if k[0] == c and k[1] != source]:
            while packing.assignment.get((c, source), 0) < count and packing.assignment.get(
                key, 0
            ) > start.get(key, 0):
                mark = packing.mark()
                packing.put(c, key[1], -1)
                if not packing.capacity(c)[source]:
                    packing.undo_to(mark)
                    break
                packing.put(c, source, 1)
                taken_back += 1
    return taken_back


def goes_home(packing: Packing, class_index: int, source: int) -> bool:
    """Let one pod that left a node stay there instead; who came in its stead goes elsewhere.

    Args:
        packing: Changed only if True is returned: then the moves of others cost less than is won.
        class_index: Of the pod.
        source: Its node.
    """
    problem = packing.problem
    home = np.zeros(len(problem.node_names), dtype=np.bool_)
    home[source] = True
    most = price_of_coming(packing, class_index, source) - 1
    for c, node in list(packing.assignment):
        if c != class_index or node == source or price_of_leaving(packing, c, node):
            continue
        mark = packing.mark()
        packing.put(c, node, -1)
        if packing.capacity(c)[source]:
            packing.put(c, source, 1)
            return True
        moved = let_in(packing, c, home, most) or swap_in(packing, c, home, most)
        # A twin that moves in the same chain may have been taken to come home, too.
        if moved and _cost_since(packing, mark) < 0:
            return True
        packing.undo_to(mark)
    return False


def _cost_since(packing: Packing, mark: int) -> int:
    """GPU seconds that everything booked since the mark costs more than what was there before."""
    booked: Counter[tuple[int, int]] = Counter()
    for c, node, count in packing.booked_since(mark):
        booked[c, node] += count
    cost = 0
    for key, more in booked.items():
        prices, now = packing.problem.prices.get(key, ()), packing.assignment.get(key, 0)
        cost += sum(prices[: max(0, len(prices) - now)])
        cost -= sum(prices[: max(0, len(prices) - now + more)])
    return cost


def _movable(packing: Packing) -> _Movable:
    kept = packing.problem.kept_in_place
    there = [(c, n) for c, n in packing.assignment if c not in kept and not _in_gang(packing, c)]
    price = [price_of_leaving(packing, *key) for key in there]
    columns = np.array(there, dtype=np.int64).reshape(-1, 2)
    return _Movable(columns[:, 0], columns[:, 1], np.array(price, dtype=np.int64))


def _in_gang(packing: Packing, class_index: int) -> bool:
    return bool(packing.problem.classes[class_index].pod.gang)


def _chains(
    packing: Packing, class_index: int, movable: _Movable, targets: BoolArray | None
) -> Iterator[tuple[int, int, tuple[Move, ...]]]:
    """Price, node of the waiting pod and moves, last move first."""
    problem = packing.problem
    asked = problem.requests_and_shares
    request = asked[class_index]
    able = problem.eligible[class_index] & (
        problem.watts[class_index] <= problem.least_above(class_index, packing.headroom)
    )
    room = packing.states.room_without(
        problem.requests[movable.of_class],
        movable.node,
        lambda: [problem.demands[c] for c in movable.of_class.tolist()],
    )
    if targets is not None:
        able = able & targets
    lets_in = able[movable.node] & (room >= request).all(axis=1)
    elsewhere = _has_room_elsewhere(packing, movable)
    for m in _cheapest(lets_in & elsewhere, movable.price, TRIED):
        yield int(movable.price[m]), int(movable.node[m]), (_move(movable, m),)
    for m in _cheapest(lets_in & ~elsewhere, movable.price, FIRST_LINKS):
        c, j = int(movable.of_class[m]), int(movable.node[m])
        second: BoolArray = elsewhere & (movable.node != j) & problem.eligible[c, movable.node]
        second &= (room >= asked[c]).all(axis=1)
        for d in _cheapest(second, movable.price, 1):
            price = int(movable.price[m] + movable.price[d])
            yield price, j, (_move(movable, d), (c, j, int(movable.node[d])))
    yield from _pairs(request, able, room, elsewhere, movable, asked)


def _pairs(
    request: IntArray,
    able: BoolArray,
    room: IntArray,
    elsewhere: BoolArray,
    movable: _Movable,
    asked: IntArray,
) -> Iterator[tuple[int, int, tuple[Move, ...]]]:
    """Two of one node that both have room elsewhere."""
    alone = able[movable.node] & elsewhere & ~(room >= request).all(axis=1)
    order = np.flatnonzero(alone)
    order = order[np.argsort(movable.node[order], kind="stable")]
    edges = np.flatnonzero(np.diff(movable.node[order])) + 1
    for group in np.split(order, edges):
        if len(group) < 2:
            continue
        one, two = np.triu_indices(len(group), k=1)
        together = room[group[one]] + asked[movable.of_class[group[two]]]
        enough = np.asarray((together >= request).all(axis=1))
        price = movable.price[group[one]] + movable.price[group[two]]
        for k in _cheapest(enough, price, 1):
            first, other = int(group[one[k]]), int(group[two[k]])
            node = int(movable.node[first])
            yield int(price[k]), node, (_move(movable, first), _move(movable, other))


def _has_room_elsewhere(packing: Packing, movable: _Movable) -> BoolArray:
    """Whether one more pod of that class fits on another node, shape (m,)."""
    found = np.zeros(len(movable.node), dtype=np.bool_)
    for c in np.unique(movable.of_class).tolist():
        mine = movable.of_class == c
        fits = packing.capacity(c) > 0
        found[mine] = int(fits.sum()) - fits[movable.node[mine]] > 0
    return found


def _cheapest(which: BoolArray, price: IntArray, most: int) -> list[int]:
    chosen: npt.NDArray[np.intp] = np.flatnonzero(which)
    return [int(m) for m in chosen[np.argsort(price[chosen], kind="stable")[:most]]]


def _move(movable: _Movable, m: int) -> Move:
    return int(movable.of_class[m]), int(movable.node[m]), -1


def _made(packing: Packing, class_index: int, target: int, moves: tuple[Move, ...]) -> bool:
    """Make the moves and place the pod; nothing is changed if one of them finds no room."""
    mark = packing.mark()
    for c, source, wanted in moves:
        packing.put(c, source, -1)
        fits = packing.capacity(c) > 0
        fits[source] = False
        # The waiting pod's own node is about to be full.
        fits[target] = False
        node = wanted if wanted >= 0 else packing.tightest(c, np.flatnonzero(fits))
        if node < 0 or not fits[node]:
            packing.undo_to(mark)
            return False
        packing.put(c, node, 1)
    if not packing.capacity(class_index)[target]:
        packing.undo_to(mark)
        return False
    packing.put(class_index, target, 1)
    return True
