"""What came is held against what was said: open issues become losses, calibration and records.

A step teaches models and calibration in the first round after its bin: what was said for the next
ten minutes need not wait for the end of six hours. A promised peak is counted as broken in the
round that breaks it, as kept only when its window is over. All windows teach; records count those
that do not overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting import combination, near_steps
from forecasting.calibration.finished import Finished
from forecasting.calibration.pooled import PooledCalibration
from forecasting.calibration.promise_record import Kind, PromiseRecord
from forecasting.combination import band_losses, band_shares
from forecasting.engine_memory import RECORDED_LEVEL, EngineMemory, Pool, places_of
from forecasting.forecast import level_index
from forecasting.open_issues import (
    WEIGHED_LEVELS,
    OpenIssue,
    peaks_so_far,
    realised,
    realised_peaks,
)
from forecasting.series_source import Floats, History, SeriesId

HAIR: Final = 1e-9
"""A peak at the promise itself, up to rounding, is no miss."""


@dataclass(frozen=True, slots=True)
class Judge:
    """What settling needs besides issues and history.

    Attributes:
        levels: Of the issues, with 0.99 among them.
        pools: Of every series that is forecast now, of those not read this time, too. A promise
            teaches the pool that made it.
        rehearsed: Whether the promises were made afterwards.
        new_since_seconds: When series became other ones under the same name, Unix time. A promise
            from before tells nothing of how the new one is promised; it is counted all the same.
        wanted: The history's values with bins in which caps held work back as these would have
            been, NaN where nobody knows that; None where nothing was held. They teach; records
            count what was drawn.
    """

    levels: tuple[float, ...]
    pools: Mapping[SeriesId, Pool]
    rehearsed: bool = False
    new_since_seconds: Mapping[SeriesId, int] = field(default_factory=dict)
    wanted: Floats | None = None

    def free(self, history: History) -> History:
        """The history as if no cap had held."""
        return history if self.wanted is None else replace(history, values=self.wanted)

    def teaches(self, issue: OpenIssue) -> NDArray[np.bool_]:
        """Rows that are still what they were when they were promised, (n_series,)."""
        since = [self.new_since_seconds.get(name, 0) for name in issue.series]
        return np.array(since, dtype=np.int64) <= issue.begin_seconds

    @property
    def promised(self) -> int:
        """Position of the level that records count."""
        return level_index(self.levels, RECORDED_LEVEL)

    def sizes(self, issue: OpenIssue) -> Counter[Pool]:
        """Series of each pool now, at least those that were promised in it."""
        return Counter(self.pools.values()) | Counter(issue.pools)


def settled(memory: EngineMemory, history: History, judge: Judge) -> EngineMemory:
    """The memory after what the history tells about open issues.

    Series that were not read this time have gaps in their steps; the end of their window waits for
    them, as long again as it lasted.

    Args:
        memory: Whose open issues have series with a pool alone.
        history: Observed bins, NaN for gaps.
        judge: By which it is held.
    """
    still_open: list[OpenIssue] = []
    free = judge.free(history)
    for issue in memory.open_issues:
        window, wanted = realised(issue, history), realised(issue, free)
        now = history.until_seconds
        memory, issue = _broken(memory, issue, peaks_so_far(window), judge, now)
        over = issue.steps_over(now, history.step_seconds)
        if over > issue.learned_steps:
            until = issue.begin_seconds + over * history.step_seconds
            memory = _steps_learned(memory, issue, wanted[:, :over], judge, until)
            issue = replace(issue, learned_steps=over)
        ends_seconds = issue.ends_seconds(history.step_seconds)
        if ends_seconds > now:
            still_open.append(issue)
            continue
        read = issue.among(history.series)
        came = window[read], wanted[read]
        memory = _finished(memory, issue.rows(read), came, judge, ends_seconds)
        if not read.all() and now < ends_seconds + (ends_seconds - issue.begin_seconds):
            still_open.append(issue.rows(~read))
    return replace(memory, open_issues=tuple(still_open))


def _broken(
    memory: EngineMemory, issue: OpenIssue, so_far: Floats, judge: Judge, at_seconds: int
) -> tuple[EngineMemory, OpenIssue]:
    """Count promises that are broken already, whether or not their window is over.

    In a rehearsal everything is over at once, and is counted when the window ends.
    """
    exceeded = so_far[:, None] > issue.told_peaks * (1 + HAIR)
    new = issue.judged[:, None] & exceeded & ~issue.broken
    if judge.rehearsed or not new.any():
        return memory, issue
    records, tops = dict(memory.records), dict(memory.peaks)
    fresh, sizes = new.any(axis=1), judge.sizes(issue)
    learned = np.nonzero(fresh & judge.teaches(issue))[0]
    for pool, places in places_of([issue.pools[i] for i in learned]).items():
        rows = learned[places]
        calibration = tops.get(pool) or PooledCalibration.of_peaks(judge.levels)
        names = [issue.series[i] for i in rows]
        tops[pool] = calibration.after_broken(names, new[rows], sizes[pool], at_seconds)
    for i in np.nonzero(new[:, judge.promised] & issue.counted)[0]:
        name = issue.series[i]
        records[name] = memory.record(name).after_broken((True,), first=True)
    memory = replace(memory, records=records, peaks=tops)
    return memory, replace(issue, broken=issue.broken | new)


def _steps_learned(
    memory: EngineMemory, issue: OpenIssue, came: Floats, judge: Judge, at_seconds: int
) -> EngineMemory:
    """Learn from steps that are over and were not learned from.

    Args:
        memory: Before.
        issue: Whose steps.
        came: What came of all steps that are over, NaN where unknown, shape (n_series, n_over).
        judge: By which it is held.
        at_seconds: When the newest of them was over, Unix time.
    """
    first, over = issue.learned_steps, came.shape[1]
    fresh, came = slice(first, over), came[:, first:]
    lost = {
        name: band_losses(
            made[:, fresh].astype(np.float64) / issue.scale[:, None, None],
            came / issue.scale[:, None],
            WEIGHED_LEVELS,
            first,
        )
        for name, made in zip(issue.tiers, issue.by_tier, strict=True)
    }
    lost |= _near_lost(issue, fresh, came)
    shares = band_shares(issue.horizon, first, over)
    losses = combination.settled(memory.losses, issue.series, lost, at_seconds, shares)
    points, sizes = dict(memory.points), judge.sizes(issue)
    seen = np.where(judge.teaches(issue)[:, None], came, np.nan)
    for pool, members in places_of(issue.pools).items():
        rows = members[issue.judged[members]]
        if not len(rows):
            continue
        steps = Finished(
            series=[issue.series[i] for i in rows],
            promised=issue.steps[rows, fresh].astype(np.float64),
            published=issue.told_steps[rows, fresh].astype(np.float64),
            scale=issue.scale[rows],
            realised=seen[rows],
            window_steps=issue.horizon,
            pool_size=sizes[pool],
            until_seconds=at_seconds,
        )
        before = points.get(pool) or PooledCalibration.new(judge.levels)
        points[pool] = before.after(steps)
    return replace(memory, points=points, losses=losses)


def _near_lost(issue: OpenIssue, fresh: slice, came: Floats) -> dict[str, Floats]:
    """What the first steps would have lost by each share of the models' medians."""
    made = near_steps.candidates(issue.by_tier, issue.tiers, WEIGHED_LEVELS.index(0.5))
    if made is None:
        return {}
    padded = np.full((len(made), len(came), issue.horizon), np.nan)
    padded[:, :, : made.shape[2]] = made / issue.scale[:, None]
    return {
        name: band_losses(row[:, fresh, None], came / issue.scale[:, None], (0.5,), fresh.start)
        for name, row in zip(near_steps.NAMES, padded, strict=True)
    }


