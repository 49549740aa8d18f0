"""One group's forecasts: tiers, combination, peaks and calibration, in that order (ADR 39).

             ┌─ settle: what came of open issues ─► calibration, weights, records ─┐
    History ─┼─► clean                                                             ▼
             └─► tiers ─► combine ─► joint paths ─► peak policy ─► events ─► calibrate ─► bound

What comes out is a ``Forecast``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forecasting.calibration.pooled import PooledCalibration
from forecasting.clean_history import Cleaned, clean, clean_again
from forecasting.domains.coherent_paths import CoherentPaths
from forecasting.domains.round_tree import RoundTree
from forecasting.engine_memory import EngineMemory, Pool, rows_by_pool
from forecasting.engine_question import DOMAIN, Beside, Question, Shape
from forecasting.events.event_effects import EventGrid
from forecasting.events.round_events import Expected
from forecasting.forecast import (
    ASSUMED_OFFSET,
    EXTREME,
    EXTREME_FLAG,
    LIMIT,
    Forecast,
    bounded,
    level_index,
    tops_of,
)
from forecasting.forecaster import Forecaster
from forecasting.joint_paths import Published, joint_paths
from forecasting.load_steps import BY_LOAD, LoadSteps
from forecasting.miss_scale import day_change, miss_scale
from forecasting.near_steps import NEAR_STEPS
from forecasting.open_issues import OpenIssue, not_counted_at
from forecasting.passed_peaks import ABOVE_P99, with_passed
from forecasting.peak_policy.choice import choose_policy
from forecasting.peak_policy.evidence import PeakEvidence
from forecasting.power_forecast.draw_aside import demand_history, rows_of, wanted_values
from forecasting.power_forecast.present_rows import (
    NEW_LEVEL,
    PresentRows,
    new_since_seconds,
    of_models,
)
from forecasting.round_paths import RowsTold, round_paths
from forecasting.series_source import Floats, History, SeriesId
from forecasting.settlement import Judge, settled
from forecasting.tier_panel import Combined, TierPanel


@dataclass(frozen=True, slots=True)
class _Draft:
    """A forecast before calibration and bounds.

    Attributes:
        combined: What the tiers say.
        cleaned: What they were told.
        steps: Step quantiles, planned events included, shape (n_series, horizon, n_levels).
        peaks: Quantiles of the window's peak, likewise, shape (n_series, n_levels).
        scale: What misses of steps are measured by, shape (n_series,).
        change: What misses of peaks are measured by, shape (n_series,).
        planned: Flags of each row that events and new levels set.
        by_present: Rows whose peak the present tells, not the past, shape (n_series,).
        running: Share of each peak that what runs now has of it, NaN where nobody knows, shape
            (n_series, n_levels).
        coherent: Paths of the power tree among the series; None without one.
        tree: That tree.
        rows: Who says what comes of each series.
    """

    combined: Combined
    cleaned: Cleaned
    steps: Floats
    peaks: Floats
    scale: Floats
    change: Floats
    planned: tuple[tuple[str, ...], ...]
    by_present: NDArray[np.bool_]
    running: Floats
    coherent: CoherentPaths | None
    tree: RoundTree | None
    rows: RowsTold


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
        self._panel = TierPanel(shape, tiers)
        self._load = LoadSteps(shape)
        self._rehearsed = rehearsed
        self.memory = memory or EngineMemory()

    def close(self) -> None:
        """End what its models work at beside the rounds."""
        self._panel.close()

    def settle(
        self, history: History, pools: Mapping[SeriesId, Pool], beside: Beside | None = None
    ) -> None:
        """Learn what came of open issues; what concerns series without a pool is forgotten."""
        nothing, observed = np.full(len(history.series), np.nan), self._clean(history)
        asked = Question(history, pools, nothing, beside=beside or Beside())
        self._settle(asked, observed, asked.present(observed.known).pools(pools))

    def issue(self, question: Question) -> Forecast:
        """The forecast from the end of the history on."""
        observed = self._clean(question.history)
        present = question.present(observed.known)
        pools = present.pools(question.pools)
        self._settle(question, observed, pools)
        draft = self._draft(question, present, observed)
        return self._published(question, draft, pools)

    def _draft(self, question: Question, present: PresentRows, observed: Cleaned) -> _Draft:
        """What tiers, paths, peak policy and events say."""
        shape, learned_from = self._shape, present.history
        read, told = (np.asarray(h.values, np.float64) for h in (question.history, learned_from))
        cleaned = clean_again(observed, read, told, shape.day_steps)
        combined = self._panel.combined(
            learned_from, cleaned, self.memory.losses, question.pools,
            tells_tiers=question.tells_tiers,
        )  # fmt: skip
        steps, by_load = self._by_load(question, observed, combined.steps)
        rows = RowsTold(combined.judged, by_load)
        of_paths = round_paths(shape, question, cleaned, observed.known, rows, steps)
        peaks = self._peaks(question, cleaned, of_paths.evidence)
        window_seconds = shape.horizon * shape.step_seconds
        promised = present.promised(peaks, shape.grid, window_seconds)
        expected = Expected(of_paths.steps, promised.peaks, of_paths.coherent)
        expected, planned = self._with_events(question, expected)
        # Without events: a launch does not widen the hours around it.
        scale = miss_scale(cleaned, promised.peaks, shape.day_steps)
        return _Draft(
            combined=combined,
            cleaned=cleaned,
            steps=expected.steps,
            peaks=expected.peaks,
            scale=scale,
            change=day_change(cleaned, scale, shape.day_steps),
            planned=tuple(
                flags + (NEW_LEVEL,) * int(broken) + (BY_LOAD,) * int(told)
                for flags, broken, told in zip(planned, promised.broken, by_load, strict=True)
            ),
            by_present=promised.present & combined.judged,
            running=self._running_share(question, present, promised.peaks),
            coherent=expected.coherent,
            tree=of_paths.tree,
            rows=rows,
        )

    def _running_share(self, question: Question, present: PresentRows, peaks: Floats) -> Floats:
        """What the peak of what runs is of the whole, before events and calibration."""
        placed = np.zeros(len(peaks))
        for row, aside in rows_of(question.history.series, question.beside.asides):
            placed[row] = aside.placed_watts
        running = present.running(peaks, self._shape.grid, placed)
        share: Floats = running / np.where(peaks > 0, peaks, np.nan)
        return share

    def _by_load(
        self, question: Question, observed: Cleaned, steps: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Steps as load tells them where it does, and where it does."""
        history = question.history
        if not question.beside.asides:
            return steps, np.zeros(len(steps), dtype=np.bool_)
        values = history.values if question.events is None else question.events.freed
        believed = replace(history, values=np.where(observed.known, values, np.nan))
        asides = question.beside.asides
        wanted = replace(history, values=demand_history(believed, asides, self._shape.day_steps))
        return self._load.told(wanted, asides, question.ceilings, steps)

    def _published(
        self, question: Question, draft: _Draft, pools: Mapping[SeriesId, Pool]
    ) -> Forecast:
        """The draft, calibrated, bounded and kept until it can be judged."""
        history, combined, cleaned = question.history, draft.combined, draft.cleaned
        grid, levels = self._shape.grid, self._shape.levels
        told, at_99 = [level_index(grid, level) for level in levels], level_index(grid, 0.99)
        moved, lifted = self._calibrated(history.series, pools, draft)
        lifted, passed = with_passed(lifted, grid, cleaned, self._shape.step_seconds)
        unknown = ~combined.judged
        limit = _limits(cleaned, question.ceilings)[unknown]
        moved[unknown], lifted[unknown] = limit[:, None, None], limit[:, None]
        # What is cut above the levels that are told changes no answer.
        flags = self._flags(history.series, pools, draft, (lifted[:, told[-1]], passed))
        # A peak that the present tells is no step's to exceed: the steps' errors are the past's.
        here = draft.by_present
        moved[here] = np.minimum(moved[here], lifted[here, None, :])
        tops = tops_of(cleaned, question.ceilings)
        told_steps, told_peaks = bounded(moved, lifted, tops)
        self._keep(history, draft, (told_steps, told_peaks), pools)
        told_paths = None
        if question.n_paths:
            published = Published(told_steps, tops, draft.rows)
            told_paths = joint_paths(
                self._shape, published, cleaned, history, draft.tree, question.n_paths
            )
        return Forecast(
            series=tuple(history.series),
            data_until_seconds=history.until_seconds,
            step_seconds=history.step_seconds,
            levels=levels,
            quantiles=told_steps[:, :, told],
            peaks=told_peaks[:, told],
            now=cleaned.newest,
            scale=draft.scale,
            methods=combined.methods,
            flags=flags,
            tops=tops,
            observed_until_seconds=history.until_seconds
            - cleaned.bins_since * float(history.step_seconds),
            tiers=self._panel.provenances,
            weights=combined.shares,
            calibrated_until_seconds=self._calibrated_until(history.series, pools),
            peak_shifts=told_peaks[:, at_99] - draft.peaks[:, at_99],
            running=(told_peaks * draft.running)[:, told],
            coherent=draft.coherent,
            paths=told_paths,
            by_tier=combined.told,
        )

    def _clean(self, history: History) -> Cleaned:
        return clean(np.asarray(history.values, dtype=np.float64), self._shape.day_steps)

    def _settle(self, question: Question, cleaned: Cleaned, pools: Mapping[SeriesId, Pool]) -> None:
        """As ``settle``; a reading that is not believed breaks no promise."""
        history = question.history
        believed = replace(history, values=np.where(cleaned.known, history.values, np.nan))
        known = self.memory.of(pools)
        domains = [name for name in history.series if pools[name][1].startswith(DOMAIN)]
        new = new_since_seconds(believed, domains)
        wanted = wanted_values(believed, question.beside.asides)
        judge = Judge(self._shape.grid, pools, self._rehearsed, new, wanted)
        self.memory = settled(known, believed, judge)

    def _peaks(self, question: Question, cleaned: Cleaned, evidence: PeakEvidence) -> Floats:
        """Quantiles of the window's peak before calibration, shape (n_series, n_levels)."""
        shape = self._shape
        result = np.empty((len(cleaned.filled), len(shape.grid)))
        for rows in rows_by_pool(question.history.series, question.pools).values():
            policy = choose_policy(cleaned.filled[rows], shape.horizon, shape.day_steps)
            result[rows] = policy.quantiles(evidence.rows(rows), shape.grid)
        return result

    def _calibrated(
        self, series: Sequence[SeriesId], pools: Mapping[SeriesId, Pool], draft: _Draft
    ) -> tuple[Floats, Floats]:
        """Steps and peaks as their pools have learned to correct them; not bounded yet."""
        moved, lifted = draft.steps.copy(), draft.peaks.copy()
        for pool, part in rows_by_pool(series, pools).items():
            names = [series[i] for i in part]
            if (points := self._points(pool)) is not None:
                moved[part] = points.corrected(names, moved[part], draft.scale[part], NEAR_STEPS)
            if (tops := self.memory.peaks.get(pool)) is not None:
                changed = tops.corrected(names, lifted[part, None, :], draft.change[part])
                lifted[part] = changed[:, 0]
        return moved, lifted

    def _calibrated_until(
        self, series: Sequence[SeriesId], pools: Mapping[SeriesId, Pool]
    ) -> NDArray[np.int64]:
        """End of the newest window that taught each row's peak anything, Unix time."""
        until = {pool: kept.until_seconds for pool, kept in self.memory.peaks.items()}
        return np.array([until.get(pools[name], 0) for name in series], dtype=np.int64)

    def _points(self, pool: Pool) -> PooledCalibration | None:
        """What corrects a pool's steps: until enough was seen of it, what its namesake learned."""
        own = self.memory.points.get(pool)
        known = own is not None and own.is_in_force
        return own if known else self.memory.points.get(of_models(pool), own)

    def _with_events(
        self, question: Question, expected: Expected
    ) -> tuple[Expected, list[tuple[str, ...]]]:
        """What is expected with what is planned, and the flags of each row."""
        history = question.history
        if question.events is None:
            return expected, [()] * len(expected.steps)
        window = EventGrid(history.until_seconds, history.step_seconds, self._shape.horizon)
        return question.events.moved(expected, self._shape.grid, window)

    def _flags(
        self,
        series: Sequence[SeriesId],
        pools: Mapping[SeriesId, Pool],
        draft: _Draft,
        found_of: tuple[Floats, NDArray[np.bool_]],
    ) -> tuple[tuple[str, ...], ...]:
        """What a user should know about each row.

        Args:
            series: Names.
            pools: Theirs.
            draft: What was drafted.
            found_of: Of each row its highest quantile of the peak before bounds, and whether its
                p99 was passed.
        """
        highest, passed = found_of
        corrected = {pool for pool, kept in self.memory.peaks.items() if kept.is_in_force}
        cleaned, found = draft.cleaned, []
        for i, (name, method) in enumerate(zip(series, draft.combined.methods, strict=True)):
            row = (*cleaned.flags[i],)
            if method == LIMIT:
                row += ("no-history",)
            elif passed[i]:
                row += (ABOVE_P99,)
            if method != LIMIT and highest[i] > EXTREME * cleaned.highest[i]:
                row += (EXTREME_FLAG,)
            row += draft.planned[i]
            if method != LIMIT and pools[name] not in corrected:
                row += ("uncalibrated",)
            found.append(row)
        return tuple(found)

    def _keep(
        self,
        history: History,
        draft: _Draft,
        told: tuple[Floats, Floats],
        pools: Mapping[SeriesId, Pool],
    ) -> None:
        """Open an issue of what was told, unless one was opened within half a window.

        Of what was said twice of the same bins the later counts: more was known.
        """
        told_steps, told_peaks = told
        open_issues, begin_seconds = self.memory.open_issues, history.until_seconds
        if open_issues and open_issues[-1].begin_seconds == begin_seconds:
            last = open_issues[-1]
            others = last.rows(~last.among(history.series))
            open_issues = open_issues[:-1] + ((others,) if others.series else ())
        half_seconds = self._shape.horizon * self._shape.step_seconds / 2
        if open_issues and begin_seconds - open_issues[-1].begin_seconds < half_seconds:
            return
        made = OpenIssue(
            begin_seconds=begin_seconds,
            series=tuple(history.series),
            pools=tuple(pools[name] for name in history.series),
            steps=draft.steps.astype(np.float32),
            told_steps=told_steps.astype(np.float32),
            tiers=draft.combined.tiers,
            by_tier=draft.combined.by_tier,
            peaks=draft.peaks,
            told_peaks=told_peaks,
            scale=draft.scale,
            change=draft.change,
            judged=draft.combined.judged,
            broken=np.zeros(told_peaks.shape, dtype=bool),
            counted=draft.combined.judged
            & not_counted_at(open_issues, history.series, begin_seconds, history.step_seconds),
        )
        self.memory = replace(self.memory, open_issues=(*open_issues, made))


def _limits(cleaned: Cleaned, ceilings: Floats) -> Floats:
    """What stands in where nothing is known, shape (n_series,)."""
    return np.where(np.isfinite(ceilings), ceilings, cleaned.highest * (1 + ASSUMED_OFFSET))
