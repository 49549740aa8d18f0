"""Which targets are parts of one another: the power tree among the objects of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forecasting.events.planned_event import PlannedEvent
from forecasting.series_source import SeriesId
from forecasting.targets import Target


def with_planned_loads(targets: Sequence[Target]) -> list[Target]:
    """The targets, domains with what is planned for the services that are their load.

    Within a namespace, as pools are: nobody's launch moves another namespace's domain.
    """
    planned: dict[tuple[str, SeriesId], tuple[PlannedEvent, ...]] = {}
    for target in targets:
        if target.events and target.kind != "domain":
            key = (target.namespace, target.series)
            own = tuple(event for event in target.events if event.concerns(target.series))
            planned[key] = planned.get(key, ()) + own
    if not planned:
        return list(targets)
    return [
        replace(
            target,
            load=tuple(
                replace(one, events=planned.get((target.namespace, one.series), ()))
                for one in target.load
            ),
        )
        for target in targets
    ]


def parents_of(members: Sequence[Target]) -> dict[SeriesId, SeriesId]:
    """Of each domain's series that of the nearest domain above it which is forecast, too.

    Within a namespace, as pools are; of several series for one domain the first by name stands in
    the tree.
    """
    domains = {
        (member.namespace, member.subject): member
        for member in sorted(members, key=lambda m: m.name, reverse=True)
        if member.kind == "domain"
    }
    found = {}
    for (namespace, _), member in domains.items():
        wholes = (domains.get((namespace, name)) for name in member.above)
        whole = next((one for one in wholes if one is not None and one is not member), None)
        if whole is not None:
            found[member.identity] = whole.identity
    return found
