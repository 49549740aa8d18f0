"""Quantiles of the rate that services need until orders of the next round work, by their minutes.

    minutes of ten days, once a day ─► forests ─┐
    the newest minutes, each round ─────────────┴─► quantiles of the needed rate

Forests of one horizon and objective learn from all services that ask for them, as they would have
been without planned events.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.clean_history import LARGEST
from forecasting.events.event_effects import EventGrid
from forecasting.lightgbm_library import ForestsError
from forecasting.prewarming.demand_features import REACH, usual_rate
from forecasting.prewarming.needed_quantiles import (
    ROUNDS,
    WARM_UP,
    NeededQuantiles,
    fit_needed_quantiles,
)
from forecasting.prewarming.planned_minutes import (
    Events,
    not_yet_begun,
    with_events,
    without_events,
)
from forecasting.series_source import DAY_SECONDS, Floats, SeriesId

STEP_SECONDS: Final = 60
HISTORY_SECONDS: Final = 10 * DAY_SECONDS
RECENT_SECONDS: Final = (REACH + 1) * STEP_SECONDS
REFIT_SECONDS: Final = DAY_SECONDS

LEAST_STEPS: Final = 2 * WARM_UP
"""Minutes of which a service needs as many before it is decided for by minutes (two days)."""

MOST_STEPS: Final = 30
"""Of a horizon: beyond half an hour steps of ten minutes say as much (assumed)."""

KNOWN_SHARE: Final = 0.9
"""Of minutes that have to be observed (assumed)."""

LATE_STEPS: Final = 3
"""Newest minutes that may be missing, as a scrape that comes late."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MinuteQuestion:
    """What is asked of one service.

    Attributes:
        series: Its demand.
        steps: Of the horizon, the coming minute included.
        wait_seconds: Longest wait that is within the objective.
        events: What is planned for it, and was, of known effect.
    """

    series: SeriesId
    steps: int
    wait_seconds: float
    events: Events = ()

    @property
    def group(self) -> tuple[int, float]:
        """Questions of one group are answered by the same forests."""
        return (self.steps, self.wait_seconds)

    def window(self, now_seconds: float) -> EventGrid:
        """Minutes that only orders of now can serve, from the newest known one on."""
        # Decisions come at any second of a minute; so does the end of what they order for.
        return EventGrid(_floor(now_seconds), STEP_SECONDS, self.steps + 1)


@dataclass(frozen=True, slots=True)
class _Fitted:
    model: NeededQuantiles
    usual: Mapping[SeriesId, float]


Read = Callable[[Sequence[SeriesId], int, int], Floats]
"""Minutes of series from one Unix time to another, shape (n_series, n_bins); NaN is a gap."""


class MinuteNeeds:
    """Forests, fitted anew once a day, and what they say of now.

    Args:
        read: The history.
        rounds: Trees of each level.
    """

    def __init__(self, read: Read, rounds: int = ROUNDS) -> None:
        self._read, self._rounds = read, rounds
        self._fitted: dict[tuple[int, float], _Fitted] = {}
        self._tried: dict[tuple[int, float], float] = {}
        self._problem = ""

    def quantiles(
        self, questions: Sequence[MinuteQuestion], now_seconds: float
    ) -> dict[MinuteQuestion, tuple[Floats, tuple[float, ...]]]:
        """Quantiles by level and the levels, of those whose minutes say enough.

        Args:
            questions: Any number.
            now_seconds: Unix time.
        """
        groups: dict[tuple[int, float], list[MinuteQuestion]] = defaultdict(list)
        for question in dict.fromkeys(questions):
            if 1 <= question.steps <= MOST_STEPS:
                groups[question.group].append(question)
        for gone in self._tried.keys() - groups.keys():
            del self._tried[gone]
            self._fitted.pop(gone, None)
        found = {}
        for group, asked in groups.items():
            fitted = self._model(group, asked, now_seconds)
            if fitted is None:
                continue
            until = _floor(now_seconds)
            rows = self._read([one.series for one in asked], until - RECENT_SECONDS, until)
            for one, row in zip(asked, rows, strict=True):
                known, usual = cleaned(row), fitted.usual.get(one.series)
                if known is None or usual is None:
                    continue
                freed = not_yet_begun(*_freed(known, until, one.events), one.events)
                needed, levels = fitted.model.newest(freed, usual), fitted.model.levels
                window = one.window(now_seconds)
                found[one] = with_events(needed, levels, window, one.events), levels
        return found

    def _model(
        self, group: tuple[int, float], asked: Sequence[MinuteQuestion], now_seconds: float
    ) -> _Fitted | None:
        planned = {one.series: one.events for one in asked}
        fitted = self._fitted.get(group)
        tried = self._tried.get(group, -np.inf)
        news = fitted is None or any(name not in fitted.usual for name in planned)
        if now_seconds - tried < (REFIT_SECONDS / 24 if news else REFIT_SECONDS):
            return fitted
        self._tried[group] = now_seconds
        until = _floor(now_seconds)
        names = list(planned)
        rows = self._read(names, until - HISTORY_SECONDS, until)
        known = {
            name: _freed(row, until, planned[name])[0]
            for name, whole in zip(names, rows, strict=True)
            if (row := history(whole)) is not None
        }  # fmt: skip
        if known:
            # An hour without history takes nobody's forests away.
            before = {} if fitted is None else fitted.usual
            steps, wait = group
            values = list(known.values())
            try:
                model = fit_needed_quantiles(values, steps, STEP_SECONDS, wait, self._rounds)
            except ForestsError as error:
                self._tell(str(error))
                return fitted
            usual = {name: usual_rate(row) for name, row in known.items()}
            self._fitted[group] = _Fitted(model, {**before, **usual})
        return self._fitted.get(group)

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("replicas are decided without forests of minutes: %s", problem)
        self._problem = problem


def _freed(row: Floats, until: int, events: Events) -> tuple[Floats, EventGrid]:
    """Minutes up to a time as they would have been without events, and their times."""
    grid = EventGrid(until - len(row) * STEP_SECONDS, STEP_SECONDS, len(row))
    return without_events(row, grid, events), grid


def history(row: Floats) -> Floats | None:
    """A service's minutes from its first on, without gaps; None for too few of them."""
    seen = np.flatnonzero(_usable(row))
    if not len(seen) or len(row) - seen[0] < LEAST_STEPS:
        return None
    return cleaned(row[seen[0] :])


def cleaned(row: Floats) -> Floats | None:
    """Minutes with gaps filled by the one before; None where too much or the newest is missing."""
    usable = _usable(row)
    if usable.mean() < KNOWN_SHARE or not usable[-LATE_STEPS - 1 :].any():
        return None
    places = np.maximum.accumulate(np.where(usable, np.arange(len(row)), -1))
    first = int(np.argmax(usable))
    filled: Floats = row[np.where(places < 0, first, places)]
    return filled


def _usable(row: Floats) -> np.ndarray:
    # Comparisons with NaN are false.
    return (row >= 0) & (row <= LARGEST)


def _floor(now_seconds: float) -> int:
    return int(now_seconds // STEP_SECONDS) * STEP_SECONDS
