"""What a gang would need that waits for uplinks: room in one link group, or wider uplinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler_plugin.documents.plan_changes import WidenUplink
from scheduler_plugin.explain.trial import Part, Trial
from scheduler_plugin.packing.linked_places import asked_of_links, place_linked, placed_in
from scheduler_plugin.packing.problem import BoolArray
from scheduler_plugin.room.resource_columns import GPUS
from scheduler_plugin.rules.gang_domains import GangDomain
from scheduler_plugin.rules.link_sets import link_sets

__all__ = ["gang_number", "in_one_group", "wider_uplinks"]

TRIED_GROUPS: Final = 6
"""Link groups that are looked at, those with most free GPUs first (assumed)."""

Wanted = Sequence[tuple[int, int]]


def gang_number(trial: Trial, gang: str) -> int | None:
    """Of a gang that sends, among linked ones; None where uplinks do not matter to it."""
    linked = trial.problem.linked
    number = None if linked is None else linked.number.get(gang)
    if linked is None or number is None:
        return None
    return number if linked.flow[linked.of_class == number].any() else None


def in_one_group(
    trial: Trial, number: int, look: Callable[[], list[Part] | None]
) -> Iterator[list[Part]]:
    """What is found within each link group alone, where the gang would cross no uplink.

    Args:
        trial: As the plan leaves it; ``only`` is set while ``look`` is called.
        number: Of the gang.
        look: For changes that let it in.
    """
    flows, outer = trial.packing.flows, trial.only
    assert flows is not None
    links, held = flows.gangs.links, flows.spread(number)
    free = links.sums(trial.packing.free[:, GPUS])
    groups = np.unique(links.nearest)
    groups = groups[groups < len(links.names)]
    groups = groups[np.argsort(-free[groups], kind="stable")]
    suited = [g for g in groups.tolist() if held.inside.get(g, 0) == held.total]
    try:
        for group in suited[:TRIED_GROUPS]:
            inside: BoolArray = links.nearest == group
            trial.only = inside if outer is None else inside & outer
            if (parts := look()) is not None:
                yield parts
    finally:
        trial.only = outer


def wider_uplinks(
    trial: Trial, number: int, wanted: Wanted, domain: GangDomain | None
) -> list[Part] | None:
    """Uplinks that would have to be wider, and nothing else; None where that is not enough.

    Args:
        trial: As the plan leaves it.
        number: Of the gang.
        wanted: Class and count of its waiting members.
        domain: That it should be in, or has to.
    """
    named = min(_short(trial, number, dict(wanted)), key=_megabits, default=None)
    if not named:
        return None

    def tight(parts: Sequence[Part]) -> list[Part] | None:
        return _tight(trial, number, wanted, domain, parts)

    least = tight(named)
    while least and (less := _less(least, tight)) is not None:
        least = less
    return least


def _less(
    parts: Sequence[Part], tight: Callable[[Sequence[Part]], list[Part] | None]
) -> list[Part] | None:
    """A set without one of the uplinks, or with one that is less wide; None if none will do."""
    for part in sorted(parts, key=lambda part: _megabits([part])):
        others = [other for other in parts if other is not part]
        if (found := tight(others)) is not None:
            return found
        change = part.change
        if isinstance(change, WidenUplink) and change.megabits > 1:
            narrower = change.model_copy(update={"megabits": change.megabits - 1})
            if (found := tight([*others, Part(narrower)])) is not None:
                return found
    return None


def _short(trial: Trial, number: int, wanted: dict[int, int]) -> Iterator[list[Part]]:
    """Of each set of groups that has room, by what its uplinks would have to be wider."""
    packing = trial.packing
    flows = packing.flows
    assert flows is not None
    names, before, mark = flows.gangs.links.names, flows.spread(number), packing.mark()
    rooms = packing.rooms_of_gang(wanted)
    asked = replace(asked_of_links(packing, number, wanted, rooms), flow=0)
    for portions in link_sets(asked):
        if placed_in(packing, portions, wanted, packing.place, None):
            yield [
                Part(WidenUplink(group=names[s.group], megabits=s.needs_megabits - s.left_megabits))
                for s in flows.short(number, before)
            ]
        packing.undo_to(mark)


def _megabits(parts: Sequence[Part]) -> int:
    return sum(part.change.megabits for part in parts if isinstance(part.change, WidenUplink))


def _tight(
    trial: Trial, number: int, wanted: Wanted, domain: GangDomain | None, parts: Sequence[Part]
) -> list[Part] | None:
    """As much of the parts as a plan that places the gang with them uses; None if none does."""
    packing, start = trial.packing, trial.mark()
    flows, before_anybody = packing.flows, packing.mark()
    assert flows is not None
    stated = flows.left_beside(number)
    trial.make_all(parts)
    try:
        if not place_linked(packing, number, dict(wanted), packing.place, domain):
            return None
        names = flows.gangs.links.names
        crossing = flows.spread(number).crossing
        over = {names[g]: load - int(stated[g]) for g, load in crossing.items()}
    finally:
        packing.undo_to(before_anybody)
        trial.undo_to(start)
    changes = [part.change for part in parts if isinstance(part.change, WidenUplink)]
    used = [(change.group, min(change.megabits, over.get(change.group, 0))) for change in changes]
    return [Part(WidenUplink(group=name, megabits=more)) for name, more in used if more > 0]
