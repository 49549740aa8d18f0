"""What every node has left, however it is counted: the one home of capacity.

Nobody else divides room by a request. Columns of integers, whole boards, shares of one board and
neighbours on shared boards are asked and booked alike:

    fits(demand, at_most)     how many more each node takes, (n,)
    put(demand, node, count)  booked
    take(demand, node, count) given back, the last booked first

Answers are kept for each demand and renewed for the nodes that changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.mig_geometry import MigGeometry
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.room.board_neighbours import NOBODY, Crowd, Neighbours, Sharer
from scheduler_plugin.room.board_shares import BoardShares
from scheduler_plugin.room.board_states import Boards
from scheduler_plugin.room.pod_demand import Demand
from scheduler_plugin.room.resource_columns import GPUS

__all__ = ["Demand", "NodeStates"]

IntArray = npt.NDArray[np.int64]

NO_LIMIT: Final = np.iinfo(np.int64).max


class NodeStates:
    """Room of all nodes.

    Args:
        free: By column, shape (n, r), never negative.
        boards: The state of each board, shape (n, b), ``NO_BOARD`` beyond a node's last; None
            where nobody asks for a part of a board: whole ones are then a column like others.
        rule: Which pods bear one another on shared boards; None where no pair was measured.
        share_columns: Columns of which ``rule`` decides in place of sums.
        homes: Boards of running pods that may leave, by node and demand, in the order in which
            they stay.
        geometries: How each node's boards may be cut into MIG instances, (n,); () where none may.
    """

    def __init__(
        self,
        free: IntArray,
        boards: IntArray | None = None,
        rule: Neighbours | None = None,
        share_columns: Sequence[int] = (),
        homes: Mapping[tuple[int, Demand], Sequence[Boards]] | None = None,
        geometries: Sequence[MigGeometry | None] = (),
    ) -> None:
        self.free: IntArray = free.copy()
        self._boards = None if boards is None else BoardShares(boards, homes or {}, geometries)
        self._rule, self._share_columns = rule, tuple(share_columns)
        self._crowds: dict[int, Crowd] = {} if rule is None else dict(rule.present)
        self._changed: list[int] = []
        self._kept: dict[Demand, tuple[int, IntArray]] = {}
        if self._boards is not None:
            self.free[:, GPUS] = self._boards.whole(np.arange(len(free)))

    def copy(self) -> NodeStates:
        """The same room; what is booked in one is not booked in the other."""
        made = copy(self)
        made.free = self.free.copy()
        made._boards = None if self._boards is None else self._boards.copy()
        made._crowds, made._changed, made._kept = dict(self._crowds), [], {}
        return made

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
        return self._boards.milli(nodes)

    def board_rooms(self, demand: Demand, nodes: npt.NDArray[np.intp]) -> IntArray:
        """How many more of a demand for boards have boards on some nodes, (k,), whatever else."""
        if self._boards is not None:
            return self._boards.rooms(demand, nodes)
        rooms: IntArray = self.free[nodes, GPUS] // demand.whole_boards
        return rooms

    def boards_lacking(self, demand: Demand, node: int, pods: int) -> int:
        """How many more empty boards a node would need so that it has boards for so many pods."""
        if self._boards is not None and demand.asks_for_part:
            return self._boards.lacking(demand, node, pods)
        return max(0, demand.whole_boards * pods - max(0, int(self.free[node, GPUS])))

    def board_rows(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """What is left of each board of some nodes, 0 where there is none, shape (k, b)."""
        if self._boards is not None:
            return self._boards.rows(nodes)
        idle = self.free[nodes, GPUS][:, None]
        rows: IntArray = MILLI_PER_GPU * (np.arange(idle.max(initial=0)) < idle)
        return rows

    def boards(self, demand: Demand, node: int) -> tuple[Boards, ...]:
        """Boards of each pod of a demand on a node, those that stay first; () if none is told."""
        return () if self._boards is None else self._boards.held(demand, node)

    def room_without(
        self, amounts: IntArray, nodes: IntArray, demands: Callable[[], Sequence[Demand]]
    ) -> IntArray:
        """Room of each node if one pod there left, shape (k, r + 1).

        The last column is what one board has left, thousandths: compare it with a share.

        Args:
            amounts: Of the pod that leaves, shape (k, r).
            nodes: Where it is, shape (k,).
            demands: The same pods'; asked only where boards are told apart.
        """
        room = np.zeros((len(nodes), self.free.shape[1] + 1), dtype=np.int64)
        room[:, :-1] = self.free[nodes] + amounts
        if self._boards is not None:
            room[:, GPUS], room[:, -1] = self._boards.after_leaving(demands(), nodes)
        return room

    def held_on(self, node: int) -> dict[Demand, tuple[Boards, ...]]:
        """Boards of all pods that came to a node, by demand, those that stay first."""
        return {} if self._boards is None else self._boards.held_on(node)

    def is_overbooked(self) -> bool:
        """Whether more was put on a node than an arrangement of its boards was found for."""
        return self._boards is not None and self._boards.is_overbooked()

    def board_states(self, node: int) -> list[int]:
        """The state of each board of a node; empty where boards are not told apart."""
        return [] if self._boards is None else self._boards.states_of(node)

    def can_be_arranged(self, node: int) -> bool:
        """Whether boards for all pods of a node are found again from their numbers alone."""
        return self._boards is None or self._boards.can_be_arranged(node)

    def admits(self, demand: Demand, node: int, boards: Boards) -> bool:
        """Whether one more has room on a node, on just these boards."""
        assert self._boards is not None
        columns = (r for r in range(len(demand.amounts)) if r != GPUS and demand.amounts[r])
        return self._boards.has_room(demand, node, boards) and all(
            self.free[node, r] >= demand.amounts[r] for r in columns
        )

    def _counted(self, demand: Demand, nodes: npt.NDArray[np.intp]) -> IntArray:
        room = np.full(len(nodes), NO_LIMIT, dtype=np.int64)
        judged = self._share_columns if self._rule is not None else ()
        for column, amount in enumerate(demand.amounts):
            if (
                amount
                and column not in judged
                and not (column == GPUS and self._boards is not None)
            ):
                np.minimum(room, self.free[nodes, column] // amount, out=room)
        if demand.asks_for_boards and self._boards is not None:
            room = np.minimum(room, self._boards.rooms(demand, nodes))
        # A node may hold more than it offers: somebody else bound there, or it shrank.
        return np.maximum(room, 0)

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

    def put(self, demand: Demand, node: int, count: int = 1, boards: Boards = ()) -> None:
        """Book so many pods; the caller has asked ``fits``.

        A share goes to the fullest board that still has it, whole boards to the first that nobody
        uses; pods that run, to their own. Where that leaves no room though other boards would,
        those of the plan change theirs.

        Args:
            demand: Of each.
            node: Where.
            count: How many.
            boards: Just these; for one pod.
        """
        self._book(demand, node, count, boards)

    def take(self, demand: Demand, node: int, count: int = 1, boards: Boards = ()) -> None:
        """Give back so many pods that were put there, those of this demand that came last.

        Args:
            demand: Of each.
            node: Where.
            count: How many.
            boards: The one that has these.
        """
        self._book(demand, node, -count, boards)

    def _book(self, demand: Demand, node: int, count: int, boards: Boards) -> None:
        amounts = np.array(demand.amounts, dtype=np.int64)
        self.free[node] -= amounts * count
        if demand.sharer is not None and self._rule is not None:
            self._crowds[node] = self.crowd(node).plus(demand.sharer, count)
        if self._boards is not None and demand.asks_for_boards:
            for _ in range(abs(count)):
                (self._boards.put if count > 0 else self._boards.take)(demand, node, boards)
            self.free[node, GPUS] = int(self._boards.whole(np.array([node]))[0])
        self._changed.append(node)
