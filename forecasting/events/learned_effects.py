"""Effects that earlier events of the same name had.

One event's factor is what its bins add up to, over what the same time of day brought in the days
around it that no event touched. Each earlier event is one sample; nothing is fitted to so few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from forecasting.events.event_effects import EventGrid
from forecasting.events.planned_event import MOST_FACTOR, PlannedEvent
from forecasting.series_source import DAY_SECONDS, Floats, SeriesId

COMPARED_DAYS: Final = 3
"""Free days on either side that an event is compared with, as the ridge's same-time mean uses."""

LEAST_KNOWN: Final = 0.5
"""Share of an event's bins that must have been seen, in it and in the days compared with."""


def with_learned_effects(
    events: Sequence[PlannedEvent], values: Floats, series: SeriesId, grid: EventGrid
) -> tuple[tuple[PlannedEvent, ...], tuple[str, ...]]:
    """The series' events with effects, and the names of those that nothing is known about.

    Args:
        events: Past and coming ones.
        values: The series' history, shape (n_bins,); NaN is a gap.
        series: Its name.
        grid: The bins of the history.

    Returns:
        Events in their order, without those of unknown effect; and these events' names, sorted.
    """
    own = [event for event in events if event.concerns(series)]
    learned: dict[str, tuple[float, ...]] = {}
    for name in {event.name for event in own if event.is_to_be_learned}:
        same = [event for event in own if event.name == name and event.is_to_be_learned]
        found = [factor for e in same if (factor := _factor(e, own, values, grid)) is not None]
        learned[name] = tuple(sorted(found))
    known, unknown = [], set()
    for event in own:
        if not event.is_to_be_learned:
            known.append(event)
        elif learned[event.name]:
            known.append(replace(event, factors=learned[event.name]))
        else:
            unknown.add(event.name)
    return tuple(known), tuple(sorted(unknown))


def _factor(
    event: PlannedEvent, events: Sequence[PlannedEvent], values: Floats, grid: EventGrid
) -> float | None:
    """What the event multiplied by; None where that cannot be told, or is not over."""
    if event.end_seconds > grid.start_seconds + grid.steps * grid.step_seconds:
        return None
    inside = grid.shares(event) >= 1
    touched = np.any([grid.shares(other) > 0 for other in events], axis=0)
    usual = _usual(np.where(touched, np.nan, values), np.flatnonzero(inside), grid)
    both = np.isfinite(usual) & np.isfinite(values[inside])
    if not inside.any() or both.mean() < LEAST_KNOWN:
        return None
    before = float(usual[both].sum())
    if before <= 0:
        return None
    return float(np.clip(values[inside][both].sum() / before, 0.0, MOST_FACTOR))


def _usual(free: Floats, bins: np.ndarray, grid: EventGrid) -> Floats:
    """Mean of the same time of day over the nearest free days, NaN without any, (len(bins),)."""
    day = max(1, round(DAY_SECONDS / grid.step_seconds))
    days = [k for k in range(-COMPARED_DAYS, COMPARED_DAYS + 1) if k]
    places = bins[None, :] + day * np.array(days)[:, None]
    there = (places >= 0) & (places < grid.steps)
    seen = np.where(there, free[np.clip(places, 0, grid.steps - 1)], np.nan)
    counted = np.isfinite(seen)
    total = np.where(counted, seen, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = np.where(counted.any(axis=0), total / counted.sum(axis=0), np.nan)
    return result
