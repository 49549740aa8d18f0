"""What is planned for a service, by minutes: taken out of what came, laid on what comes.

    minutes ─► without events ─► forests ─► needed rate ─► with the events of a start's horizon

As rounds do it (``events/``), but for bounds: the last minutes tell the next ones also where a
quota or a reservation shaped them, and no minute of now may be a gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from forecasting.events.event_effects import EventGrid, apply_to_peaks, history_without
from forecasting.events.planned_event import PlannedEvent
from forecasting.prewarming.demand_features import NEWEST
from forecasting.series_source import Floats, SeriesId

Events = tuple[PlannedEvent, ...]

LATE_SECONDS: Final = 600.0
"""For which a plan counts though nothing came of it yet: a bin of the rounds, which know no less
before it is over (assumed)."""

_HERE = SeriesId("")
"""Events are their object's, whatever patterns of series they name."""


def with_known_effects(events: Events, known: Events) -> Events:
    """Those whose effect somebody told, or earlier events of their name did.

    Args:
        events: As the object has them now.
        known: Of a round, learned effects included.
    """
    learned = {(one.name, one.start_seconds, one.end_seconds): one.factors for one in known}
    found = []
    for event in events:
        if event.is_to_be_learned:
            factors = learned.get((event.name, event.start_seconds, event.end_seconds), ())
            event = replace(event, factors=factors)
        if not event.is_to_be_learned:
            found.append(event)
    return tuple(found)


def without_events(row: Floats, grid: EventGrid, events: Events) -> Floats:
    """Minutes as they would have been, none of them a gap.

    Args:
        row: As observed, without gaps, shape (n_bins,).
        grid: Their times.
        events: Of known effect.
    """
    told = tuple(
        replace(event, at_least=math.nan, at_most=math.nan)
        for event in events
        if event.factors or event.added
    )
    if not any(grid.shares(event).any() for event in told):
        return row
    freed = history_without(row[None], [_HERE], grid, told)[0]
    # A service that an event stopped tells nothing: it goes on as it was before.
    places = np.maximum.accumulate(np.where(np.isfinite(freed), np.arange(len(freed)), -1))
    first = int(np.argmax(np.isfinite(freed)))
    filled: Floats = np.nan_to_num(freed[np.where(places < 0, first, places)])
    return filled


def not_yet_begun(freed: Floats, grid: EventGrid, events: Events) -> Floats:
    """Minutes without events, those of a launch that is late as the last ones before it.

    Args:
        freed: From ``without_events``.
        grid: Their times.
        events: The same.
    """
    made = freed.copy()
    for event in events:
        raises = event.added > 0 or any(factor > 1 for factor in event.factors)
        first = math.ceil((event.start_seconds - grid.start_seconds) / grid.step_seconds)
        if not raises or not NEWEST <= first < grid.steps:
            continue
        late = math.ceil(first + LATE_SECONDS / grid.step_seconds)
        made[first:late] = np.maximum(made[first:late], made[first - NEWEST : first].mean())
    return made


def with_events(
    needed: Floats, levels: Sequence[float], window: EventGrid, events: Events
) -> Floats:
    """Quantiles of the needed rate with what is planned in the window, never below the true ones.

    Args:
        needed: Without events, shape (n_levels,).
        levels: Rising.
        window: The steps that it is needed in.
        events: Of known effect.
    """
    if not names_within(window, events):
        return needed
    moved: Floats = apply_to_peaks(needed[None], levels, [_HERE], window, events).values[0]
    return moved


def names_within(window: EventGrid, events: Events) -> tuple[str, ...]:
    """Of those that touch the window, sorted."""
    return tuple(sorted({event.name for event in events if window.shares(event).any()}))
