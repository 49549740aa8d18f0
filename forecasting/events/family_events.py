"""Events of parts reach their wholes: a rack's launch raises its row.

    parts' paths ─► each with its own events ─► summed ─► the whole's own events ─► … up to the root
    root ─► what wholes have of their own is shared among their parts in proportion ─► … down

An event that a whole states itself counts instead of those of its parts that have its name and
overlap it: who announces a launch for the rack and its row announces one launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forecasting.events.event_effects import EventGrid, apply_to_paths, history_without
from forecasting.events.planned_event import PlannedEvent
from forecasting.series_source import Floats, SeriesId

Events = tuple[PlannedEvent, ...]
Spans = Mapping[str, Sequence[tuple[float, float]]]
"""From when to when events of a name are, merged where they touch: one of many bins is one."""
Stated = tuple[Spans, ...]
"""Of the wholes above."""

_HERE = SeriesId("")
"""Events are their node's, whatever patterns of series they name."""


@dataclass(frozen=True, slots=True)
class FamilyEvents:
    """What is planned for the nodes of a forest.

    Attributes:
        children: Of each node, its parts.
        events: Of each node, its own with a known effect.
        spans: When these are.
    """

    children: Sequence[Sequence[int]]
    events: Sequence[Events]
    spans: Sequence[Spans]

    @classmethod
    def of(cls, parents: Sequence[int], events: Sequence[Events]) -> FamilyEvents:
        """Of nodes with the place of each one's parent, -1 for a root."""
        children: list[list[int]] = [[] for _ in parents]
        for node, parent in enumerate(parents):
            if parent >= 0:
                children[parent].append(node)
        return cls(children, events, [_spans(own) for own in events])

    def below(self, node: int, base: Floats, window: EventGrid) -> Floats | None:
        """A node's paths with what is planned for its parts, its own events left out.

        Args:
            node: Which.
            base: Paths without events, of which parents are sums, (n_nodes, n_paths, horizon).
            window: Times of the steps.

        Returns:
            (n_paths, horizon); None where nothing is planned below it in the window.
        """
        parts = {c: self._moved(c, base, window, (self.spans[node],)) for c in self.children[node]}
        if all(moved is None for moved in parts.values()):
            return None
        return _sum_of(parts, base)

    def coherent(self, base: Floats, window: EventGrid) -> Floats:
        """Paths of all nodes with all that is planned; every parent stays the sum of its parts."""
        made = base.copy()
        is_part = {part for parts in self.children for part in parts}
        for root in (node for node in range(len(self.children)) if node not in is_part):
            if (moved := self._moved(root, base, window, ())) is not None:
                made[root] = moved
                self._share(root, base, window, made)
        return made

    def freed(self, values: Floats, alone: Floats, grid: EventGrid) -> Floats:
        """The history without what events did to a series and to its parts.

        Args:
            values: As observed, (n_nodes, n_bins).
            alone: Each without its own events.
            grid: The bins.
        """
        made = alone.copy()
        for node, parts in enumerate(self.children):
            told = (self._brought(part, values, grid, (self.spans[node],)) for part in parts)
            brought = [one for one in told if one is not None]
            if brought:
                made[node] = np.maximum(made[node] - np.sum(brought, axis=0), 0.0)
        return made

    def _own(self, node: int, stated: Stated) -> Events:
        """A node's events but those that a whole above it states itself."""
        return tuple(one for one in self.events[node] if not _is_within(one, stated))

    def _moved(self, node: int, base: Floats, window: EventGrid, stated: Stated) -> Floats | None:
        """A node's paths with its own and its parts' events; None where there are none."""
        own, above = self._own(node, stated), (*stated, self.spans[node])
        own = tuple(event for event in own if window.shares(event).any())
        parts = {c: self._moved(c, base, window, above) for c in self.children[node]}
        if not own and all(moved is None for moved in parts.values()):
            return None
        paths: Floats = _sum_of(parts, base) if parts else base[node]
        result: Floats = apply_to_paths(paths[None], [_HERE], window, own).values[0]
        return result

    def _share(self, node: int, base: Floats, window: EventGrid, made: Floats) -> None:
        """Parts of a node whose paths stand in ``made``, and their parts, get their own, too."""
        parts = list(self.children[node])
        if not parts:
            return
        for part in parts:
            moved = self._moved(part, base, window, ())
            made[part] = base[part] if moved is None else moved
        summed = made[parts].sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(summed > 0, made[parts] / summed, 1.0 / len(parts))
        made[parts] = share * made[node]
        for part in parts:
            self._share(part, base, window, made)

    def _brought(self, node: int, values: Floats, grid: EventGrid, stated: Stated) -> Floats | None:
        """What events added to a node's history, (n_bins,); 0 where nobody knows."""
        own, above = self._own(node, stated), (*stated, self.spans[node])
        own = tuple(event for event in own if grid.shares(event).any())
        below = [self._brought(part, values, grid, above) for part in self.children[node]]
        known = [one for one in below if one is not None]
        if not own and not known:
            return None
        freed = history_without(values[node][None], [_HERE], grid, own)[0]
        freed = np.where(np.isfinite(freed), freed, values[node])
        freed = np.maximum(freed - np.sum(known, axis=0), 0.0) if known else freed
        return np.asarray(np.nan_to_num(values[node] - freed, nan=0.0))


def _sum_of(parts: dict[int, Floats | None], base: Floats) -> Floats:
    moved = [base[part] if paths is None else paths for part, paths in parts.items()]
    return np.asarray(np.sum(moved, axis=0))


def is_stated(event: PlannedEvent, events: Iterable[PlannedEvent]) -> bool:
    """Whether one of these events is the same: of its name, at some of its time."""
    return _is_within(event, (_spans(events),))


def _is_within(event: PlannedEvent, stated: Stated) -> bool:
    return any(
        start < event.end_seconds and event.start_seconds < end
        for spans in stated
        for start, end in spans.get(event.name, ())
    )


def _spans(events: Iterable[PlannedEvent]) -> Spans:
    found: dict[str, list[tuple[float, float]]] = {}
    for event in sorted(events, key=lambda one: one.start_seconds):
        spans = found.setdefault(event.name, [])
        start, end = event.start_seconds, event.end_seconds
        if spans and start <= spans[-1][1]:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    return found
