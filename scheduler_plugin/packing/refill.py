"""Boards with a rest are emptied and filled anew from everything that waits.

A greedy order never takes back what it placed, so a board that one share of 0.81 is on keeps its
rest of 0.19 though two shares of 0.5 came later. Node by node, those with the largest rests first:
pods that the plan put there, one board or a share each, are taken away, and each board gets the
filling that holds most, of those that leave the next boards their part of CPU and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.packing.board_fillings import dearest, dearest_filling
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_fill import fill
from scheduler_plugin.packing.objective import objective
from scheduler_plugin.packing.problem import Assignment, IntArray, Problem, placed_counts
from scheduler_plugin.room.resource_columns import MEMORY, MILLI_CPU

__all__ = ["refilled"]

FloatArray = npt.NDArray[np.float64]

HOST_PRICES: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Of a board's part of CPU and of memory, in boards: fillings from the fullest to the lightest."""

ASKED_EVERY: Final = 16
"""Nodes between two questions whether there is time."""


class Filling(NamedTuple):
    """Pods for one board.

    Attributes:
        milli: Of the board.
        host: CPU in thousandths of a core and bytes of memory, (2,).
        classes: One entry a pod.
    """

    milli: int
    host: IntArray
    classes: tuple[int, ...]


def refilled(
    problem: Problem, assignment: Assignment, enough: Callable[[Assignment], bool]
) -> Assignment:
    """An assignment that is as good or better, within the same tiers.

    Args:
        problem: What is packed.
        assignment: Where to begin.
        enough: Whether an assignment needs no better one, or time is up.
    """
    packing = Packing(problem, assignment)
    before = objective(packing)
    for priority in problem.tiers:
        classes = _exchangeable(packing, priority)
        if any(problem.demands[c].share_milli for c in classes):
            _refill_tier(packing, classes, enough)
    fill(packing, sorted(problem.jobs, key=lambda job: -job.priority))
    return packing.assignment if objective(packing) > before else assignment


def _exchangeable(packing: Packing, priority: int) -> list[int]:
    """Classes of a tier on at most one board each, on which no other pod depends."""
    problem = packing.problem
    found = []
    for job in problem.jobs:
        c = job.classes[0]
        bound = packing.peers is not None and packing.peers.binds(c)
        cut = bool(problem.demands[c].mig_profiles)
        alone = not (job.gang or bound or problem.sharers[c] or problem.classes[c].running or cut)
        one_board = 0 < problem.asks[c].gpu_milli <= MILLI_PER_GPU
        if job.priority == priority and alone and one_board:
            found.append(c)
    return found


def _refill_tier(
    packing: Packing, classes: list[int], enough: Callable[[Assignment], bool]
) -> None:
    problem = packing.problem
    placed = np.array(placed_counts(problem, packing.assignment))
    waiting: dict[int, int] = {c: int(problem.counts[c] - placed[c]) for c in classes}
    nodes = np.arange(len(problem.node_names))
    rests = packing.states.gpu_milli(nodes)
    for turn, node in enumerate(np.argsort(-rests, kind="stable").tolist()):
        if not rests[node] or (turn % ASKED_EVERY == 0 and enough(packing.assignment)):
            return
        _refill_node(packing, node, classes, waiting)


def _refill_node(packing: Packing, node: int, classes: list[int], waiting: dict[int, int]) -> None:
    """Fill one node anew; nothing is changed where that holds no more than before."""
    problem, mark = packing.problem, packing.mark()
    there = {c: packing.assignment.get((c, node), 0) for c in classes}
    there = {c: count for c, count in there.items() if count}
    for c, count in there.items():
        packing.put(c, node, -count)
    pool = {c: waiting[c] + there.get(c, 0) for c in classes if problem.eligible[c, node]}
    pool = {c: count for c, count in pool.items() if count}
    left = dict(pool)
    for board, filling in _fillings(packing, node, pool):
        for c in filling.classes:
            if left[c] and packing.admits(c, node, (board,)):
                packing.put(c, node, 1, (board,))
                left[c] -= 1
    now = {c: pool[c] - left[c] for c in pool}
    before = sum(int(problem.gpu_milli[c]) * count for c, count in there.items())
    holds_more = sum(int(problem.gpu_milli[c]) * count for c, count in now.items()) > before
    if not holds_more or not packing.states.can_be_arranged(node):
        packing.undo_to(mark)
        return
    for c in {*there, *now}:
        waiting[c] += there.get(c, 0) - now.get(c, 0)


def _fillings(packing: Packing, node: int, pool: dict[int, int]) -> Iterator[tuple[int, Filling]]:
    """Board and its filling, the emptiest boards first."""
    rests = packing.states.board_states(node)
    boards = sorted((b for b in range(len(rests)) if rests[b] > 0), key=lambda b: -rests[b])
    host = packing.free[node, [MILLI_CPU, MEMORY]].copy()
    menus: dict[int, list[Filling]] = {}
    for number, board in enumerate(boards):
        part = host // (len(boards) - number)
        if rests[board] not in menus:
            menus[rests[board]] = _menu(packing.problem, pool, part, rests[board])
        menu = menus[rests[board]]
        if not menu:
            continue
        able = [one for one in menu if (one.host <= part).all()]
        chosen = able[0] if able else menu[-1]
        host -= chosen.host
        yield board, chosen


def _menu(problem: Problem, pool: dict[int, int], part: IntArray, rest: int) -> list[Filling]:
    """Fillings of a board that has ``rest`` left, those that hold most first.

    Args:
        problem: What is packed.
        pool: How many pods of each class there are.
        part: Of CPU and memory, that the board may use, (2,).
        rest: Thousandths.
    """
    classes = np.array([c for c in pool if problem.gpu_milli[c] <= rest], dtype=np.int64)
    if not len(classes):
        return []
    milli = problem.gpu_milli[classes]
    host = problem.requests[classes][:, [MILLI_CPU, MEMORY]]
    burden = (host / np.maximum(part, 1)).sum(axis=1)
    found: dict[tuple[int, ...], Filling] = {}
    for price in HOST_PRICES:
        value = milli / MILLI_PER_GPU - price * burden
        # Of equal sizes only the lightest is of use, while there are enough of it.
        order = np.lexsort((-value, milli))
        sizes, first = np.unique(milli[order], return_index=True)
        lightest = order[first]
        prices, listed = value[lightest], sizes.tolist()
        counts = dearest_filling(prices, listed, rest, dearest(prices, listed))
        chosen = np.repeat(lightest, counts.astype(np.int64))
        pods = tuple(classes[chosen].tolist())
        found[pods] = Filling(int(milli[chosen].sum()), host[chosen].sum(axis=0), pods)
    return sorted(found.values(), key=lambda one: -one.milli)
