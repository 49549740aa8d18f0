"""What is left of each board of each node, and who of the planned pods is where.

Pods that run have boards of their own and keep them while they stay. Pods of a plan are on no board
yet: their boards are what the plan expects, so a node is rearranged where that lets one more in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.mig_geometry import MigGeometry
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.room import board_packing, mig_rooms
from scheduler_plugin.room.board_states import (
    CUT,
    NO_BOARD,
    Boards,
    Part,
    board_of,
    packed,
    put_part,
    room_at,
    take_part,
)
from scheduler_plugin.room.pod_demand import Demand

__all__ = ["BoardShares", "board_for"]

IntArray = npt.NDArray[np.int64]


class BoardShares:
    """Boards of all nodes.

    Args:
        states: Of each board beside what stays as it is, shape (n, b), ``NO_BOARD`` beyond a
            node's last.
        homes: Places of running pods that may leave, by node and demand, in the order in which
            they stay.
        geometries: How each node's boards may be cut, (n,); () where none may.
    """

    def __init__(
        self,
        states: IntArray,
        homes: Mapping[tuple[int, Demand], Sequence[Boards]],
        geometries: Sequence[MigGeometry | None] = (),
    ) -> None:
        self._beside_fixed = states
        self._left = states.copy()
        self._geometries = geometries
        self._cut_by: dict[MigGeometry, IntArray] = {
            geometry: np.array([g is geometry for g in geometries])
            for geometry in dict.fromkeys(geometries)
            if geometry is not None
        }
        self._homes = homes
        #: Nodes to which running pods of a demand could come back.
        self._away: dict[Demand, set[int]] = {}
        for node, demand in homes:
            self._away.setdefault(demand, set()).add(node)
        self._held: dict[int, dict[Demand, list[Boards]]] = {}
        self._overbooked: set[int] = set()

    def copy(self) -> BoardShares:
        """The same state; what happens to one does not happen to the other."""
        made = copy(self)
        made._left = self._left.copy()
        made._held = {
            node: {demand: list(there) for demand, there in held.items()}
            for node, held in self._held.items()
        }
        made._overbooked = set(self._overbooked)
        made._away = {demand: set(nodes) for demand, nodes in self._away.items()}
        return made

    def geometry(self, node: int) -> MigGeometry | None:
        """How a node's boards may be cut; None if not at all."""
        return self._geometries[node] if self._geometries else None

    def whole(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """Boards of some nodes that nobody uses, shape (k,)."""
        idle: IntArray = (self._left[nodes] == MILLI_PER_GPU).sum(axis=1)
        return idle

    def milli(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """What is left of all boards of some nodes, shape (k,)."""
        left: IntArray = np.maximum(self._left[nodes], 0).sum(axis=1)
        for geometry, there in self._cut_by.items():
            mine = np.flatnonzero(there[nodes])
            left[mine] += mig_rooms.milli_left_on(self._left[nodes[mine]], geometry)
        return left

    def rows(self, nodes: npt.NDArray[np.intp]) -> IntArray:
        """What is left of each board of some nodes, 0 where there is none, shape (k, b)."""
        left: IntArray = np.maximum(self._left[nodes], 0)
        return left

    def states_of(self, node: int) -> list[int]:
        """The state of each board of a node."""
        return [state for state in self._left[node].tolist() if state != NO_BOARD]

    def rooms(self, demand: Demand, nodes: npt.NDArray[np.intp]) -> IntArray:
        """How many more of the demand the boards of some nodes take as they are, shape (k,)."""
        found = self._rooms(demand, nodes)
        away = self._away.get(demand)
        if away:
            for i, node in enumerate(nodes.tolist()):
                if node in away:
                    found[i] = self._room_with_homes(demand, node)
        return found

    def _rooms(self, demand: Demand, nodes: npt.NDArray[np.intp]) -> IntArray:
        left = self._left[nodes]
        if demand.mig_profiles:
            return self._mig_rooms(demand.mig_profiles, nodes)
        if demand.share_milli:
            shares: IntArray = (np.maximum(left, 0) // demand.share_milli).sum(axis=1)
            return shares
        whole: IntArray = (left == MILLI_PER_GPU).sum(axis=1) // demand.whole_boards
        return whole

    def _mig_rooms(self, profiles: tuple[str, ...], nodes: npt.NDArray[np.intp]) -> IntArray:
        found = np.zeros(len(nodes), dtype=np.int64)
        for geometry, there in self._cut_by.items():
            mine = np.flatnonzero(there[nodes])
            if not all(name in geometry.profiles for name in profiles):
                continue
            found[mine] = mig_rooms.pods_held(profiles, self._left[nodes[mine]], geometry)
        return found

    def lacking(self, demand: Demand, node: int, pods: int) -> int:
        """Empty boards beside the node's own with which it takes so many pods of a part."""
        outside = pods - int(self.rooms(demand, np.array([node]))[0])
        if outside <= 0:
            return 0
        if demand.share_milli:
            return -(-outside // (MILLI_PER_GPU // demand.share_milli))
        geometry = self.geometry(node)
        if geometry is None:
            return outside * len(demand.parts)
        return mig_rooms.boards_lacking(demand.mig_profiles, self._left[node], geometry, pods)

    def _room_with_homes(self, demand: Demand, node: int) -> int:
        """Those that run here come back to their own boards before others come."""
        back = self._missing(demand, node)
        kept = self._left[node].copy()
        count = 0
        for places in back:
            if not self.has_room(demand, node, places):
                break
            self._book(demand, node, places)
            count += 1
        else:
            count += int(self._rooms(demand, np.array([node]))[0])
        self._left[node] = kept
        return count

    def after_leaving(
        self, demands: Sequence[Demand], nodes: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Idle boards, and the most left on one, if one of each demand left its node, (k,) each."""
        left = self._left.tolist()
        idle, largest = self.whole(nodes), self._left[nodes].max(axis=1, initial=0)
        for i, (demand, node) in enumerate(zip(demands, nodes.tolist(), strict=True)):
            there = self._on(node, demand) if demand.asks_for_boards else ()
            if not there:
                continue
            geometry, states = self.geometry(node), left[node].copy()
            for part, place in zip(demand.parts, there[-1], strict=False):
                take_part(part, states, place, geometry)
                milli = states[board_of(part, place)]
                idle[i] += milli == MILLI_PER_GPU
                largest[i] = max(largest[i], milli)
        return idle, largest

    def has_room(self, demand: Demand, node: int, places: Boards) -> bool:
        """Whether these places would take one more of the demand now."""
        states, geometry = self._left[node].copy(), self.geometry(node)
        for part, place in zip(demand.parts, places, strict=False):
            if not room_at(part, int(states[board_of(part, place)]), place, geometry):
                return False
            put_part(part, states, place, geometry)
        return True

    def held_on(self, node: int) -> dict[Demand, tuple[Boards, ...]]:
        """Places of all pods that came to a node, by demand, those that stay first."""
        return {demand: tuple(there) for demand, there in self._held.get(node, {}).items()}

    def _missing(self, demand: Demand, node: int) -> list[Boards]:
        """Places to which running pods come back before others come."""
        homes, there = self._homes.get((node, demand), ()), self._on(node, demand)
        here = Counter(there)
        found = []
        for places in homes if len(there) < len(homes) else ():
            if here[places]:
                here[places] -= 1
            else:
                found.append(places)
        return found[: len(homes) - len(there)]

    def is_overbooked(self) -> bool:
        """Whether more was booked somewhere than an arrangement was found for."""
        return bool(self._overbooked)

    def held(self, demand: Demand, node: int) -> tuple[Boards, ...]:
        """Places of each pod of a demand on a node: those that stay first."""
        return tuple(self._on(node, demand))

    def put(self, demand: Demand, node: int, places: Boards = ()) -> None:
        """Book one pod: in its own places, on the fullest board that has it, or on idle ones.

        Where it has no room the plan's pods are rearranged. If that fails, a board is overbooked:
        nothing fits there any more, and the checker would refuse it.
        """
        there = self._held.setdefault(node, {}).setdefault(demand, [])
        missing = [] if places else self._missing(demand, node)
        chosen = places or (missing[0] if missing else self._free_places(demand, node))
        if chosen and (not missing or self.has_room(demand, node, chosen)):
            self._book(demand, node, chosen)
            last = self._strangers(demand, node) if missing else 0
            there.insert(len(there) - last, chosen)
        elif not self._rearrange(node, demand):
            self._overbook(demand, node)
        if len(there) == len(self._homes.get((node, demand), ())):
            self._away.get(demand, set()).discard(node)

    def _strangers(self, demand: Demand, node: int) -> int:
        """Pods of a demand that are not where one of them runs; they come last."""
        at_home = Counter(self._on(node, demand)) & Counter(self._homes.get((node, demand), ()))
        return len(self._on(node, demand)) - at_home.total()

    def _free_places(self, demand: Demand, node: int) -> Boards:
        if not demand.mig_profiles:
            return board_for(demand.share_milli, demand.whole_boards, self._left[node])
        return tuple(packed(demand.parts, self._left[node].tolist(), self.geometry(node)) or ())

    def take(self, demand: Demand, node: int, places: Boards = ()) -> None:
        """Give one back: that in these places, or the one that came last."""
        there = self._on(node, demand)
        if places in there:
            there.remove(places)
        else:  # None was named, or it was given other places since.
            places = there.pop()
        if demand.mig_profiles:
            # An overbooked pod has no places.
            for part, place in zip(demand.parts, places, strict=False):
                take_part(part, self._left[node], place, self.geometry(node))
        else:
            self._left[node, list(places)] += demand.share_milli or MILLI_PER_GPU
        if len(there) < len(self._homes.get((node, demand), ())):
            self._away[demand].add(node)
        if node in self._overbooked and self._rearrange(node):
            self._overbooked.remove(node)

    def _book(self, demand: Demand, node: int, places: Boards) -> None:
        if not demand.mig_profiles:
            self._left[node, list(places)] -= demand.share_milli or MILLI_PER_GPU
            return
        for part, place in zip(demand.parts, places, strict=False):
            put_part(part, self._left[node], place, self.geometry(node))

    def _on(self, node: int, demand: Demand) -> list[Boards]:
        return self._held.get(node, {}).get(demand, [])

    def _rearrange(self, node: int, new: Demand | None = None) -> bool:
        """Give the plan's pods on a node, and one more, other places; homes stay."""
        held, geometry = self._held[node], self.geometry(node)
        kept, parts, states = self._parts(node, new)
        found = _arranged([part for part, _ in parts], states, geometry)
        if found is None:
            return False
        chosen: dict[Demand, dict[Part, list[int]]] = {demand: {} for demand in held}
        for (part, demand), place in zip(parts, found, strict=True):
            put_part(part, states, place, geometry)
            chosen[demand].setdefault(part, []).append(place)
        for demand, places_of in chosen.items():
            count = len(held[demand]) + (demand == new) - len(kept[demand])
            others = [tuple(places_of[part].pop() for part in demand.parts) for _ in range(count)]
            held[demand][:] = kept[demand] + others
        self._left[node] = states
        return True

    def _parts(
        self, node: int, new: Demand | None = None
    ) -> tuple[dict[Demand, list[Boards]], list[tuple[Part, Demand]], list[int]]:
        """Homes of pods on a node and one more, parts that others need, what homes leave, (b,)."""
        states, geometry = self._beside_fixed[node].tolist(), self.geometry(node)
        kept: dict[Demand, list[Boards]] = {}
        parts: list[tuple[Part, Demand]] = []
        for demand, there in self._held.get(node, {}).items():
            count = len(there) + (demand == new)
            kept[demand] = there[: len(there) - self._strangers(demand, node)]
            kept[demand] += self._missing(demand, node)[:1] if demand == new else []
            for places in kept[demand]:
                for part, place in zip(demand.parts, places, strict=False):
                    put_part(part, states, place, geometry)
            parts += [(part, demand) for part in demand.parts] * (count - len(kept[demand]))
        parts.sort(key=lambda each: _hardness(each[0], geometry), reverse=True)
        return kept, parts, states

    def can_be_arranged(self, node: int) -> bool:
        """Whether places for all pods of a node are found again from their demands alone."""
        _, parts, states = self._parts(node)
        return _arranged([part for part, _ in parts], states, self.geometry(node)) is not None

    def _overbook(self, demand: Demand, node: int) -> None:
        self._overbooked.add(node)
        places: Boards = ()
        if not demand.mig_profiles:
            known = np.flatnonzero(self._left[node] > CUT)
            emptiest = known[np.argsort(-self._left[node, known], kind="stable")]
            places = tuple(sorted(emptiest[: len(demand.parts)].tolist()))
            self._left[node, list(places)] -= demand.share_milli or MILLI_PER_GPU
        self._held[node][demand].append(places)


def _arranged(
    parts: Sequence[Part], states: Sequence[int], geometry: MigGeometry | None
) -> list[int] | None:
    """A place for each part, the hardest first; None if there is no way or none was found."""
    sizes = [part for part in parts if isinstance(part, int)]
    if len(sizes) == len(parts):
        return board_packing.packed(sizes, states)
    return packed(parts, states, geometry)


def _hardness(part: Part, geometry: MigGeometry | None) -> tuple[int, int]:
    """Whole boards, then instances by size, then shares by size."""
    if isinstance(part, int):
        return (2 if part == MILLI_PER_GPU else 0, part)
    profile = None if geometry is None else geometry.profiles.get(part)
    return (1, 0 if profile is None else profile.memory_slices)


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
