"""What is planned for a service, as watts of the domain whose load it is.

    requests in the event ─► LoadLine ─┐
    requests without it ───► LoadLine ─┴─► difference, bin by bin ─► additions to the domain's draw

What comes without the event is the mean of the same time on the last days; what came in a past one
is what was served with and without its effect. Boards that are full draw no more by any launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from forecasting.events.event_effects import EventGrid, apply_to_paths, history_without
from forecasting.events.learned_effects import with_learned_effects
from forecasting.events.planned_event import PlannedEvent
from forecasting.power_forecast.work_watts import LoadLine
from forecasting.series_source import DAY_SECONDS, Floats, SeriesId

USUAL_DAYS: Final = 3
"""Last days whose mean is what comes without an event, as the ridge's same-time mean uses."""

LEAST_WATTS: Final = 1.0
"""Of a bin; less is no event of a domain."""


class PlannedWatts(NamedTuple):
    """What events of a service are to its domain.

    Attributes:
        events: Additions to the draw, AC watts, one for each bin that an event changes.
        freed_watts: What the load without them makes its boards draw, (n_bins,).
    """

    events: tuple[PlannedEvent, ...]
    freed_watts: Floats


def watts_of_events(
    events: Sequence[PlannedEvent],
    series: SeriesId,
    load: Floats,
    line: LoadLine,
    past: EventGrid,
    horizon: int,
) -> PlannedWatts:
    """What the events add to the domain's draw, and its load without them.

    Args:
        events: Of the service's requests.
        series: Its name.
        load: What it was asked, (n_bins,); NaN for gaps.
        line: What that makes its boards draw.
        past: The bins.
        horizon: Bins after them.
    """
    known, _ = with_learned_effects(events, load, series, past)
    freed = history_without(load[None], [series], past, known)[0]
    end_seconds = past.start_seconds + past.steps * past.step_seconds
    window = EventGrid(end_seconds, past.step_seconds, horizon)
    usual = _usual(freed, max(1, round(DAY_SECONDS / past.step_seconds)), horizon)
    coming = apply_to_paths(usual[None, None], [series], window, known).values[0, 0]
    with_events, without = np.concatenate([load, coming]), np.concatenate([freed, usual])
    added = np.nan_to_num(line.watts(with_events) - line.watts(without), nan=0.0)
    grid = EventGrid(past.start_seconds, past.step_seconds, past.steps + horizon)
    found = []
    for event in known:
        touched = (grid.shares(event) > 0) & (np.abs(added) >= LEAST_WATTS)
        for i in np.flatnonzero(touched).tolist():
            start = grid.start_seconds + i * grid.step_seconds
            end = start + grid.step_seconds
            found.append(PlannedEvent(event.name, start, end, added=float(added[i])))
        added[touched] = 0.0  # of several events in one bin, all is told by the first
    return PlannedWatts(tuple(found), line.watts(freed))


def _usual(freed: Floats, day: int, horizon: int) -> Floats:
    """Mean of the same time on the last days, NaN without any, (horizon,)."""
    n_bins = len(freed)
    last = n_bins - day + np.arange(horizon) % day
    places = last[None, :] - day * np.arange(USUAL_DAYS)[:, None]
    seen = np.where(places >= 0, freed[np.clip(places, 0, n_bins - 1)], np.nan)
    counted = np.isfinite(seen)
    total = np.where(counted, seen, 0.0).sum(axis=0)
    result = np.where(counted.any(axis=0), total, np.nan)
    return np.asarray(result / np.maximum(counted.sum(axis=0), 1))
