"""What is left of each board of each node, in thousandths, and who of the planned pods is where.

Pods that run have boards of their own and keep them while they stay. Pods of a plan are on no board
yet: their boards are what the plan expects, so a node is rearranged where that lets one more in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.board_packing import packed
from scheduler_plugin.pod_demand import Demand
from scheduler_plugin.snapshot import MILLI_PER_GPU

__all__ = ["NO_BOARD", "BoardShares", "Boards", "board_for"]

IntArray = npt.NDArray[np.int64]
Boards = tuple[int, ...]

NO_BOARD: Final = -(2**40)


class BoardShares:
    """Boards of all nodes.

    Args:
        left_milli: Of each board beside what stays as it is, shape (n, b), ``NO_BOARD`` beyond a
            node's last.
        homes: Boards of running pods that may leave, by node and demand, in the order in which
            they stay.
    """

    def __init__(
        self, left_milli: IntArray, homes: Mapping[tuple[int, Demand], Sequence[Boards]]
    ) -> None:
        self._beside_fixed = left_milli
        self._left = left_milli.copy()
        self._homes = homes
        self._at_home: dict[Demand, list[int]] = {}
        for node, demand in homes:
            self._at_home.setdefault(demand, []).append(node)
        self._held: dict[int, dict[Demand, list[Boards]]] = {}
        self._overbooked: set[int] = set()

    def whole(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """Boards of some nodes that nobody uses, shape (k,)."""
        idle: IntArray = (self._left[nodes] == MILLI_PER_GPU).sum(axis=1)
        return idle

    def milli(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """What is left of all boards of some nodes, shape (k,)."""
        left: IntArray = np.maximum(self._left[nodes], 0).sum(axis=1)
        return left

    def rows(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """What is left of each board of some nodes, 0 where there is none, shape (k, b)."""
        left: IntArray = np.maximum(self._left[nodes], 0)
        return left

    def left_of(self, node: int) -> list[int]:
        """What is left of each board of a node, thousandths."""
        return [left for left in self._left[node].tolist() if left != NO_BOARD]

    def rooms(self, demand: Demand, nodes: npt.NDArray[np.intp]) -> IntArray:
        """How many more of the demand the boards of some nodes take as they are, shape (k,)."""
        found = _rooms(demand, self._left[nodes])
        away = {
            node
            for node in self._at_home.get(demand, ())
            if len(self._on(node, demand)) < len(self._homes[node, demand])
        }
        if away:
            for i, node in enumerate(nodes.tolist()):
                if node in away:
                    found[i] = self._room_with_homes(demand, node)
        return found

    def _room_with_homes(self, demand: Demand, node: int) -> int:
        """Those that run here come back to their own boards before others come."""
        back = self._homes[node, demand][len(self._on(node, demand)) :]
        left = self._left[node].copy()
        for number, boards in enumerate(back):
            if (left[list(boards)] < _each(demand)).any():
                return number
            left[list(boards)] -= _each(demand)
        return len(back) + int(_rooms(demand, left[None])[0])

    def after_leaving(
        self, demands: Sequence[Demand], nodes: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Idle boards, and the most left on one, if one of each demand left its node, (k,) each."""
        left = self._left.tolist()
        idle, largest = self.whole(nodes), self._left[nodes].max(axis=1, initial=0)
        for i, (demand, node) in enumerate(zip(demands, nodes.tolist(), strict=True)):
            there = self._on(node, demand) if demand.asks_for_boards else ()
            for board in there[-1] if there else ():
                milli = left[node][board] + _each(demand)
                idle[i] += milli == MILLI_PER_GPU
                largest[i] = max(largest[i], milli)
        return idle, largest

    def has_room(self, demand: Demand, node: int, boards: Boards) -> bool:
        """Whether these boards would take one more of the demand now."""
        return bool((self._left[node, list(boards)] >= _each(demand)).all())

    def held_on(self, node: int) -> dict[Demand, tuple[Boards, ...]]:
        """Boards of all pods that came to a node, by demand, those that stay first."""
        return {demand: tuple(there) for demand, there in self._held.get(node, {}).items()}

    def is_overbooked(self) -> bool:
        """Whether more was booked somewhere than an arrangement was found for."""
        return bool(self._overbooked)

    def held(self, demand: Demand, node: int) -> tuple[Boards, ...]:
        """Boards of each pod of a demand on a node: those that stay first."""
        return tuple(self._on(node, demand))

    def put(self, demand: Demand, node: int, boards: Boards = ()) -> None:
        """Book one pod: on its own boards, the fullest that has a share, or the first idle ones.

        Where it has no room the plan's pods are rearranged. If that fails, a board is overbooked:
        nothing fits there any more, and the checker would refuse it.
        """
        there = self._held.setdefault(node, {}).setdefault(demand, [])
        homes = self._homes.get((node, demand), ())
        chosen = boards or (homes[len(there)] if len(there) < len(homes) else ())
        if not chosen:
            chosen = board_for(demand.share_milli, demand.whole_boards, self._left[node])
        if chosen and (boards or self.has_room(demand, node, chosen)):
            self._left[node, list(chosen)] -= _each(demand)
            there.append(chosen)
        elif not self._rearrange(node, demand):
            self._overbook(demand, node)

    def take(self, demand: Demand, node: int, boards: Boards = ()) -> None:
        """Give one back: that on these boards, or the one that came last."""
        there = self._on(node, demand)
        if boards:
            there.remove(boards)
        else:
            boards = there.pop()
        self._left[node, list(boards)] += _each(demand)
        if node in self._overbooked and self._rearrange(node):
            self._overbooked.remove(node)

    def _on(self, node: int, demand: Demand) -> list[Boards]:
        return self._held.get(node, {}).get(demand, [])

    def _rearrange(self, node: int, new: Demand | None = None) -> bool:
        """Give the plan's pods on a node, and one more, other boards; homes stay."""
        held = self._held[node]
        kept, parts, left = self._parts(node, new)
        found = packed([milli for milli, _ in parts], left.tolist())
        if found is None:
            return False
        chosen: dict[Demand, list[int]] = {demand: [] for demand in held}
        for (milli, demand), board in zip(parts, found, strict=True):
            left[board] -= milli
            chosen[demand].append(board)
        for demand, numbers in chosen.items():
            size = demand.whole_boards or 1
            others = [tuple(numbers[i : i + size]) for i in range(0, len(numbers), size)]
            held[demand][:] = kept[demand] + others
        self._left[node] = left
        return True

    def _parts(
        self, node: int, new: Demand | None = None
    ) -> tuple[dict[Demand, list[Boards]], list[tuple[int, Demand]], IntArray]:
        """Homes of pods on a node and one more, boards that others need, what homes leave, (b,)."""
        left = self._beside_fixed[node].copy()
        kept: dict[Demand, list[Boards]] = {}
        parts: list[tuple[int, Demand]] = []
        for demand, there in self._held.get(node, {}).items():
            count = len(there) + (demand == new)
            kept[demand] = list(self._homes.get((node, demand), ())[:count])
            for boards in kept[demand]:
                left[list(boards)] -= _each(demand)
            more = (count - len(kept[demand])) * (demand.whole_boards or 1)
            parts += [(_each(demand), demand)] * more
        parts.sort(key=lambda part: -part[0])
        return kept, parts, left

    def can_be_arranged(self, node: int) -> bool:
        """Whether boards for all pods of a node are found again from their numbers alone."""
        _, parts, left = self._parts(node)
        return packed([milli for milli, _ in parts], left.tolist()) is not None

    def _overbook(self, demand: Demand, node: int) -> None:
        self._overbooked.add(node)
        known = np.flatnonzero(self._left[node] != NO_BOARD)
        emptiest = known[np.argsort(-self._left[node, known], kind="stable")]
        boards = tuple(sorted(emptiest[: demand.whole_boards or 1].tolist()))
        self._left[node, list(boards)] -= _each(demand)
        self._held[node][demand].append(boards)


def _each(demand: Demand) -> int:
    return demand.share_milli or MILLI_PER_GPU


def _rooms(demand: Demand, left: IntArray) -> IntArray:
    if demand.share_milli:
        shares: IntArray = (np.maximum(left, 0) // demand.share_milli).sum(axis=1)
        return shares
    whole: IntArray = (left == MILLI_PER_GPU).sum(axis=1) // demand.whole_boards
    return whole


def board_for(share_milli: int, whole_boards: int, left: IntArray) -> Boards:
    """The fullest board that still has the share, or the first idle boards; () if there are none.

    Args:
        share_milli: Of one board; 0 for whole ones.
        whole_boards: Asked for.
        left: Of each board, shape (b,).
    """
    if not share_milli:
        idle = np.flatnonzero(left == MILLI_PER_GPU)[:whole_boards]
        return tuple(idle.tolist()) if len(idle) == whole_boards else ()
    able = np.flatnonzero(left >= share_milli)
    return (int(able[left[able].argmin()]),) if len(able) else ()
