"""Who gets how many watts: one pure, vectorised function over the whole power tree.

    minimum -> guaranteed -> floor -> class by class -> request -> slack by value -> default

Each arrow is a stage of progressive filling: all GPUs of the stage rise together from where they
stand towards their goal, by a common share of the way, until a domain above is full; that domain
then holds its members while the others go on. Because every level is common below a domain, the
max-min fair level of a GPU is the least of its domains' levels, and one pass from the leaves to the
root finds them all.

Domains limit load, not caps: a GPU at cap c counts min(c, the draw expected of it). With an
infinite expectation it counts its cap (I2). See docs/adr/0001.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = ["Allocation", "Filling", "Wants", "allocate", "even_gangs", "gang_kinds"]

_LEVEL_EPSILON = 1e-9
_GANG_ROUNDS = 2
_GAP_WATTS = 1e-6
# GPUs of about the same value share slack; more classes would only order measurement noise.
_VALUE_CLASSES = 4


@dataclass(frozen=True, slots=True)
class Wants:
    """What each GPU is owed, each (n_gpus,) with minimum <= guaranteed <= floor <= request.

    Attributes:
        minimum_watts: Lowest settable cap.
        guaranteed_watts: First goal.
        floor_watts: Second goal.
        request_watts: Third goal, by class.
        slack_watts: Highest useful cap, given from what is left over.
        priority: Higher is served first.
        gang: Gang number, -1 for none.
        gang_kind: Kind of board within a gang, see ``gang_kinds``.
        value_per_watt: Order of the slack.
        fixed: Takes no part: counted elsewhere, keeps its minimum here.
    """

    minimum_watts: FloatArray
    guaranteed_watts: FloatArray
    floor_watts: FloatArray
    request_watts: FloatArray
    slack_watts: FloatArray
    priority: IntArray
    gang: IntArray
    gang_kind: IntArray
    value_per_watt: FloatArray
    fixed: BoolArray


@dataclass(frozen=True, slots=True)
class Allocation:
    """Caps and the domain that held each GPU below its goal.

    Attributes:
        cap_watts: (n_gpus,).
        binding_domain: -1 where nothing held the GPU back, (n_gpus,).
    """

    cap_watts: FloatArray
    binding_domain: IntArray


def allocate(
    load: LoadTree, wants: Wants, room_watts: FloatArray, expected_watts: FloatArray | None = None
) -> Allocation:
    """Caps that keep every domain's counted load in its room, in priority order (I5).

    Args:
        load: Tree and members.
        wants: What each GPU is owed.
        room_watts: AC watts for the GPUs that are not fixed, below each domain, (n_domains,).
        expected_watts: Draw expected of each GPU if its cap allows it; None counts caps, (n_gpus,).

    Returns:
        Caps between minimum and slack goal; at the minimum even where the room is too small.
    """
    counted = np.full(load.n_gpus, np.inf) if expected_watts is None else expected_watts
    active = ~wants.fixed
    wants = _even_goals(wants, active)
    top = np.where(active, wants.slack_watts, wants.minimum_watts)
    binding = np.full(load.n_gpus, -1, dtype=np.int64)
    everything = load.sum_gpus(np.where(active, np.minimum(top, counted), 0.0))
    if np.all(everything * load.gpu_factor <= room_watts):
        return Allocation(top, binding)
    caps = np.array(wants.minimum_watts, dtype=np.float64, copy=True)
    least = load.sum_gpus(np.where(active, np.minimum(caps, counted), 0.0))
    room_dc = np.maximum(room_watts / load.gpu_factor - least, 0.0)
    closed = np.zeros(len(load.tree), dtype=np.bool_)
    filling = Filling(load, wants.gang, counted, caps, room_dc, closed, binding)
    for members, goal in _stages(wants, active):
        filling.raise_to(goal, members)
    return Allocation(filling.caps, filling.binding)


def _even_goals(wants: Wants, active: BoolArray) -> Wants:
    """Goals common to the like boards of a gang, so that common shares are common watts."""
    if not np.any(wants.gang_kind >= 0):
        return wants
    return replace(
        wants,
        guaranteed_watts=even_gangs(wants.guaranteed_watts, wants.gang_kind, active),
        floor_watts=even_gangs(wants.floor_watts, wants.gang_kind, active),
        request_watts=even_gangs(wants.request_watts, wants.gang_kind, active),
        slack_watts=even_gangs(wants.slack_watts, wants.gang_kind, active),
    )


def _stages(wants: Wants, active: BoolArray) -> list[tuple[IntArray, FloatArray]]:
    everyone = np.flatnonzero(active)
    stages = [(everyone, wants.guaranteed_watts), (everyone, wants.floor_watts)]
    priority = wants.priority[everyone]
    for level in np.unique(priority)[::-1]:
        stages.append((everyone[priority == level], wants.request_watts))
    greedy = everyone[wants.slack_watts[everyone] > wants.request_watts[everyone]]
    if greedy.size:
        value = _value_with_gangs(wants)[greedy]
        edges = np.unique(np.quantile(value, np.linspace(0, 1, _VALUE_CLASSES + 1)[1:-1]))
        rank = np.searchsorted(edges, value)
        for level in np.unique(rank)[::-1]:
            stages.append((greedy[rank == level], wants.slack_watts))
    return stages


def _value_with_gangs(wants: Wants) -> FloatArray:
    """Value per watt with each gang at its lowest: its members rise in one stage or not at all."""
    inside = wants.gang >= 0
    if not inside.any():
        return wants.value_per_watt
    lowest = np.full(int(wants.gang.max()) + 1, np.inf)
    np.minimum.at(lowest, wants.gang[inside], wants.value_per_watt[inside])
    return np.where(inside, lowest[wants.gang], wants.value_per_watt)


@dataclass(slots=True)
class Filling:
    """Caps on their way up, stage by stage; everything but load and gangs changes in place.

    Attributes:
        load: Tree and members.
        gang: Members of one gang rise by one common share, (n_gpus,).
        counted_watts: Draw beyond which a higher cap counts nothing, (n_gpus,).
        caps: (n_gpus,).
        room_dc: Room over the domain's GPU factor, (n_domains,).
        closed: Domains that held back more important work: nobody below rises any more, not even
            into watts that he would not draw (I5), (n_domains,).
        binding: The domain that held each GPU back, -1 for none, (n_gpus,).
    """

    load: LoadTree
    gang: IntArray
    counted_watts: FloatArray
    caps: FloatArray
    room_dc: FloatArray
    closed: BoolArray
    binding: IntArray

    def raise_to(self, goal_watts: FloatArray, members: IntArray) -> None:
        """Raise the members' caps towards their goals as far as there is room.

        Args:
            goal_watts: (n_gpus,).
            members: Indexes of the GPUs of this stage, (n_members,).
        """
        # Who was held back in an earlier stage has its holder, and that domain is closed.
        members = members[self.binding[members] < 0]
        in_gangs = bool(np.any(self.gang[members] >= 0))
        if not in_gangs:
            members = self._hold_below_closed(members, goal_watts)
        rounds = _GANG_ROUNDS if in_gangs else 1
        for _ in range(rounds):
            short, holder = self._raise_once(goal_watts, members)
            self.binding[members] = -1
            self.binding[members[short]] = holder
            if not short.any():
                break
        holders = self.binding[members]
        self.closed[holders[holders >= 0]] = True

    def _hold_below_closed(self, members: IntArray, goal_watts: FloatArray) -> IntArray:
        """The members below no closed domain; the others that are short get theirs as holder.

        A full domain stays full for all later stages: most stages of a full row end here.
        """
        if not self.closed.any():
            return members
        above = self.load.gpu_domains[:, members]
        marked = np.append(self.closed, False)[above]
        below = marked.any(axis=0)
        if not below.any():
            return members
        held = members[below]
        deepest = len(marked) - 1 - np.argmax(marked[::-1, below], axis=0)
        short = goal_watts[held] - self.caps[held] > _GAP_WATTS
        holder = above[deepest, np.flatnonzero(below)]
        self.binding[held[short]] = holder[short]
        return members[~below]

    def _raise_once(self, goal_watts: FloatArray, members: IntArray) -> tuple[BoolArray, IntArray]:
        """One round: which members are still short, and their holders.

        A gang that one domain holds back leaves room in its others, which the next round hands on.
        """
        start = self.caps[members]
        gap = goal_watts[members] - start
        moving = gap > _GAP_WATTS
        if not moving.any():
            return moving, np.zeros(0, dtype=np.int64)
        movers, start, span = members[moving], start[moving], gap[moving]
        bend = np.clip((self.counted_watts[movers] - start) / span, 0.0, 1.0)
        level, holder = self._levels(movers, span, bend)
        gangs = self.gang[movers]
        if np.any(gangs >= 0) and np.any(level < 1.0):
            ceiling, by = _common_to_gangs(gangs, level, holder)
            level, holder = self._levels(movers, span, np.minimum(bend, ceiling))
            holder = np.where((gangs >= 0) & (ceiling < 1.0), by, holder)
            level = np.minimum(level, ceiling)
        self.caps[movers] = start + span * level
        stopped = level < 1.0 - _LEVEL_EPSILON
        short = moving.copy()
        short[moving] = stopped
        used = np.zeros(self.load.n_gpus)
        used[movers] = span * np.minimum(level, bend)
        self.room_dc = np.maximum(self.room_dc - self.load.sum_gpus(used), 0.0)
        return short, holder[stopped]

    def _levels(
        self, members: IntArray, span: FloatArray, bend: FloatArray
    ) -> tuple[FloatArray, IntArray]:
        """Max-min fair share of the way for each member and the domain that set it, (n_members,).

        A member's counted load at level x is span * min(x, bend).
        """
        level = np.ones(len(members))
        holder = np.full(len(members), -1, dtype=np.int64)
        n_domains = len(self.load.tree)
        open_room = np.append(np.where(self.closed, -1.0, self.room_dc), np.inf)
        for domains in self.load.gpu_domains[::-1]:
            above = domains[members]
            wanted = np.bincount(above, weights=span * bend, minlength=n_domains + 1)
            over = wanted > open_room
            if not over.any():
                continue
            inside = np.flatnonzero(over[above])
            limit = _level_of_each(above[inside], span[inside], bend[inside], open_room)
            tighter = limit < level[inside]
            level[inside] = np.minimum(level[inside], limit)
            holder[inside[tighter]] = above[inside[tighter]]
            bend = np.minimum(bend, level)
        return level, holder


def _level_of_each(
    domains: IntArray, span: FloatArray, bend: FloatArray, room: FloatArray
) -> FloatArray:
    """The level x at which sum(span * min(x, bend)) of each domain equals its room, by member.

    All domains at once: members sorted by domain and bend give each domain's load at every bend as
    running sums; the level lies in the first piece that the room does not cover.
    """
    order = np.lexsort((bend, domains))
    group, span_s, bend_s = domains[order], span[order], bend[order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    sizes = np.diff(np.append(starts, len(group)))
    which = np.repeat(np.arange(len(starts)), sizes)
    load_before = _running_before(span_s * bend_s, starts, which)
    span_before = _running_before(span_s, starts, which)
    span_total = np.add.reduceat(span_s, starts)
    at_bend = load_before + bend_s * (span_total[which] - span_before)
    group_room = room[group[starts]]
    covered = np.add.reduceat((at_bend <= group_room[which]).astype(np.int64), starts)
    piece = starts + np.minimum(covered, sizes - 1)
    rest = span_total - span_before[piece]
    level = (group_room - load_before[piece]) / np.maximum(rest, 1e-12)
    by_member = np.empty(len(domains))
    by_member[order] = np.clip(level, 0.0, 1.0)[which]
    return by_member


def _running_before(values: FloatArray, starts: IntArray, which: IntArray) -> FloatArray:
    """Sum of the values before each entry inside its own group."""
    before = np.cumsum(values) - values
    return np.asarray(before - before[starts][which], dtype=np.float64)


def _common_to_gangs(
    gangs: IntArray, level: FloatArray, holder: IntArray
) -> tuple[FloatArray, IntArray]:
    """Each gang member's level becomes the gang's lowest, with that member's holder."""
    common, by = np.ones(len(level)), np.array(holder, copy=True)
    order = np.lexsort((level, gangs))
    sorted_gangs = gangs[order]
    first = order[np.searchsorted(sorted_gangs, gangs)]
    in_gang = gangs >= 0
    common[in_gang] = level[first[in_gang]]
    by[in_gang] = holder[first[in_gang]]
    return common, by


def gang_kinds(gang: IntArray, default_watts: FloatArray, minimum_watts: FloatArray) -> IntArray:
    """A number for each kind of board within each gang, -1 outside of gangs, (n_gpus,)."""
    kind = np.full(len(gang), -1, dtype=np.int64)
    inside = np.flatnonzero(gang >= 0)
    if inside.size:
        keys = np.stack((gang[inside], default_watts[inside], minimum_watts[inside]))
        kind[inside] = np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    return kind


def even_gangs(caps: FloatArray, gang_kind: IntArray, active: BoolArray) -> FloatArray:
    """Active boards of one kind in a gang all get the lowest cap among them, (n_gpus,)."""
    inside = np.flatnonzero((gang_kind >= 0) & active)
    if not inside.size:
        return caps
    kind = gang_kind[inside]
    lowest = np.full(int(kind.max()) + 1, np.inf)
    np.minimum.at(lowest, kind, caps[inside])
    evened = np.array(caps, copy=True)
    evened[inside] = lowest[kind]
    return evened
