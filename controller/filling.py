"""Progressive filling of one power tree, stage by stage, under one or two kinds of limits at once.

All GPUs of a stage rise together, each by a common share of its way, until a domain is full; that
domain then holds its members while the others go on. Below one domain the level is common, so that
the max-min fair level of a GPU is the least of its domains' levels, and one pass from the leaves to
the root finds them all. A gang ties GPUs of several branches, which no single pass settles: there,
domains are settled step by step, all those at once that no GPU of theirs waits for elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.filling_levels import Held, Ways, fair_levels, levels_alone
from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = ["Filling", "Room"]

_LEVEL_EPSILON = 1e-9
_GAP_WATTS = 1e-6
# Steps in which gangs are settled exactly. What chains of gangs leave open after that rises by what
# is safe: room may stay unused then, no limit is passed.
_GANG_STEPS = 48

T = TypeVar("T", bound=np.generic)


@dataclass(slots=True)
class Room:
    """What one kind of limit leaves.

    Attributes:
        counted_watts: Draw beyond which a higher cap counts nothing; infinite counts the cap, minus
            infinite never counts the GPU, (n_gpus,); None counts all caps.
        dc_watts: Room over the domain's GPU factor, (n_domains,).
    """

    counted_watts: FloatArray | None
    dc_watts: FloatArray

    def taken(self, movers: IntArray, start: FloatArray, goal: FloatArray) -> FloatArray:
        """What these ways take of it, (n_movers,) each."""
        if self.counted_watts is None:
            return goal - start
        # Minus infinite never counts the GPU: as good as drawing nothing.
        counted = np.maximum(self.counted_watts.take(movers), 0.0)
        more = np.minimum(goal, counted) - np.minimum(start, counted)
        return np.asarray(np.maximum(more, 0.0))

    def bend(self, movers: IntArray, start: FloatArray, span: FloatArray) -> FloatArray:
        """Share of each way beyond which nothing more is taken, (n_movers,)."""
        if self.counted_watts is None:
            return np.ones(len(movers))
        share = (self.counted_watts.take(movers) - start) / span
        return np.asarray(np.minimum(np.maximum(share, 0.0), 1.0))


@dataclass(slots=True)
class Filling:
    """Caps on their way up, stage by stage; everything but load and gangs changes in place.

    Attributes:
        load: Tree and members.
        gang: Members of one gang rise by one common share, (n_gpus,).
        caps: (n_gpus,).
        rooms: What each kind of limit leaves.
        closed_by: Which room held back more important work in a domain, -1 for none: nobody below
            rises any more, not even into watts that he would not draw (I5), (n_domains,).
        all_open: No domain is closed, so nobody was held back.
        binding: The domain that held each GPU back, -1 for none, (n_gpus,).
        binding_kind: Which of the rooms it lacked there, (n_gpus,).
    """

    load: LoadTree
    gang: IntArray
    caps: FloatArray
    rooms: tuple[Room, ...]
    closed_by: IntArray
    binding: IntArray
    binding_kind: IntArray
    all_open: bool = True

    @classmethod
    def begin(
        cls, load: LoadTree, gang: IntArray, caps: FloatArray, rooms: tuple[Room, ...]
    ) -> Filling:
        """Nobody was held back yet; a room that is overdrawn is none."""
        left = tuple(Room(r.counted_watts, np.maximum(r.dc_watts, 0.0)) for r in rooms)
        nobody = np.full(load.n_gpus, -1, dtype=np.int64)
        open_ = np.full(len(load.tree), -1, dtype=np.int64)
        start = np.array(caps, dtype=np.float64, copy=True)
        return cls(load, gang, start, left, open_, nobody, nobody.copy())

    def close(self, domains: BoolArray, kind: int) -> None:
        """Nobody below these domains rises, for lack of one kind of room, (n_domains,)."""
        if some(domains):
            self.closed_by[domains] = kind
            self.all_open = False

    @property
    def _closed(self) -> BoolArray:
        closed: BoolArray = self.closed_by >= 0
        return closed

    def _unheld(self, members: IntArray) -> IntArray:
        """Those whom nothing held back yet."""
        return members if self.all_open else members[self.binding.take(members) < 0]

    def raise_through(self, goals_watts: Sequence[FloatArray], members: IntArray) -> None:
        """Raise the members' caps to one goal after the other, as far as there is room.

        Up to the last goal that all of them reach there is nothing to divide: it is gone to at
        once. Mostly that is the last of all; if not, it is looked for by halves.

        Args:
            goals_watts: Each (n_gpus,), none below the one before it.
        """
        reached, beyond = 0, len(goals_watts) - 1
        if beyond > 0 and self._all_reach(goals_watts[beyond], members):
            reached = beyond
        while reached + 1 < beyond:
            middle = (reached + beyond) // 2
            if self._all_reach(goals_watts[middle], members):
                reached = middle
            else:
                beyond = middle
        for goal in goals_watts[reached:]:
            members = self._unheld(members)
            if not members.size:
                return
            self.raise_to(goal, members)

    def _all_reach(self, goal_watts: FloatArray, members: IntArray) -> bool:
        if not self.all_open:
            if some(self.binding.take(members) >= 0):
                return False
            if some(self.load.any_above_gpu(self._closed).take(members)):
                return False
        start = self.caps.take(members)
        goal = np.maximum(goal_watts.take(members), start)
        return not any(
            some(self.load.sum_of(members, room.taken(members, start, goal)) > room.dc_watts)
            for room in self.rooms
        )

    def raise_to(self, goal_watts: FloatArray, members: IntArray) -> None:
        """Raise the members' caps towards their goals as far as there is room.

        Args:
            goal_watts: (n_gpus,).
            members: Indexes of the GPUs of this stage, (n_members,).
        """
        # Who was held back in an earlier stage has its holder, and that domain is closed.
        members = self._unheld(members)
        way = goal_watts.take(members) - self.caps.take(members)
        movers = self._hold_below_closed(members[way > _GAP_WATTS])
        if not movers.size:
            return
        start = self.caps.take(movers)
        span = goal_watts.take(movers) - start
        bends = [room.bend(movers, start, span) for room in self.rooms]
        if self._take_all(movers, span, bends):
            self.caps[movers] = start + span
            return
        held = self._held(movers, span, bends)
        self.caps[movers] = start + span * held.level
        for room, bend in zip(self.rooms, bends, strict=True):
            used = self.load.sum_of(movers, span * np.minimum(held.level, bend))
            room.dc_watts = np.maximum(room.dc_watts - used, 0.0)
        short = held.level < 1.0 - _LEVEL_EPSILON
        self.binding[movers[short]] = held.domain[short]
        self.binding_kind[movers[short]] = held.kind[short]
        self.closed_by[held.domain[short]] = held.kind[short]
        self.all_open = self.all_open and not some(short)

    def _take_all(self, movers: IntArray, span: FloatArray, bends: list[FloatArray]) -> bool:
        """Take the room for the movers' whole way if it is there; else leave everything."""
        used = [self.load.sum_of(movers, span * bend) for bend in bends]
        # Nobody below a closed domain moves, so there it is as good as any.
        if any(some(u > room.dc_watts) for u, room in zip(used, self.rooms, strict=True)):
            return False
        for u, room in zip(used, self.rooms, strict=True):
            room.dc_watts = np.maximum(room.dc_watts - u, 0.0)
        return True

    def _hold_below_closed(self, movers: IntArray) -> IntArray:
        """The movers below no closed domain; the others get theirs as holder, and so does a gang.

        A full domain stays full for all later stages: most stages of a full row end here.
        """
        if self.all_open or not movers.size:
            return movers
        closed = self._closed
        above = self.load.gpu_domains[:, movers]
        marked = _with_last(closed, False).take(above)
        below = np.asarray(marked.any(axis=0))
        if not some(below):
            return movers
        deepest = len(marked) - 1 - marked[::-1].argmax(axis=0)
        holder = np.where(below, above[deepest, np.arange(len(movers))], -1)
        gangs = self.gang.take(movers)
        if some(gangs[below] >= 0):
            first = _first_of_gang(gangs, np.where(below, 0.0, 1.0))
            below, holder = below[first], holder[first]
        self.binding[movers[below]] = holder[below]
        self.binding_kind[movers[below]] = self.closed_by[holder[below]]
        return movers[~below]

    def _held(self, movers: IntArray, span: FloatArray, bends: list[FloatArray]) -> Held:
        above = self.load.gpu_domains.take(movers, axis=1)
        held = fair_levels(Ways(above, span, bends, self._open_rooms()))
        gangs = self.gang.take(movers)
        if not some(gangs >= 0):
            return held
        first = _first_of_gang(gangs, held.level)
        if every(held.level - held.level.take(first) <= _LEVEL_EPSILON):
            return held.of(first)
        return self._levels_with_gangs(movers, span, bends)

    def _open_rooms(self) -> list[FloatArray]:
        """Room of every domain and, last, of none, (n_domains + 1,) each; closed ones have less."""
        closed = self._closed
        return [_with_last(np.where(closed, -1.0, r.dc_watts), np.inf) for r in self.rooms]

    def _levels_with_gangs(
        self, movers: IntArray, span: FloatArray, bends: list[FloatArray]
    ) -> Held:
        """The same with a common share for each gang.

        A domain's level when nobody below it is held elsewhere is the least that it can be. Where
        all its movers have just that level and none a lower one elsewhere, it is their level.
        """
        result, rooms, closed = Held.free(len(movers)), self._open_rooms(), self._closed
        alive = np.arange(len(movers))
        for step in range(_GANG_STEPS):
            mine, here = movers[alive], [bend[alive] for bend in bends]
            above = self.load.gpu_domains.take(mine, axis=1)
            alone, domain_level = levels_alone(Ways(above, span[alive], here, rooms))
            held = alone.of(_first_of_gang(self.gang[mine], alone.level))
            stopped = held.level < 1.0
            if not some(stopped):
                break
            settles = self._settles(mine, held.level, domain_level)
            settled = np.asarray(stopped & settles[held.domain])
            if step == _GANG_STEPS - 1 or not some(settled):
                settled = np.ones(len(alive), dtype=np.bool_)
            done = alive[settled]
            result.level[done] = held.level[settled]
            result.domain[done] = held.domain[settled]
            result.kind[done] = held.kind[settled]
            for kind, bend in enumerate(here):
                watts = span[done] * np.minimum(held.level, bend)[settled]
                left = np.maximum(rooms[kind][:-1] - self.load.sum_of(mine[settled], watts), 0.0)
                rooms[kind][:-1] = np.where(closed, -1.0, left)
            alive = alive[~settled]
            if not alive.size:
                break
        return result

    def _settles(self, movers: IntArray, level: FloatArray, domain_level: FloatArray) -> BoolArray:
        """Domains none of whose movers has a lower level than theirs, (n_domains + 1,)."""
        lowest = np.full(len(domain_level), np.inf)
        for domains in self.load.gpu_domains:
            np.minimum.at(lowest, domains[movers], level)
        return np.asarray(lowest >= domain_level - _LEVEL_EPSILON)


def _first_of_gang(gangs: IntArray, level: FloatArray) -> IntArray:
    """For each GPU the one of its gang that has the lowest level, itself outside of gangs."""
    order = np.lexsort((level, gangs))
    first = order[np.searchsorted(gangs[order], gangs)]
    return np.where(gangs >= 0, first, np.arange(len(gangs)))


def _with_last(values: NDArray[T], last: T | float | bool) -> NDArray[T]:
    """The values and one more, (n + 1,)."""
    longer = np.empty(len(values) + 1, dtype=values.dtype)
    longer[:-1] = values
    longer[-1] = last
    return longer