def _finished(
    memory: EngineMemory,
    issue: OpenIssue,
    came: tuple[Floats, Floats],
    judge: Judge,
    at_seconds: int,
) -> EngineMemory:
    """Learn from the peak of a window that is over.

    Args:
        memory: Before.
        issue: Whose window.
        came: What was drawn in it, and what was wanted, (n_series, horizon) each.
        judge: By which it is held.
        at_seconds: When it was over, Unix time.
    """
    judged = issue.rows(issue.judged)
    drawn, wanted = (window[issue.judged] for window in came)
    peaks = _wanted_peaks(judged, drawn, wanted, judge)
    tops, sizes = dict(memory.peaks), judge.sizes(judged)
    seen = np.where(judge.teaches(judged), peaks, np.nan)
    for pool, rows in places_of(judged.pools).items():
        highest = Finished(
            series=[judged.series[i] for i in rows],
            promised=judged.peaks[rows, None, :],
            published=judged.told_peaks[rows, None, :],
            scale=judged.change[rows],
            realised=seen[rows, None],
            pool_size=sizes[pool],
            told=judged.broken[rows, None, :],
            until_seconds=at_seconds,
        )
        of_peaks = tops.get(pool) or PooledCalibration.of_peaks(judge.levels)
        tops[pool] = of_peaks.after(highest)
    promised = judged.told_peaks[:, judge.promised] * (1 + HAIR)
    # What would have been above the promise, had caps let it, is nobody's miss.
    counted = np.where((peaks > promised) & (peaks_so_far(drawn) <= promised), np.nan, peaks)
    records = _recorded(memory, judged, counted, judge)
    return replace(memory, records=records, peaks=tops)


def _wanted_peaks(judged: OpenIssue, drawn: Floats, wanted: Floats, judge: Judge) -> Floats:
    """The peak of each window that is over, NaN where it is not known, shape (n_series,)."""
    highest, promised = peaks_so_far(drawn), judged.told_peaks[:, judge.promised] * (1 + HAIR)
    unknown = np.any(np.isnan(wanted) & np.isfinite(drawn), axis=1)
    peaks = np.where(unknown, np.nan, realised_peaks(wanted))
    # A broken promise counts even if most of its window was not observed, or was held.
    broken = judged.broken[:, judge.promised] | (unknown & (highest > promised))
    result: Floats = np.where(broken & np.isnan(peaks), highest, peaks)
    return result


def _recorded(
    memory: EngineMemory, judged: OpenIssue, peaks: Floats, judge: Judge
) -> Mapping[SeriesId, PromiseRecord]:
    """Every series' record with one finished window more, of those that it counts."""
    records = dict(memory.records)
    kind: Kind = "rehearsed" if judge.rehearsed else "live"
    for i in np.nonzero(np.isfinite(peaks) & judged.counted)[0]:
        name, at = judged.series[i], judge.promised
        records[name] = memory.record(name).after(
            (float(judged.told_peaks[i, at]),), float(peaks[i]), kind,
            told=(bool(judged.broken[i, at]),),
        )  # fmt: skip
    return records
