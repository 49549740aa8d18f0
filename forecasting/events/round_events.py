"""Events of a round: what its targets' histories lose before the fit and forecasts get after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forecasting.domains.coherent_paths import CoherentPaths
from forecasting.events.event_effects import (
    EventGrid,
    apply_to_peaks,
    apply_to_quantiles,
    history_without,
)
from forecasting.events.family_events import FamilyEvents
from forecasting.events.learned_effects import with_learned_effects
from forecasting.events.planned_event import PlannedEvent
from forecasting.peak_policy.coupling import peak_quantiles, step_quantiles
from forecasting.series_source import Floats, History, SeriesId

PLANNED: Final = "planned-event"
"""Flag of an answer that an event changed."""

UNKNOWN: Final = "unknown-event"
"""Flag of an answer whose window has an event of unknown effect: untold, and never seen before."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a round expects before calibration.

    Attributes:
        steps: Shape (n_series, horizon, n_levels).
        peaks: Shape (n_series, n_levels).
        coherent: Paths of the tree among the series; None without one.
    """

    steps: Floats
    peaks: Floats
    coherent: CoherentPaths | None


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
        history: History,
        series: Sequence[SeriesId],
        events: Sequence[Sequence[PlannedEvent]],
        parents: Mapping[SeriesId, SeriesId],
    ) -> RoundEvents:
        """Learn what is to be learned and take all of it out of the history.

        Args:
            history: Of the round.
            series: What each row is called where its object names it: events match these names.
            events: Of each row.
            parents: Rows of the history that others are parts of, by their names there.
        """
        values = np.asarray(history.values, dtype=np.float64)
        if not any(events):
            none = tuple(() for _ in series)
            return cls(values, none, none)
        bins, step_seconds = values.shape[1], history.step_seconds
        grid = EventGrid(history.until_seconds - bins * step_seconds, step_seconds, bins)
        freed = values.copy()
        known, unknown = [], []
        for i, (name, own) in enumerate(zip(series, events, strict=True)):
            # From here on they are the row's, whatever else their patterns match.
            mine = [replace(event, series=()) for event in own if event.concerns(name)]
            learned, unclear = with_learned_effects(mine, values[i], name, grid)
            others = tuple(e for e in mine if e.name in unclear and e.is_to_be_learned)
            freed[i] = history_without(values[i : i + 1], [name], grid, [*learned, *others])[0]
            known.append(learned)
            unknown.append(others)
        place = {name: i for i, name in enumerate(history.series)}
        above = [place.get(parents.get(name, name), i) for i, name in enumerate(history.series)]
        family = FamilyEvents.of([-1 if p == i else p for i, p in enumerate(above)], known)
        return cls(family.freed(values, freed, grid), tuple(known), tuple(unknown))

    def moved(
        self, told: Expected, levels: Sequence[float], window: EventGrid
    ) -> tuple[Expected, list[tuple[str, ...]]]:
        """What is expected with them, not yet calibrated or bounded, and the flags of each row.

        A whole is first raised by what is planned for its parts, as the paths of their tree have
        it, then its own events move it.

        Args:
            told: Without events.
            levels: Of its quantiles.
            window: Times of the steps.
        """
        flags: list[tuple[str, ...]] = [()] * len(told.steps)
        if not any(self.known) and not any(self.unknown):
            return told, flags
        told, risen = self._raised_by_parts(told, levels, window)
        steps, peaks = told.steps.copy(), told.peaks.copy()
        here = SeriesId("")
        for i, known in enumerate(self.known):
            moved = apply_to_quantiles(steps[i : i + 1], levels, [here], window, known)
            steps[i] = moved.values[0]
            highest = apply_to_peaks(peaks[i : i + 1], levels, [here], window, known)
            # Of no other step: the highest of so many is above what their peak was found to need.
            touched = sum((window.shares(event) for event in known), np.zeros(window.steps)) > 0
            planned = np.max(steps[i], axis=0, initial=0.0, where=touched[:, None])
            peaks[i] = np.fmax(highest.values[0], planned)
            flags[i] += (PLANNED,) if moved.names[0] or i in risen else ()
            unclear = any(window.shares(e).any() for e in self.unknown[i])
            flags[i] += (UNKNOWN,) if unclear else ()
        return replace(told, steps=steps, peaks=peaks), flags

    def _raised_by_parts(
        self, told: Expected, levels: Sequence[float], window: EventGrid
    ) -> tuple[Expected, set[int]]:
        """Wholes with what is planned for their parts, and the paths of all; and whose rows."""
        tree = told.coherent
        if tree is None:
            return told, set()
        own_parts = ((),) * (len(tree.values) - len(tree.rows))
        events = (*(self.known[row] for row in tree.rows), *own_parts)
        family = FamilyEvents.of(tree.tree.parents.tolist(), events)
        steps, peaks, risen = told.steps.copy(), told.peaks.copy(), set()
        for node, row in enumerate(tree.rows.tolist()):
            below = family.below(node, tree.values, window)
            if below is None or not np.isfinite(below).all():
                continue
            with_and_without = np.stack([below, tree.values[node]])
            after, before = step_quantiles(with_and_without, levels)
            steps[row] = np.sort(np.maximum(steps[row] + after - before, 0.0), axis=1)
            after, before = peak_quantiles(with_and_without, levels)
            peaks[row] = np.sort(np.maximum(peaks[row] + after - before, 0.0))
            risen.add(row)
        coherent = replace(tree, values=family.coherent(tree.values, window))
        return replace(told, steps=steps, peaks=peaks, coherent=coherent), risen
