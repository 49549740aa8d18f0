"""What is planned for each member of a group: its own events, and those of what loads it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forecasting.events.event_effects import EventGrid
from forecasting.events.family_events import is_stated
from forecasting.events.planned_event import PlannedEvent
from forecasting.events.service_events import watts_of_events
from forecasting.power_forecast.draw_aside import DrawAside
from forecasting.round.round_group import RoundGroup
from forecasting.series_source import Floats
from forecasting.targets import Target

Events = tuple[PlannedEvent, ...]


def with_planned_events(group: RoundGroup) -> tuple[RoundGroup, list[Events]]:
    """The group with loads as they were without events, and the events of each member.

    A domain's own events count instead of its services' of the same name.
    """
    asides, events = dict(group.asides), [member.events for member in group.members]
    for i, member in enumerate(group.members):
        aside = group.asides.get(member.identity)
        # Of a part of the loads nobody can tell what the rest does meanwhile.
        if aside is None or not 0 < len(member.load) == len(aside.load_watts):
            continue
        if any(one.events for one in member.load):
            told, asides[member.identity] = _of_services(group, member, aside, i)
            events[i] = (*member.events, *told)
    return replace(group, asides=asides), events


def _of_services(
    group: RoundGroup, member: Target, aside: DrawAside, row: int
) -> tuple[list[PlannedEvent], DrawAside]:
    """Events of a domain's services as additions to its draw, and its loads without them."""
    history = group.history
    draw: Floats = np.asarray(history.values[row], dtype=np.float64)
    bins, step_seconds = len(draw), history.step_seconds
    past = EventGrid(history.until_seconds - bins * step_seconds, step_seconds, bins)
    fit = aside.fit(draw, step_seconds)
    factor = fit.factor if fit.is_trusted(was_trusted=True) else 1.0
    found, loads = list[PlannedEvent](), aside.load_watts.copy()
    for i, source in enumerate(member.load):
        line = source.line
        events = [one for one in source.events if not is_stated(one, member.events)]
        if line is None or line.watts_per_load <= 0 or not events:
            continue
        # What full boards leave waiting draws nothing: the load is what they serve.
        load = (loads[i] - line.idle_watts) / line.watts_per_load
        told = watts_of_events(events, source.series, load, line, past, member.horizon)
        found += [replace(one, added=factor * one.added) for one in told.events]
        loads[i] = told.freed_watts
    return found, replace(aside, load_watts=loads)
