"""Events of a round: what its targets' histories lose before the fit and forecasts get after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forecasting.events.event_effects import (
    EventGrid,
    apply_to_peaks,
    apply_to_quantiles,
    history_without,
)
from forecasting.events.learned_effects import with_learned_effects
from forecasting.events.planned_event import PlannedEvent
from forecasting.series_source import Floats, SeriesId

PLANNED: Final = "planned-event"
"""Flag of an answer that an event changed."""

UNKNOWN: Final = "unknown-event"
"""Flag of an answer whose window has an event of unknown effect: untold, and never seen before."""


@dataclass(frozen=True, slots=True)
class RoundEvents:
    """The events of some rows of history.

    Attributes:
        freed: The history without them, shape (n_series, n_bins).
        known: Of each row, the events whose effect is known.
        unknown: Of each row, the others.
    """

    freed: Floats
    known: tuple[tuple[PlannedEvent, ...], ...]
    unknown: tuple[tuple[PlannedEvent, ...], ...]

    @classmethod
    def of(
        cls,
        history: Floats,
        series: Sequence[SeriesId],
        events: Sequence[Sequence[PlannedEvent]],
        until_seconds: int,
        step_seconds: int,
    ) -> RoundEvents:
        """Learn what is to be learned and take all of it out of the history.

        Args:
            history: Shape (n_series, n_bins).
            series: Names.
            events: Of each row.
            until_seconds: End of the history, Unix time.
            step_seconds: Width of a bin.
        """
        if not any(events):
            none = tuple(() for _ in series)
            return cls(history, none, none)
        bins = history.shape[1]
        grid = EventGrid(until_seconds - bins * step_seconds, step_seconds, bins)
        freed = np.array(history, dtype=np.float64)
        known, unknown = [], []
        for i, (name, own) in enumerate(zip(series, events, strict=True)):
            # From here on they are the row's, whatever else their patterns match.
            mine = [replace(event, series=()) for event in own if event.concerns(name)]
            learned, unclear = with_learned_effects(mine, history[i], name, grid)
            others = tuple(e for e in mine if e.name in unclear and e.is_to_be_learned)
            freed[i] = history_without(history[i : i + 1], [name], grid, [*learned, *others])[0]
            known.append(learned)
            unknown.append(others)
        return cls(freed, tuple(known), tuple(unknown))

    def moved(
        self, steps: Floats, peaks: Floats, levels: Sequence[float], window: EventGrid
    ) -> tuple[Floats, Floats, list[tuple[str, ...]]]:
        """Quantiles with them, not yet calibrated or bounded, and the flags of each row.

        Args:
            steps: Shape (n_series, horizon, n_levels).
            peaks: Shape (n_series, n_levels).
            levels: Of the last axes.
            window: Times of the steps.
        """
        flags: list[tuple[str, ...]] = [()] * len(steps)
        if not any(self.known) and not any(self.unknown):
            return steps, peaks, flags
        steps, peaks = steps.copy(), peaks.copy()
        here = SeriesId("")
        for i, known in enumerate(self.known):
            moved = apply_to_quantiles(steps[i : i + 1], levels, [here], window, known)
            steps[i] = moved.values[0]
            highest = apply_to_peaks(peaks[i : i + 1], levels, [here], window, known)
            peaks[i] = np.fmax(highest.values[0], steps[i].max(axis=0))
            flags[i] += (PLANNED,) if moved.names[0] else ()
            unclear = any(window.shares(e).any() for e in self.unknown[i])
            flags[i] += (UNKNOWN,) if unclear else ()
        return steps, peaks, flags
