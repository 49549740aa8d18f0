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
    least = min(_short(trial, number, dict(wanted)), key=_megabits, default=None)
    if not least or not _admits(trial, number, wanted, domain, least):
        return None

    def admits(parts: Sequence[Part]) -> bool:
        return _admits(trial, number, wanted, domain, parts)

    for part in sorted(least, key=lambda part: _megabits([part])):
        others = [other for other in least if other is not part]
        least = others if admits(others) else [*others, *_narrower(part, others, admits)]
    return least


def _narrower(
    part: Part, others: Sequence[Part], admits: Callable[[Sequence[Part]], bool]
) -> list[Part]:
    """The same uplink, wider by no more than is needed beside the others."""
    assert isinstance(part.change, WidenUplink)
    group, too_little, enough = part.change.group, 0, part.change.megabits
    while enough - too_little > 1:
        middle = (too_little + enough) // 2
        if admits([*others, Part(WidenUplink(group=group, megabits=middle))]):
            enough = middle
        else:
            too_little = middle
    return [Part(WidenUplink(group=group, megabits=enough))]


def _short(trial: Trial, number: int, wanted: dict[int, int]) -> Iterator[list[Part]]:
    """Of each set of groups that has room, by what its uplinks would have to be wider."""
    packing = trial.packing
    flows = packing.flows
    assert flows is not None
    names, before, mark = flows.gangs.links.names, flows.spread(number), packing.mark()
    rooms = {c: packing.capacity(c) for c in wanted}
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


def _admits(
    trial: Trial, number: int, wanted: Wanted, domain: GangDomain | None, parts: Sequence[Part]
) -> bool:
    """Whether a plan would place the gang with these uplinks wider."""
    start, packing_mark = trial.mark(), trial.packing.mark()
    trial.make_all(parts)
    try:
        return place_linked(trial.packing, number, dict(wanted), trial.packing.place, domain)
    finally:
        trial.packing.undo_to(packing_mark)
        trial.undo_to(start)
