"""Sets of pods that may come to a node, best first for the room that they take.

The knapsack behind ``node_contents``: layer by layer one more pod, in each layer only sets that no
other beats in room and worth. Sets of nearly the same room are thinned to the best of them, so that
thousands of pairs and triples take milliseconds; what is lost by that is found in a later round,
whose grid is another one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Sets", "best_sets"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MOST_PODS: Final = 4
"""Of a set; more than three came in once in hundreds of plans with fewest moves."""
WORTHLESS: Final = 1e-6


class Sets(NamedTuple):
    """Sets of pods, the empty one among them.

    Attributes:
        room: That each takes, shape (m, 2).
        worth: Of each, shape (m,).
        classes: Of its pods, -1 for none, shape (m, MOST_PODS).
    """

    room: IntArray
    worth: FloatArray
    classes: IntArray


def best_sets(
    asked: IntArray, counts: IntArray, worth: FloatArray, most: IntArray, cells: int
) -> Sets:
    """Sets that are worth something and that no other beats.

    Args:
        asked: Room for one pod by class, shape (c, 2).
        counts: Pods of each class, shape (c,).
        worth: Of one more pod of each class on a node, shape (c,).
        most: Room that a node may have, shape (2,).
        cells: Of the grid in each direction.
    """
    useful = np.flatnonzero((worth > WORTHLESS) & (counts > 0) & (asked <= most).all(axis=1))
    layer = Sets(
        np.zeros((1, 2), dtype=np.int64),
        np.zeros(1),
        np.full((1, MOST_PODS), -1, dtype=np.int64),
    )
    layers = [layer]
    for pods in range(MOST_PODS):
        room = (layer.room[:, None, :] + asked[useful]).reshape(-1, 2)
        total = (layer.worth[:, None] + worth[useful]).ravel()
        held = (layer.classes[:, :pods, None] == useful).sum(axis=1).ravel()
        able = (room <= most).all(axis=1) & (held < np.tile(counts[useful], len(layer.worth)))
        rows = np.flatnonzero(able)
        if not len(rows):
            break
        rows = rows[_unbeaten(room[rows], total[rows], most, cells)]
        before, added = np.divmod(rows, len(useful))
        classes = layer.classes[before]
        classes[:, pods] = useful[added]
        layer = Sets(room[rows], total[rows], classes)
        layers.append(layer)
    return Sets(*(np.concatenate(parts) for parts in zip(*layers, strict=True)))


def _unbeaten(room: IntArray, worth: FloatArray, most: IntArray, cells: int) -> IntArray:
    """Of each cell of room the best, unless a cell with less room has as much."""
    cell = room * cells // (most + 1)
    flat = cell[:, 0] * cells + cell[:, 1]
    order = np.argsort(worth, kind="stable")
    best = np.full(cells * cells, -1, dtype=np.int64)
    best[flat[order]] = order  # The last one counts: it is worth most.
    values = np.full((cells + 1, cells + 1), -np.inf)
    values[1:, 1:] = np.where(best >= 0, worth[best], -np.inf).reshape(cells, cells)
    np.maximum.accumulate(values, axis=0, out=values)
    np.maximum.accumulate(values, axis=1, out=values)
    found = best[best >= 0]
    left, below = cell[found, 0], cell[found, 1]
    beaten = np.maximum(values[left, below + 1], values[left + 1, below]) >= worth[found]
    unbeaten: IntArray = found[~beaten]
    return unbeaten
