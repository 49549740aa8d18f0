"""Sets of link groups that may hold a gang, those with the best slowest link first.

Within a set each group has at most as many members as its uplink bears beside other gangs. Groups
above groups bound where is looked; whether their uplinks bear the gang is asked once it is placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.rules.uplinks import NOTHING_MEASURED, UNMEASURED_INSIDE, Links, Spread

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
        for portions in _within(asked, scope):
            groups = tuple(sorted(group for group, _ in portions))
            slowest, longest = _slowest(links, sorted({*groups, *home}))
            away = len({*groups} - {*home}) if home else 0
            room = sum(int(asked.rooms[g]) for g in groups)
            key = (-slowest, longest, away, size, len(groups), room)
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


def _within(asked: Asked, groups: IntArray) -> Iterator[Portions]:
    """Sets grown from the groups with most room."""
    if int(asked.rooms[groups].sum()) < asked.members:
        return
    order = groups[np.argsort(-asked.rooms[groups], kind="stable")]
    for seed in order[:SEEDS].tolist():
        if portions := _grown(asked, order, seed):
            yield portions


def _grown(asked: Asked, order: IntArray, seed: int) -> Portions:
    """A set that begins with one group and takes next what keeps the slowest link fastest."""
    wanted, portions = asked.members, Portions()
    open_groups = order.copy()
    slowest = np.full(len(asked.rooms), UNMEASURED_INSIDE, dtype=np.int64)
    group = seed
    while True:
        count = asked.most(group, wanted)
        if count:
            portions.append((group, count))
            wanted -= count
            np.minimum(slowest, _speeds(asked.links, group), out=slowest)
        if not wanted:
            return portions
        open_groups = open_groups[open_groups != group]
        if not len(open_groups):
            return []
        # The first of equals has most room.
        group = int(open_groups[slowest[open_groups].argmax()])


def _speeds(links: Links, group: int) -> IntArray:
    """Of pairs with one group, shape (g,); 0 for those that nobody measured."""
    speeds = np.zeros(len(links.names), dtype=np.int64)
    if group in links.measured:
        row = links.measured[group]
        speeds[row.others] = row.megabits
    return speeds


def _slowest(links: Links, groups: list[int]) -> tuple[int, int]:
    """Of all pairs of some groups, and within each: least megabits, most microseconds."""
    if not links.measured:
        return 0, 0
    chosen = np.array(groups, dtype=np.int64)
    least, most = int(links.inside[0, chosen].min()), int(links.inside[1, chosen].max())
    for group in groups:
        row = links.measured.get(group, NOTHING_MEASURED)
        among = np.isin(row.others, chosen) & (row.others != group)
        least = min(least, int(row.megabits[among].min(initial=least)))
        most = max(most, int(row.microseconds[among].max(initial=most)))
        if np.count_nonzero(among) < len(groups) - 1:
            least = 0
    return least, most
