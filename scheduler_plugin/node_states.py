"""What every node has left, however it is counted: the one home of capacity.

Nobody else divides room by a request. Columns of integers, whole boards, shares of one board and
neighbours on shared boards are asked and booked alike:

    fits(demand, at_most)     how many more each node takes, (n,)
    put(demand, node, count)  booked
    take(demand, node, count) given back, the last booked first

Answers are kept for each demand and renewed for the nodes that changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.board_neighbours import NOBODY, Crowd, Neighbours, Sharer
from scheduler_plugin.resource_columns import GPUS
from scheduler_plugin.snapshot import MILLI_PER_GPU

__all__ = ["Demand", "NodeStates"]

IntArray = npt.NDArray[np.int64]

NO_LIMIT: Final = np.iinfo(np.int64).max
NO_BOARD: Final = -1


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod takes of a node; pods that ask for the same are one demand.

    Attributes:
        amounts: By column, shape (r,); column ``GPUS`` counts whole boards.
        share_milli: Of one board, from 1 to 999; 0 for none.
        sharer: What neighbours on shared boards feel of it.
    """

    amounts: tuple[int, ...]
    share_milli: int = 0
    sharer: Sharer | None = None


class NodeStates:
    """Room of all nodes.

    Args:
        free: By column, shape (n, r), never negative.
        board_milli: What is left of each board, shape (n, b), ``NO_BOARD`` beyond a node's last;
            None where nobody asks for a share of a board: whole ones are then a column like others.
        rule: Which pods bear one another on shared boards; None where no pair was measured.
        share_columns: Columns of which ``rule`` decides in place of sums.
    """

    def __init__(
        self,
        free: IntArray,
        board_milli: IntArray | None = None,
        rule: Neighbours | None = None,
        share_columns: Sequence[int] = (),
    ) -> None:
        self.free: IntArray = free.copy()
        self._boards = None if board_milli is None else board_milli.copy()
        self._rule, self._share_columns = rule, tuple(share_columns)
        self._crowds: dict[int, Crowd] = {} if rule is None else dict(rule.present)
        self._held: dict[tuple[int, Demand], list[tuple[int, ...]]] = {}
        self._changed: list[int] = []
        self._kept: dict[Demand, tuple[int, IntArray]] = {}
        if self._boards is not None:
            self.free[:, GPUS] = (self._boards == MILLI_PER_GPU).sum(axis=1)

    # -- asked -----------------------------------------------------------------------------------

    def fits(self, demand: Demand, at_most: IntArray) -> IntArray:
        """How many more pods of the demand each node takes, shape (n,).

        Args:
            demand: Of one pod.
            at_most: What other rules leave, shape (n,); nodes with 0 are not looked at.
        """
        room: IntArray = np.minimum(self._room(demand), at_most)
        if self._rule is not None and demand.sharer is not None:
            self._among_neighbours(self._rule, demand, demand.sharer, room)
        return room

    def _room(self, demand: Demand) -> IntArray:
        """By columns and boards, kept; it grows and shrinks only where something was booked."""
        seen, kept = self._kept.get(demand, (0, None))
        if kept is None:
            kept = self._counted(demand, np.arange(len(self.free)))
        elif seen < len(self._changed):
            stale = np.array(sorted(set(self._changed[seen:])), dtype=np.intp)
            kept[stale] = self._counted(demand, stale)
        self._kept[demand] = (len(self._changed), kept)
        return kept

    def crowd(self, node: int) -> Crowd:
        """Who shares the node's boards, where pairs were measured."""
        return self._crowds.get(node, NOBODY)

    def gpu_milli(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """What is left of the boards of some nodes, parts of boards too, shape (k,)."""
        if self._boards is None:
            whole: IntArray = self.free[nodes, GPUS] * MILLI_PER_GPU
            return whole
        left: IntArray = np.maximum(self._boards[nodes], 0).sum(axis=1)
        return left

    def _counted(self, demand: Demand, nodes: npt.NDArray[np.intp]) -> IntArray:
        room = np.full(len(nodes), NO_LIMIT, dtype=np.int64)
        judged = self._share_columns if self._rule is not None else ()
        for column, amount in enumerate(demand.amounts):
            if amount and column not in judged:
                np.minimum(room, self.free[nodes, column] // amount, out=room)
        if demand.share_milli:
            room = np.minimum(room, self._shares_left(demand.share_milli, nodes))
        # A node may hold more than it offers: somebody else bound there, or it shrank.
        return np.maximum(room, 0)

    def _shares_left(self, share_milli: int, nodes: npt.NDArray[np.intp]) -> IntArray:
        assert self._boards is not None
        left: IntArray = (np.maximum(self._boards[nodes], 0) // share_milli).sum(axis=1)
        return left

    def _among_neighbours(
        self, rule: Neighbours, demand: Demand, sharer: Sharer, room: IntArray
    ) -> None:
        """Lower ``room`` to what neighbours bear, or to free shares where there is no limit."""
        shares = [r for r in self._share_columns if demand.amounts[r]]
        for node in np.flatnonzero(room).tolist():
            if rule.is_limited(node):
                room[node] = rule.most_more(node, self.crowd(node), sharer, int(room[node]))
            else:
                left = [int(self.free[node, r]) // demand.amounts[r] for r in shares]
                room[node] = max(0, min([int(room[node]), *left]))

    # -- booked ----------------------------------------------------------------------------------

    def put(self, demand: Demand, node: int, count: int = 1) -> None:
        """Book so many pods; the caller has asked ``fits``.

        A share goes to the fullest board that still has it, whole boards to the first that nobody
        uses.
        """
        self._book(demand, node, count)

    def take(self, demand: Demand, node: int, count: int = 1) -> None:
        """Give back so many pods that were put there, those of this demand that came last."""
        self._book(demand, node, -count)

    def _book(self, demand: Demand, node: int, count: int) -> None:
        amounts = np.array(demand.amounts, dtype=np.int64)
        self.free[node] -= amounts * count
        if demand.sharer is not None and self._rule is not None:
            self._crowds[node] = self.crowd(node).plus(demand.sharer, count)
        if self._boards is not None and (demand.share_milli or demand.amounts[GPUS]):
            for _ in range(abs(count)):
                self._board(demand, node) if count > 0 else self._unboard(demand, node)
            self.free[node, GPUS] = int((self._boards[node] == MILLI_PER_GPU).sum())
        self._changed.append(node)

    def _board(self, demand: Demand, node: int) -> None:
        assert self._boards is not None
        boards = self._boards[node]
        if demand.share_milli:
            able = np.flatnonzero(boards >= demand.share_milli)
            chosen = able[boards[able].argmin() : boards[able].argmin() + 1]
        else:
            chosen = np.flatnonzero(boards == MILLI_PER_GPU)[: demand.amounts[GPUS]]
        boards[chosen] -= demand.share_milli or MILLI_PER_GPU
        self._held.setdefault((node, demand), []).append(tuple(chosen.tolist()))

    def _unboard(self, demand: Demand, node: int) -> None:
        assert self._boards is not None
        chosen = self._held[node, demand].pop()
        self._boards[node, list(chosen)] += demand.share_milli or MILLI_PER_GPU
