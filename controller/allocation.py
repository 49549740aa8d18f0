"""Who gets how many watts: one pure, vectorised function over the whole power tree.

    minimum -> guaranteed -> floor -> class by class, by value -> request -> slack -> default

Each arrow is a stage of progressive filling (``controller.filling``): all GPUs of the stage rise
together from where they stand towards their goal, by a common share of the way, until a domain
above is full; that domain then holds its members while the others go on.

A limit on load counts a GPU at cap c with min(c, the draw expected of it); the limit on the worst
case (I2) counts its cap. Both are kept in one filling: filled one after the other, what the second
takes from a gang would stay unused under the first. See docs/adr/0001.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from controller.filling import Filling, Room
from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = ["Allocation", "GangKinds", "Limit", "Wants", "allocate", "even_gangs", "gang_kinds"]

_GAP_WATTS = 1e-6
# GPUs of about the same value share slack; more classes would only order measurement noise.
_VALUE_CLASSES = 4


@dataclass(frozen=True, slots=True)
class GangKinds:
    """Like boards of each gang, looked up once a topology: every tick asks several times.

    Attributes:
        members: GPUs in gangs, like boards next to each other, (n_members,).
        starts: Where each kind begins among them, (n_kinds,).
        rank: Which kind each of them is of, (n_members,).
    """

    members: IntArray
    starts: IntArray
    rank: IntArray

    @classmethod
    def of(cls, kind: IntArray) -> GangKinds:
        """From a number for each kind of board within each gang, -1 outside of gangs, (n_gpus,)."""
        order = np.argsort(kind, kind="stable")
        members = order[kind[order] >= 0]
        _, starts, rank = np.unique(kind[members], return_index=True, return_inverse=True)
        return cls(members, starts.astype(np.int64), rank.astype(np.int64))


@dataclass(frozen=True)
class Wants:
    """What each GPU is owed, each (n_gpus,) with minimum <= guaranteed <= floor <= request.

    Most ticks ask for the same wants: what follows from them alone is worked out once.

    Attributes:
        minimum_watts: Lowest settable cap.
        guaranteed_watts: First goal.
        floor_watts: Second goal.
        request_watts: Third goal, by class.
        slack_watts: Highest useful cap, given from what is left over.
        priority: Higher is served first.
        gang: Gang number, -1 for none.
        gang_kinds: Kinds of boards within gangs.
        value_per_watt: Order of the slack.
        fixed: Takes no part: counted elsewhere, keeps its minimum here.
        value_steps_watts: Order inside a class, (n_steps, n_gpus); see ``Topology``.
    """

    minimum_watts: FloatArray
    guaranteed_watts: FloatArray
    floor_watts: FloatArray
    request_watts: FloatArray
    slack_watts: FloatArray
    priority: IntArray
    gang: IntArray
    gang_kinds: GangKinds
    value_per_watt: FloatArray
    fixed: BoolArray
    value_steps_watts: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    @cached_property
    def all_active(self) -> bool:
        """Whether everybody takes part."""
        return not some(self.fixed)

    @cached_property
    def even(self) -> Wants:
        """With goals common to the like boards of a gang: common shares are common watts."""
        if not self.gang_kinds.members.size:
            return self
        goals = (self.guaranteed_watts, self.floor_watts, self.request_watts, self.slack_watts)
        evened = even_gangs(np.array(goals), self.gang_kinds, ~self.fixed)
        guaranteed, floor, request, slack = evened
        return replace(
            self,
            guaranteed_watts=guaranteed,
            floor_watts=floor,
            request_watts=request,
            slack_watts=slack,
        )

    @cached_property
    def top_watts(self) -> FloatArray:
        """The last goal; the minimum of who takes no part, (n_gpus,)."""
        return np.where(self.fixed, self.minimum_watts, self.even.slack_watts)

    @cached_property
    def stages(self) -> list[tuple[IntArray, list[FloatArray]]]:
        """Who rises, and the goals on the way, none below the one before it."""
        return _stages(self.even)


@dataclass(frozen=True, slots=True)
class Limit:
    """One kind of limit on the domains.

    Attributes:
        room_watts: AC watts for the GPUs that are not fixed, below each domain, (n_domains,).
        counted_watts: Draw beyond which a higher cap counts nothing: infinite counts the cap, minus
            infinite never counts the GPU, (n_gpus,); None counts all caps.
    """

    room_watts: FloatArray
    counted_watts: FloatArray | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Caps and what held each GPU below its goal.

    Attributes:
        cap_watts: (n_gpus,).
        binding_domain: -1 where nothing held the GPU back, (n_gpus,).
        binding_limit: Which limit it was there, in the order given, -1 for none, (n_gpus,).
    """

    cap_watts: FloatArray
    binding_domain: IntArray
    binding_limit: IntArray


