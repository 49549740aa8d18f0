"""What planned events do to steps, joint paths and window peaks, and how history is freed of them.

A step that an event covers by half feels half of it. Factors of overlapping events multiply, their
additions add up after that, of the lower bounds the highest counts, of the upper ones the lowest,
and an upper bound wins: a quota holds whatever was planned. Applied before calibration and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forecasting.events.planned_event import PlannedEvent
from forecasting.series_source import Floats, SeriesId
from wattpack.errors import InputError

__all__ = [
    "Applied",
    "EventGrid",
    "apply_to_paths",
    "apply_to_peaks",
    "apply_to_quantiles",
    "history_without",
]

LEAST_FACTOR = 0.05
"""History is divided by no less: what little is left of a shut-down says nothing of other days."""


@dataclass(frozen=True, slots=True)
class EventGrid:
    """The steps that effects are laid on.

    Attributes:
        start_seconds: Start of the first step, Unix time.
        step_seconds: Width of a step.
        steps: Number of steps.
    """

    start_seconds: float
    step_seconds: float
    steps: int

    def shares(self, event: PlannedEvent) -> Floats:
        """Of each step the share that the event covers, shape (steps,)."""
        begin = self.start_seconds + self.step_seconds * np.arange(self.steps)
        covered = np.minimum(begin + self.step_seconds, event.end_seconds) - np.maximum(
            begin, event.start_seconds
        )
        result: Floats = np.clip(covered / self.step_seconds, 0.0, 1.0)
        return result


@dataclass(frozen=True, slots=True)
class Applied:
    """Values with their events, and whose they were.

    Attributes:
        values: Of the shape that came in.
        names: Events that touched each series, sorted.
    """

    values: Floats
    names: tuple[tuple[str, ...], ...]


Pick = Callable[[Sequence[float]], Floats]
"""Of an event's factors the one for each column: a level or a path."""


def apply_to_quantiles(
    values: Floats,
    levels: Sequence[float],
    series: Sequence[SeriesId],
    grid: EventGrid,
    events: Sequence[PlannedEvent],
) -> Applied:
    """Step quantiles with their events; sorted over levels as before.

    Args:
        values: Shape (n_series, horizon, n_levels).
        levels: Ascending; of several learned factors a level takes its own quantile.
        series: Names, which events may be limited to.
        grid: The steps.
        events: Those outside the window change nothing.

    Raises:
        InputError: an event whose effect is still to be learned.
    """
    wanted = np.asarray(levels, dtype=np.float64)
    pick: Pick = lambda factors: np.quantile(np.asarray(factors), wanted)  # noqa: E731
    return _applied(values, series, grid, events, pick)


def apply_to_paths(
    paths: Floats, series: Sequence[SeriesId], grid: EventGrid, events: Sequence[PlannedEvent]
) -> Applied:
    """Joint paths with their events, shape (n_series, n, horizon).

    Path j takes of several learned factors the j-th in turn, in every series the same: whoever is
    concerned by one launch is concerned by it together.

    Raises:
        InputError: an event whose effect is still to be learned.
    """
    count = paths.shape[1]
    pick: Pick = lambda factors: np.resize(np.asarray(factors), count)  # noqa: E731
    applied = _applied(np.swapaxes(paths, 1, 2), series, grid, events, pick)
    return Applied(np.swapaxes(applied.values, 1, 2), applied.names)


def apply_to_peaks(
    peaks: Floats,
    levels: Sequence[float],
    series: Sequence[SeriesId],
    grid: EventGrid,
    events: Sequence[PlannedEvent],
) -> Applied:
    """Peak quantiles with their events, where no paths are at hand: never below the true ones.

    The peak of ``y * f + a`` is at most ``peak * max(f) + max(a)``, so an event that covers a part
    of the window can raise the answer and lowers it only where it covers all of it.

    Args:
        peaks: Quantiles of the window's highest value, shape (n_series, n_levels).
        levels: Ascending.
        series: Names.
        grid: The steps of the window.
        events: As above.
    """
    steps = np.repeat(np.asarray(peaks, dtype=np.float64)[:, None], grid.steps, axis=1)
    applied = apply_to_quantiles(steps, levels, series, grid, events)
    return Applied(np.max(applied.values, axis=1), applied.names)


def history_without(
    values: Floats, series: Sequence[SeriesId], grid: EventGrid, events: Sequence[PlannedEvent]
) -> Floats:
    """The history as it would have been, shape (n_series, n_bins): what is planned is no habit.

    Stated and learned factors and additions are taken back; bins that a bound may have shaped say
    nothing and become gaps, and so do those of events of unknown effect.
    """
    freed = np.array(values, dtype=np.float64)
    for i, name in enumerate(series):
        own = [event for event in events if event.concerns(name)]
        factor, added, hidden = (
            np.ones(grid.steps),
            np.zeros(grid.steps),
            np.zeros(grid.steps, bool),
        )
        for event in own:
            share = grid.shares(event)
            bounded = np.isfinite(event.at_least) or np.isfinite(event.at_most)
            if bounded or event.is_to_be_learned:
                hidden |= share > 0
                continue
            middle = float(np.median(event.factors)) if event.factors else 1.0
            hidden |= (share > 0) & (middle < LEAST_FACTOR)
            factor *= 1 + (max(middle, LEAST_FACTOR) - 1) * share
            added += event.added * share
        freed[i] = np.where(hidden, np.nan, np.maximum(freed[i] - added, 0.0) / factor)
    return freed


def _applied(
    values: Floats,
    series: Sequence[SeriesId],
    grid: EventGrid,
    events: Sequence[PlannedEvent],
    pick: Pick,
) -> Applied:
    """Of shape (n_series, horizon, columns)."""
    if values.shape[1] != grid.steps:
        raise InputError("grid.steps", f"as many as the values have, {values.shape[1]}", grid.steps)
    changed = np.array(values, dtype=np.float64)
    names: list[tuple[str, ...]] = []
    shares = [(event, share) for event in events if (share := grid.shares(event)).any()]
    for i, name in enumerate(series):
        own = [(event, share) for event, share in shares if event.concerns(name)]
        for event, _ in own:
            if event.is_to_be_learned:
                raise InputError(
                    "events", "an effect for each: stated, or learned before", event.name
                )
        if own:
            changed[i] = _with_effects(changed[i], own, pick)
        names.append(tuple(sorted({event.name for event, _ in own})))
    return Applied(changed, tuple(names))


def _with_effects(steps: Floats, own: Sequence[tuple[PlannedEvent, Floats]], pick: Pick) -> Floats:
    """One series' steps with the effects of its events, shape (horizon, columns)."""
    columns = steps.shape[1]
    factor, added = np.ones_like(steps), np.zeros((len(steps), 1))
    least, most = np.full((len(steps), 1), -np.inf), np.full((len(steps), 1), np.inf)
    for event, share in own:
        factors = pick(event.factors) if event.factors else np.ones(columns)
        factor *= 1 + (factors - 1) * share[:, None]
        added += event.added * share[:, None]
        # A bound is not halved by a half-covered step: the step's highest moment feels all of it.
        if np.isfinite(event.at_least):
            least = np.where(share[:, None] > 0, np.maximum(least, event.at_least), least)
        if np.isfinite(event.at_most):
            most = np.where(share[:, None] >= 1, np.minimum(most, event.at_most), most)
    raised = np.maximum(np.maximum(steps * factor + added, 0.0), least)
    result: Floats = np.minimum(raised, most)
    return result
