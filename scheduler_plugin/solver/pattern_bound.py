"""How much any plan could place, by linear programming with patterns of one board's shares.

Nodes of equal room are one shape and may exchange CPU and memory among themselves, but a board
stays a board: what shares it is a *pattern*, a set of shares that add up to no more than it has
left. Patterns are generated when the duals ask for them (cutting stock: Gilmore and Gomory,
"A Linear Programming Approach to the Cutting-Stock Problem", Operations Research 9(6), 1961).

Each round ends with a valid bound: board prices raised by what the best missing pattern would
gain are feasible for the dual (Farley, "A Note on Bounding a Class of Linear Programming Problems",
Operations Research 38(5), 1990), so that the search for patterns may be ended at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Asked", "Room", "pattern_bound"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

MILLI: Final = 1000
MOST_COUNTS: Final = 6_000
"""Classes on shapes: 1,200 took 0.06 s a round on one core, and the first round is not cut off."""
MOST_ROUNDS: Final = 60
_TOLERANCE: Final = 1e-7


@dataclass(frozen=True, slots=True)
class Asked:
    """What pods ask for, by class.

    Attributes:
        amounts: Of everything but boards, shape (c, r).
        boards: Whole ones, shape (c,).
        share_milli: Of one board, 0 for none, shape (c,).
        counts: Pods, shape (c,).
        values: Of placing one, shape (c,).
    """

    amounts: IntArray
    boards: IntArray
    share_milli: IntArray
    counts: IntArray
    values: IntArray


@dataclass(frozen=True, slots=True)
class Room:
    """What nodes have left.

    Attributes:
        amounts: Of everything but boards, shape (n, r).
        board_milli: Of each board, at most 1000, shape (n, b); 0 or less where there is none.
        eligible: Which class may be on which node, shape (c, n).
    """

    amounts: IntArray
    board_milli: IntArray
    eligible: BoolArray


def pattern_bound(asked: Asked, room: Room, is_over: Callable[[], bool]) -> float:
    """Upper bound on the value placed; infinity where the problem is too large to be looked at.

    Args:
        asked: By the pods.
        room: Of the nodes.
        is_over: No further round of patterns is to begin; the first one is always finished.
    """
    shapes = _shapes(room, asked.boards)
    pairs = np.argwhere(shapes.eligible.T)
    if not len(pairs):
        return 0.0
    if len(pairs) > MOST_COUNTS:
        return np.inf
    master = _Master(asked, shapes, pairs)
    best = np.inf
    for _ in range(MOST_ROUNDS):
        value, price_of_slot, worth = master.solved()
        gains = master.new_patterns(price_of_slot, worth)
        best = min(best, value + float(gains @ shapes.slot_count))
        if float(gains.max(initial=0.0)) <= _TOLERANCE or is_over():
            break
    return best


Pattern = tuple[tuple[int, int], ...]
"""Classes that share one board, each with how many."""


class _Shapes(NamedTuple):
    """Nodes of equal room together: shapes ``s`` and their kinds of boards, slots ``k``.

    Attributes:
        amounts: Shape (s, r), of all nodes of a shape.
        eligible: Shape (c, s).
        slot_shape: Shape (k,).
        slot_milli: What each board of the slot has left, shape (k,).
        slot_count: Boards, shape (k,).
    """

    amounts: IntArray
    eligible: BoolArray
    slot_shape: IntArray
    slot_milli: IntArray
    slot_count: IntArray


def _shapes(room: Room, boards: IntArray) -> _Shapes:
    milli = np.sort(np.maximum(room.board_milli, 0), axis=1)
    whole = (milli == MILLI).sum(axis=1)
    fits = room.eligible & (boards[:, None] <= whole)
    rows = np.concatenate([room.amounts, milli, np.packbits(fits, axis=0).T], axis=1)
    _, first, of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    count = np.bincount(of.ravel(), minlength=len(first))
    slots = [
        (shape, int(left), int(number * count[shape]))
        for shape, node in enumerate(first.tolist())
        for left, number in zip(*np.unique(milli[node], return_counts=True), strict=True)
        if left
    ]
    columns = np.array(slots, dtype=np.int64).reshape(-1, 3)
    return _Shapes(room.amounts[first] * count[:, None], fits[:, first], *columns.T)


class _Master:
    """The linear program with the patterns so far.

    Columns: pods of a class on a shape (``pairs``), then patterns on slots. Rows: what a shape has
    of each resource, boards of each slot, pods of each class, and for each share on a shape that
    patterns there hold it.
    """

    def __init__(self, asked: Asked, shapes: _Shapes, pairs: IntArray) -> None:
        self._asked, self._shapes = asked, shapes
        self._shape, self._class = pairs[:, 0], pairs[:, 1]
        s, r = shapes.amounts.shape
        self._slot_row = s * r
        self._class_row = self._slot_row + len(shapes.slot_count)
        self._share_pairs = np.flatnonzero(asked.share_milli[self._class])
        share_row = self._class_row + len(asked.counts)
        self._share_row = {
            (int(self._shape[p]), int(self._class[p])): share_row + i
            for i, p in enumerate(self._share_pairs.tolist())
        }
        self._limits = np.concatenate(
            [
                shapes.amounts.ravel(),
                shapes.slot_count,
                asked.counts,
                np.zeros(len(self._share_pairs), dtype=np.int64),
            ]
        ).astype(np.float64)
        self._rows: list[IntArray] = []
        self._columns: list[IntArray] = []
        self._factors: list[FloatArray] = []
        self._patterns = 0
        self._fixed_columns(r)
        self._alike()

    def _fixed_columns(self, r: int) -> None:
        """Of pods; whole boards come from the slot of whole ones."""
        asked, p = self._asked, np.arange(len(self._class))
        for column in range(r):
            self._put(self._shape * r + column, p, asked.amounts[self._class, column])
        self._put(self._class_row + self._class, p, np.ones(len(p)))
        whole = {
            int(shape): k
            for k, shape in enumerate(self._shapes.slot_shape)
            if self._shapes.slot_milli[k] == MILLI
        }
        with_boards = np.flatnonzero(asked.boards[self._class])
        slots = np.array([whole[int(s)] for s in self._shape[with_boards]], dtype=np.int64)
        self._put(self._slot_row + slots, with_boards, asked.boards[self._class[with_boards]])
        rows = np.array(list(self._share_row.values()), dtype=np.int64)
        self._put(rows, self._share_pairs, np.ones(len(rows)))

    def _put(self, rows: IntArray, columns: IntArray, factors: npt.NDArray[np.generic]) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._factors.append(np.asarray(factors, dtype=np.float64))

    def solved(self) -> tuple[float, FloatArray, FloatArray]:
        """Value, price of a board by slot, and what a place for a share is worth, by share pair."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        width = len(self._class) + self._patterns
        entries = (np.concatenate(self._rows), np.concatenate(self._columns))
        matrix = csr_matrix(
            (np.concatenate(self._factors), entries), shape=(len(self._limits), width)
        )
        gain = np.zeros(width)
        gain[: len(self._class)] = self._asked.values[self._class]
        scale = np.maximum(abs(matrix).max(axis=1).toarray().ravel(), 1.0)
        answer = linprog(
            -gain,
            A_ub=matrix.multiply(1.0 / scale[:, None]).tocsr(),
            b_ub=self._limits / scale,
            method="highs",
        )
        if answer.status != 0:
            return np.inf, np.zeros(len(self._shapes.slot_count)), np.zeros(len(self._share_pairs))
        duals = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0) / scale
        # HiGHS keeps to a tolerance: what pods are worth beyond these prices is added in full.
        short = np.maximum(gain - matrix.T @ duals, 0.0)[: len(self._class)]
        by_class = np.zeros(len(self._asked.counts))
        np.maximum.at(by_class, self._class, short)
        value = float(duals @ self._limits + by_class @ self._asked.counts)
        slots = slice(self._slot_row, self._class_row)
        return value, duals[slots], duals[self._class_row + len(self._asked.counts) :]

    def new_patterns(self, price: FloatArray, worth: FloatArray) -> FloatArray:
        """Add the best pattern of each slot where it pays; what each gains by that, (k,)."""
        gains = np.zeros(len(price))
        found: set[Pattern] = set()
        for k in range(len(price)):
            classes, pairs = self._shares_of(k)
            best, counts = _best_pattern(
                self._asked.share_milli[classes], worth[pairs], int(self._shapes.slot_milli[k])
            )
            gains[k] = max(0.0, best - float(price[k]))
            if gains[k] > _TOLERANCE:
                held = np.flatnonzero(counts)
                found.add(tuple(zip(classes[held].tolist(), counts[held].tolist(), strict=True)))
        for pattern in sorted(found):
            self._add(pattern)
        return gains

    def _add(self, pattern: Pattern) -> None:
        """To all slots that can hold it: what one shape asks for others soon do, too."""
        size = sum(int(self._asked.share_milli[c]) * count for c, count in pattern)
        for k, shape in enumerate(self._shapes.slot_shape.tolist()):
            keys = [(shape, c) for c, _ in pattern]
            if size > self._shapes.slot_milli[k] or not all(key in self._share_row for key in keys):
                continue
            rows = [self._slot_row + k, *(self._share_row[key] for key in keys)]
            column = len(self._class) + self._patterns
            factors = np.array([1, *(-count for _, count in pattern)])
            self._put(np.array(rows, dtype=np.int64), np.full(len(rows), column), factors)
            self._patterns += 1

    def _shares_of(self, slot: int) -> tuple[IntArray, npt.NDArray[np.intp]]:
        """Classes of shares that the slot's shape takes, and their places among share pairs."""
        shape = self._shapes.slot_shape[slot]
        here = np.flatnonzero(self._shape[self._share_pairs] == shape)
        return self._class[self._share_pairs[here]], here

    def _alike(self) -> None:
        """To begin with: each share by itself, as often as a board of any slot has it."""
        for c in np.flatnonzero(self._asked.share_milli).tolist():
            most = set((self._shapes.slot_milli // self._asked.share_milli[c]).tolist())
            for count in sorted(most - {0}):
                self._add(((c, count),))


def _best_pattern(
    sizes: IntArray, worth: FloatArray, milli: int
) -> tuple[float, npt.NDArray[np.int64]]:
    """Shares of one board that are worth most together: a knapsack, each as often as it goes."""
    step = int(np.gcd.reduce(sizes)) or 1
    sizes, room = sizes // step, milli // step
    counts = np.zeros(len(sizes), dtype=np.int64)
    useful = np.flatnonzero((worth > 0) & (sizes <= room))
    if not len(useful):
        return 0.0, counts
    # Of equal sizes only the dearest is of use.
    order = useful[np.lexsort((-worth[useful], sizes[useful]))]
    order = order[np.concatenate([[True], np.diff(sizes[order]) > 0])]
    best = np.zeros(room + 1)
    taken = np.full(room + 1, -1, dtype=np.int64)
    for left in range(1, room + 1):
        best[left] = best[left - 1]
        able = order[sizes[order] <= left]
        if len(able):
            with_it = best[left - sizes[able]] + worth[able]
            most = int(with_it.argmax())
            if with_it[most] > best[left]:
                best[left], taken[left] = with_it[most], able[most]
    left = room
    while left > 0:
        if taken[left] < 0:
            left -= 1
        else:
            counts[taken[left]] += 1
            left -= int(sizes[taken[left]])
    return float(best[room]), counts