def allocate(load: LoadTree, wants: Wants, *limits: Limit) -> Allocation:
    """Caps that keep every domain's counted load in its rooms, in priority order (I5).

    Args:
        load: Tree and members.
        wants: What each GPU is owed.
        limits: All of them are kept.

    Returns:
        Caps between minimum and slack goal; at the minimum even where a room is too small.
    """
    top = wants.top_watts
    if all(every(_counted(load, wants, top, k) * load.gpu_factor <= k.room_watts) for k in limits):
        nobody = np.full(load.n_gpus, -1, dtype=np.int64)
        return Allocation(top, nobody, nobody)
    caps = wants.minimum_watts
    rooms = tuple(
        Room(k.counted_watts, k.room_watts / load.gpu_factor - _counted(load, wants, caps, k))
        for k in limits
    )
    filling = Filling.begin(load, wants.gang, caps, rooms)
    for kind, room in enumerate(rooms):
        # Over its limit with everybody at the minimum: nobody there rises, idle or not.
        filling.close(room.dc_watts < -_GAP_WATTS, kind)
    for members, goals in wants.stages:
        filling.raise_through(goals, members)
    return Allocation(filling.caps, filling.binding, filling.binding_kind)


def _counted(load: LoadTree, wants: Wants, caps: FloatArray, limit: Limit) -> FloatArray:
    """What active GPUs at these caps count below each domain, over its GPU factor, (n_domains,)."""
    drawn = caps
    if limit.counted_watts is not None:
        drawn = np.maximum(np.minimum(caps, limit.counted_watts), 0.0)
    return load.sum_gpus(drawn if wants.all_active else np.where(wants.fixed, 0.0, drawn))


def _stages(wants: Wants) -> list[tuple[IntArray, list[FloatArray]]]:
    active = ~wants.fixed
    (everyone,) = active.nonzero()
    stages = [(everyone, [wants.guaranteed_watts, wants.floor_watts])]
    priority = wants.priority.take(everyone)
    steps = _value_goals(wants)
    for level in np.unique(priority)[::-1]:
        members = everyone[priority == level]
        goals = steps if _differ(wants, members) else []
        stages.append((members, [*goals, wants.request_watts]))
    (greedy,) = (active & (wants.slack_watts > wants.request_watts)).nonzero()
    if greedy.size:
        value = _value_with_gangs(wants)[greedy]
        edges = np.unique(np.quantile(value, np.linspace(0, 1, _VALUE_CLASSES + 1)[1:-1]))
        rank = np.searchsorted(edges, value)
        for level in np.unique(rank)[::-1]:
            stages.append((greedy[rank == level], [wants.slack_watts]))
    return stages


def _value_goals(wants: Wants) -> list[FloatArray]:
    """Goals on the way to the requests, the watts that buy most first."""
    if wants.value_steps_watts.shape[0] == 0:
        return []
    everybody = np.ones(len(wants.gang), dtype=np.bool_)
    goals = even_gangs(wants.value_steps_watts, wants.gang_kinds, everybody)
    return list(np.minimum(goals, wants.request_watts))


def _differ(wants: Wants, members: IntArray) -> bool:
    """Whether a watt buys more on some members; where not, one common filling is the best."""
    if wants.value_steps_watts.shape[0] == 0:
        return False
    mine = wants.value_steps_watts.take(members, axis=1)
    return bool((mine.max(axis=1) - mine.min(axis=1)).max() > _GAP_WATTS)


def _value_with_gangs(wants: Wants) -> FloatArray:
    """Value per watt with each gang at its lowest: its members rise in one stage or not at all."""
    inside = wants.gang >= 0
    if not some(inside):
        return wants.value_per_watt
    lowest = np.full(int(wants.gang.max()) + 1, np.inf)
    np.minimum.at(lowest, wants.gang[inside], wants.value_per_watt[inside])
    return np.where(inside, lowest[wants.gang], wants.value_per_watt)


def gang_kinds(gang: IntArray, default_watts: FloatArray, minimum_watts: FloatArray) -> GangKinds:
    """The kinds of boards within each gang: those of other limits are others."""
    kind = np.full(len(gang), -1, dtype=np.int64)
    inside = np.flatnonzero(gang >= 0)
    if inside.size:
        keys = np.stack((gang[inside], default_watts[inside], minimum_watts[inside]))
        kind[inside] = np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    return GangKinds.of(kind)


def even_gangs(caps: FloatArray, kinds: GangKinds, active: BoolArray) -> FloatArray:
    """Active boards of one kind in a gang all get the lowest cap among them.

    Args:
        caps: (n_gpus,) or several rows of them.
        kinds: Kinds of boards within gangs.
        active: The others keep theirs and hold nobody back, (n_gpus,).
    """
    if not kinds.members.size:
        return caps
    mine, takes_part = caps.take(kinds.members, axis=-1), active.take(kinds.members)
    counted = mine if every(takes_part) else np.where(takes_part, mine, np.inf)
    lowest = np.minimum.reduceat(counted, kinds.starts, axis=-1).take(kinds.rank, axis=-1)
    evened = np.array(caps, copy=True)
    evened[..., kinds.members] = np.where(takes_part, lowest, mine)
    return evened
