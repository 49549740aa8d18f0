"""One group's forecasts: tiers, combination, peaks and calibration, in that order (ADR 39).

┌─ settle: what came of open issues ─► calibration, weights, records ─┐
History ─► clean ──┤                                                                     ▼
└─► tiers ─► combine ─► joint paths ─► peak policy ─► calibrate ─► bound ─► Forecast
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.clean_history import Cleaned, clean
from forecasting.combination import combine, step_bands, weights
from forecasting.engine_memory import EngineMemory, Pool
from forecasting.events.event_effects import EventGrid
from forecasting.events.round_events import RoundEvents
from forecasting.fallback import ASSUMED_OFFSET
from forecasting.forecast import (
    DAY_SECONDS,
    EXTREME,
    LAST_DAY,
    LIMIT,
    Forecast,
    bounded,
    checked_levels,
    level_index,
    tops_of,
)
from forecasting.forecaster import Forecaster
from forecasting.open_issues import WEIGHED_LEVELS, OpenIssue
from forecasting.past_changes import past_changes
from forecasting.peak_policy.choice import choose_policy
from forecasting.peak_policy.coupling import couple
from forecasting.peak_policy.evidence import PeakEvidence
from forecasting.power_forecast.present_rows import (
    NEW_LEVEL,
    UNKNOWN_BOARDS,
    BoardWatts,
    PresentRows,
    new_since_seconds,
)
from forecasting.ridge import level_scale
from forecasting.series_source import Floats, History, SeriesId
from forecasting.settlement import Judge, settled
from forecasting.tiers.last_day import LastDayMaximum
from wattpack.errors import InputError, WattpackError

GRID: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
"""Levels that are always computed: what is asked is only what is told."""

PATHS: Final = 200
"""Joint paths behind a peak: two of them lie above its 0.99 quantile."""

FRESH_SHARE: Final = 0.5
"""Share of the last day that must have been observed before a model may answer (assumed)."""

DOMAIN: Final = "domain"
"""Kind of the pools whose series are power."""

NAMED_WEIGHT: Final = 0.05
"""Tiers with less weight are not named in ``method``."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shape:
    """What an engine is asked.

    Attributes:
        step_seconds: Width of a step.
        horizon: Steps of a window.
        levels: To be told, ascending.

    Raises:
        InputError: for levels out of order, a horizon below 1.
    """

    step_seconds: int
    horizon: int
    levels: tuple[float, ...]

    def __post_init__(self) -> None:
        checked_levels(self.levels)
        if self.horizon < 1:
            raise InputError("horizon", "at least one step", self.horizon)

    @property
    def day_steps(self) -> int:
        """Steps in a day."""
        return max(1, DAY_SECONDS // self.step_seconds)

    @property
    def grid(self) -> tuple[float, ...]:
        """All levels that are computed."""
        return tuple(sorted({*GRID, *self.levels}))


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of an engine now.

    Attributes:
        history: Ten days of every series as observed, NaN for gaps.
        pools: Of every series.
        ceilings: What each series cannot exceed, shape (n_series,); NaN for none.
        events: Planned events and the history without them; None for none.
        boards: What stands below series that are domains; those not named are unknown.
    """

    history: History
    pools: Mapping[SeriesId, Pool]
    ceilings: Floats
    events: RoundEvents | None = None
    boards: Mapping[SeriesId, BoardWatts] = field(default_factory=dict)

    @property
    def present(self) -> PresentRows:
        """The history without what events added to it and on one level: what models see."""
        history, events = self.history, self.events
        freed = history if events is None else replace(history, values=events.freed)
        boards = [
            self.boards.get(name, UNKNOWN_BOARDS) if self.pools[name][1] == DOMAIN else None
            for name in history.series
        ]
        return PresentRows.of(freed, boards, self.ceilings)


class Engine:
    """Forecasts of one group of series.

    Args:
        shape: What is asked.
        tiers: Models of step quantiles, in the order of their names in ``Forecast.tiers``.
        memory: What an earlier engine of the same shape has learned.
        rehearsed: Whether its promises are made afterwards.

    Attributes:
        memory: What it has learned so far; replaced, never changed.
    """

    def __init__(
        self,
        shape: Shape,
        tiers: Sequence[Forecaster],
        memory: EngineMemory | None = None,
        rehearsed: bool = False,
    ) -> None:
        self._shape = shape
        self._tiers = tuple(tiers)
        self._floor = LastDayMaximum()
        self._rehearsed = rehearsed
        self.memory = memory or EngineMemory()

    def settle(self, history: History, pools: Mapping[SeriesId, Pool]) -> None:
        """Learn what came of open issues; what concerns other series is forgotten."""
        nothing = np.full(len(history.series), np.nan)
        told = Question(history, pools, nothing).present.pools(pools)
        self._settle(history, self._clean(history), told)

    def issue(self, question: Question) -> Forecast:
        """The forecast from the end of the history on."""
        history, grid = question.history, self._shape.grid
        cleaned = self._clean(history)
        present = question.present
        pools = present.pools(question.pools)
        self._settle(history, cleaned, pools)
        learned_from = present.history
        if learned_from is not history:
            cleaned = self._clean(learned_from)
        answers = self._answers(learned_from, cleaned)
        weighed = self._weights(history.series, question.pools)
        shares = _shares(weighed, answers)
        combined = combine(list(answers), weighed)
        steps, methods = self._with_floor(learned_from, combined, shares, cleaned)
        window_seconds = self._shape.horizon * self._shape.step_seconds
        told_now = present.promised(self._peaks(question, cleaned, steps), grid, window_seconds)
        steps, peaks, planned = self._with_events(question, steps, told_now.peaks)
        judged = np.array([method != LIMIT for method in methods], dtype=bool)
        # Without events: a launch does not widen the hours around it.
        scale = miss_scale(cleaned, told_now.peaks, self._shape.day_steps)
        moved, lifted = self._calibrated(history.series, pools, steps, peaks, scale)
        ceilings = question.ceilings
        limit = np.where(np.isfinite(ceilings), ceilings, cleaned.highest * (1 + ASSUMED_OFFSET))
        moved[~judged], lifted[~judged] = limit[~judged, None, None], limit[~judged, None]
        tops = tops_of(cleaned, ceilings)
        told = [level_index(grid, level) for level in self._shape.levels]
        planned = [
            (*p, NEW_LEVEL) if b else p for p, b in zip(planned, told_now.broken, strict=True)
        ]
        # What is cut above the levels that are told changes no answer.
        flags = _flags(cleaned, methods, lifted[:, told[-1]], planned)
        flags = self._with_uncalibrated(flags, methods, history.series, pools)
        # A peak that the present tells is no step's to exceed: the steps' errors are the past's.
        here = told_now.present & judged
        moved[here] = np.minimum(moved[here], lifted[here, None, :])
        told_steps, told_peaks = bounded(moved, lifted, tops)
        made = OpenIssue(
            begin_seconds=history.until_seconds,
            series=tuple(history.series),
            steps=steps.astype(np.float32),
            told_steps=told_steps.astype(np.float32),
            tiers=tuple(self._names()),
            by_tier=self._weighed(answers),
            peaks=peaks,
            told_peaks=told_peaks,
            scale=scale,
            judged=judged,
            broken=np.zeros(peaks.shape, dtype=bool),
        )
        self._keep(made)
        at_99 = level_index(grid, 0.99)
        return Forecast(
            series=tuple(history.series),
            data_until_seconds=history.until_seconds,
            step_seconds=history.step_seconds,
            levels=self._shape.levels,
            quantiles=told_steps[:, :, told],
            peaks=told_peaks[:, told],
            now=cleaned.newest,
            scale=scale,
            methods=tuple(methods),
            flags=flags,
            tops=tops,
            observed_until_seconds=history.until_seconds
            - cleaned.bins_since * float(history.step_seconds),
            tiers=tuple(tier.provenance for tier in self._tiers),
            weights=shares,
            calibrated_until_seconds=self.memory.losses.until_seconds,
            peak_shifts=told_peaks[:, at_99] - peaks[:, at_99],
        )

    def _clean(self, history: History) -> Cleaned:
        return clean(np.asarray(history.values, dtype=np.float64), self._shape.day_steps)

    def _settle(self, history: History, cleaned: Cleaned, pools: Mapping[SeriesId, Pool]) -> None:
        """As ``settle``; a reading that is not believed breaks no promise."""
        believed = replace(history, values=np.where(cleaned.known, history.values, np.nan))
        known = self.memory.of(history.series)
        domains = [name for name in history.series if pools[name][1].startswith(DOMAIN)]
        new = new_since_seconds(history, domains)
        judge = Judge(self._shape.grid, pools, self._rehearsed, new)
        self.memory = settled(known, believed, judge)

    def _names(self) -> list[str]:
        return [tier.provenance.model for tier in self._tiers]

    def _answers(self, history: History, cleaned: Cleaned) -> Floats:
        """Step quantiles of each tier, NaN where it has none, (n_tiers, n_series, horizon, n)."""
        shape = (len(self._tiers), len(history.series), self._shape.horizon, len(self._shape.grid))
        answers = np.full(shape, np.nan)
        stale = np.asarray(cleaned.last_day_known < FRESH_SHARE)
        for place, tier in enumerate(self._tiers):
            try:
                tier.update(history)
                answers[place] = tier.quantiles(self._shape.horizon, self._shape.grid)
            except (WattpackError, ArithmeticError, ValueError) as error:
                log.warning("%s has no answer this round: %s", tier.provenance.model, error)
            partly = ~np.isfinite(answers[place].reshape(len(stale), -1)).all(axis=1)
            answers[place, np.logical_or(stale, partly)] = np.nan
        return answers

    def _weights(self, series: Sequence[SeriesId], pools: Mapping[SeriesId, Pool]) -> Floats:
        """How much each tier counts, shape (n_tiers, n_series, n_bands)."""
        numbers = {pool: i for i, pool in enumerate(dict.fromkeys(pools.values()))}
        classes = np.array([numbers[pools[name]] for name in series], dtype=np.intp)
        return weights(self.memory.losses, self._names(), series, classes)

    def _with_floor(
        self, history: History, steps: Floats, shares: Floats, cleaned: Cleaned
    ) -> tuple[Floats, list[str]]:
        """The last day's maximum where no tier has an answer, and what made each row."""
        names = [name.split("/")[0] for name in self._names()]
        missing = np.isnan(steps.reshape(len(steps), -1).sum(axis=1))
        self._floor.update(history)
        if missing.any():
            steps[missing] = self._floor.quantiles(self._shape.horizon, self._shape.grid)[missing]
        methods = []
        for i, row in enumerate(shares):
            if cleaned.length[i] < self._shape.day_steps or not np.isfinite(steps[i]).all():
                methods.append(LIMIT)
                steps[i] = 0.0
            elif missing[i]:
                methods.append(LAST_DAY)
            else:
                heavy = [j for j in np.argsort(-row, kind="stable") if row[j] >= NAMED_WEIGHT]
                methods.append("+".join(names[j] for j in heavy))
        return steps, methods

    def _peaks(self, question: Question, cleaned: Cleaned, steps: Floats) -> Floats:
        """Quantiles of the window's peak before calibration, shape (n_series, n_levels)."""
        shape = self._shape
        errors = past_changes(cleaned.filled, shape.horizon, shape.day_steps, PATHS)
        paths = couple(steps, shape.grid, errors, PATHS)
        evidence = PeakEvidence.of(cleaned.filled, paths, shape.day_steps)
        result = np.empty((len(steps), len(shape.grid)))
        for rows in Judge(shape.grid, question.pools).members(question.history.series).values():
            policy = choose_policy(cleaned.filled[rows], shape.horizon, shape.day_steps)
            result[rows] = policy.quantiles(evidence.rows(rows), shape.grid)
        return result

    def _calibrated(
        self,
        series: Sequence[SeriesId],
        pools: Mapping[SeriesId, Pool],
        steps: Floats,
        peaks: Floats,
        scale: Floats,
    ) -> tuple[Floats, Floats]:
        """Both as their pools have learned to correct them; not bounded yet."""
        moved, lifted = steps.copy(), peaks.copy()
        for pool, part in Judge(self._shape.grid, pools).members(series).items():
            names = [series[i] for i in part]
            if (points := self.memory.points.get(pool)) is not None:
                moved[part] = points.corrected(names, steps[part], scale[part])
            if (tops := self.memory.peaks.get(pool)) is not None:
                lifted[part] = tops.corrected(names, peaks[part, None, :], scale[part])[:, 0]
        return moved, lifted

    def _with_events(
        self, question: Question, steps: Floats, peaks: Floats
    ) -> tuple[Floats, Floats, list[tuple[str, ...]]]:
        """Both with what is planned, and the flags of each row."""
        history = question.history
        if question.events is None:
            return steps, peaks, [()] * len(steps)
        window = EventGrid(history.until_seconds, history.step_seconds, self._shape.horizon)
        return question.events.moved(steps, peaks, self._shape.grid, window)

    def _with_uncalibrated(
        self,
        flags: Sequence[tuple[str, ...]],
        methods: Sequence[str],
        series: Sequence[SeriesId],
        pools: Mapping[SeriesId, Pool],
    ) -> tuple[tuple[str, ...], ...]:
        """The flags, with one more where nothing is known yet of how promises are kept."""
        corrected = {pool for pool, kept in self.memory.peaks.items() if kept.is_in_force}
        return tuple(
            row if method == LIMIT or pools[name] in corrected else (*row, "uncalibrated")
            for row, method, name in zip(flags, methods, series, strict=True)
        )

    def _weighed(self, answers: Floats) -> NDArray[np.float32]:
        """The tiers' answers at the levels that they are compared at."""
        places = [level_index(self._shape.grid, level) for level in WEIGHED_LEVELS]
        return answers[..., places].astype(np.float32)

    def _keep(self, made: OpenIssue) -> None:
        """Open an issue, unless one was opened within half a window."""
        open_issues = self.memory.open_issues
        half_seconds = self._shape.horizon * self._shape.step_seconds / 2
        if open_issues and made.begin_seconds - open_issues[-1].begin_seconds < half_seconds:
            return
        self.memory = replace(self.memory, open_issues=(*open_issues, made))


def _shares(weighed: Floats, answers: Floats) -> Floats:
    """Share of each tier that answers, mean over steps, shape (n_series, n_tiers)."""
    there = np.isfinite(answers[:, :, 0, 0])
    by_step = weighed[:, :, step_bands(answers.shape[2])].mean(axis=2) * there
    total = by_step.sum(axis=0)
    result: Floats = (by_step / np.where(total > 0, total, 1.0)).T
    return result


def miss_scale(cleaned: Cleaned, peaks: Floats, day_steps: int) -> Floats:
    """What a miss is measured by: the level, the promised peak, or a quarter of the record.

    The level alone is tiny for a client that idles; its misses would then inflate every other
    promise of the pool.
    """
    level = level_scale(cleaned.filled, day_steps)[:, 0]
    result: Floats = np.maximum(level, np.maximum(peaks[:, -1], 0.25 * cleaned.highest))
    return result


def _flags(
    cleaned: Cleaned,
    methods: Sequence[str],
    highest: Floats,
    planned: Sequence[tuple[str, ...]],
) -> tuple[tuple[str, ...], ...]:
    """What a user should know about each row."""
    found = []
    for i, method in enumerate(methods):
        row = list(cleaned.flags[i])
        if method == LIMIT:
            row.append("no-history")
        elif highest[i] > EXTREME * cleaned.highest[i]:
            row.append("extreme")
        found.append((*row, *planned[i]))
    return tuple(found)
