"""Sets of link groups that may hold a gang, those with the best slowest link first.

Within a set each group has at most as many members as its uplink bears beside other gangs. Groups
above groups bound where is looked; whether their uplinks bear the gang is asked once it is placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.rules.uplinks import UNMEASURED_INSIDE, Links, Spread

__all__ = ["Asked", "link_sets"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

TRIED: Final = 8
"""Sets that are tried: rules of power and of other pods may keep the gang out of one (assumed)."""
SEEDS: Final = 8
"""Groups from which a set is grown, those with most room first (assumed)."""
SCOPES: Final = 8
"""Groups above groups within which sets are looked for, the smallest first (assumed)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a gang asks of link groups.

    Attributes:
        links: Between nodes.
        rooms: How many of its waiting members each group holds, shape (g,).
        members: How many wait.
        flow: Megabits a second that one of them sends at most.
        held: Of members that have places.
        total: What all members send together, megabits a second.
        left: What uplinks carry beside other gangs, shape (g,).
    """

    links: Links
    rooms: IntArray
    members: int
    flow: int
    held: Spread
    total: int
    left: IntArray

    def most(self, group: int, wanted: int) -> int:
        """Of so many members, how many a group takes so that its uplink bears the gang.

        Few enough that what they send goes through, or so many that what the rest sends does.
        """
        count = min(wanted, int(self.rooms[group]))
        left, inside = int(self.left[group]), self.held.inside.get(group, 0)
        if not self.flow or inside + count * self.flow >= self.total - left:
            return count
        return max(0, min(count, (left - inside) // self.flow))


Portions = list[tuple[int, int]]
"""Group, and how many members at most."""


def link_sets(asked: Asked) -> Iterator[Portions]:
    """Sets that hold all members: each group alone, then several, of both the best first."""
    links = asked.links
    nearest = np.unique(links.nearest)
    able = nearest[nearest < len(links.names)]
    able = able[asked.rooms[able] > 0]
    home = sorted(g for g in asked.held.inside if g in set(nearest.tolist()))
    alone = able[asked.rooms[able] >= asked.members]
    slack, (megabits, delay) = asked.rooms[alone], links.inside[:, alone]
    order = np.lexsort((slack, delay, -megabits, ~np.isin(alone, home)))
    for group in alone[order][:TRIED].tolist():
        yield [(group, asked.members)]
    found: dict[tuple[int, ...], tuple[tuple[int, ...], Portions]] = {}
    for size, scope in _scopes(asked, able):
        for portions, pace in _within(asked, scope, home):
            groups = tuple(sorted(group for group, _ in portions))
            away = len({*groups} - {*home}) if home else 0
            room = sum(int(asked.rooms[g]) for g in groups)
            key = (-pace.slowest, pace.longest, away, size, len(groups), room)
            if groups not in found or key < found[groups][0]:
                found[groups] = key, portions
    for _, portions in sorted(found.values(), key=lambda each: each[0])[:TRIED]:
        yield portions


def _scopes(asked: Asked, able: IntArray) -> list[tuple[int, IntArray]]:
    """Groups within which sets are looked for, and how many those are: below one, then all."""
    links = asked.links
    found: list[tuple[int, IntArray]] = []
    for level in range(1, links.above.shape[1]):
        parents = np.unique(links.above[:, level])
        for parent in parents[parents < len(links.names)].tolist():
            below = np.intersect1d(links.nearest[links.above[:, level] == parent], able)
            if int(asked.rooms[below].sum()) >= asked.members:
                found.append((len(below), below))
    found.sort(key=lambda each: each[0])
    return [*found[:SCOPES], (len(asked.rooms) + 1, able)]


class _Pace(NamedTuple):
    """Of all pairs of a set, and within its groups: least megabits, most microseconds."""

    slowest: int
    longest: int


def _within(
    asked: Asked, groups: IntArray, home: Sequence[int]
) -> Iterator[tuple[Portions, _Pace]]:
    """Sets grown from the groups with most room."""
    if int(asked.rooms[groups].sum()) < asked.members:
        return
    order = groups[np.argsort(-asked.rooms[groups], kind="stable")]
    for seed in order[:SEEDS].tolist():
        portions, pace = _grown(asked, order, seed, home)
        if portions:
            yield portions, pace


def _grown(asked: Asked, order: IntArray, seed: int, home: Sequence[int]) -> tuple[Portions, _Pace]:
    """A set that begins with one group and takes next what keeps the slowest link fastest.

    Args:
        asked: What the gang asks.
        order: Groups that may be taken, those with most room first.
        seed: The first.
        home: Groups where members are already.
    """
    links, wanted, portions = asked.links, asked.members, Portions()
    # Of each group to the slowest and the farthest group of the set.
    slowest = np.full(len(asked.rooms), UNMEASURED_INSIDE, dtype=np.int64)
    longest = np.zeros(len(asked.rooms), dtype=np.int64)
    pace = _Pace(UNMEASURED_INSIDE if links.measured else 0, 0)

    def include(group: int) -> None:
        if links.measured:
            megabits, microseconds = _paces(links, group)
            np.minimum(slowest, megabits, out=slowest)
            np.maximum(longest, microseconds, out=longest)

    for group in home:
        include(group)
    group, left = seed, order
    while True:
        if count := asked.most(group, wanted):
            portions.append((group, count))
            wanted -= count
            include(group)
            if links.measured:
                worst = int(slowest[group]), int(longest[group])
                pace = _Pace(min(pace.slowest, worst[0]), max(pace.longest, worst[1]))
        if not wanted:
            return portions, pace
        left = left[left != group]
        if not len(left):
            return [], pace
        # The first of equals has most room.
        group = int(left[slowest[left].argmax()])


def _paces(links: Links, group: int) -> tuple[IntArray, IntArray]:
    """From one group to each, itself too, (g,): megabits, 0 for unmeasured, and microseconds."""
    megabits = np.zeros(len(links.names), dtype=np.int64)
    microseconds = np.zeros(len(links.names), dtype=np.int64)
    if (row := links.measured.get(group)) is not None:
        megabits[row.others], microseconds[row.others] = row.megabits, row.microseconds
    megabits[group], microseconds[group] = links.inside[:, group]
    return megabits, microseconds
