"""Forecasts whose window is not over, kept as they were made until what came can judge them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.clean_history import observed
from forecasting.series_source import Floats, History, SeriesId

WEIGHED_LEVELS: Final = (0.1, 0.5, 0.9)
"""Levels at which tiers are compared: what the loss over 0.1 to 0.9 ranks, three rank alike."""

MIN_OBSERVED: Final = 0.5
"""Share of a window that must have been observed before its peak counts."""


@dataclass(frozen=True, slots=True)
class OpenIssue:
    """A forecast as it was made and as it was given out.

    Attributes:
        begin_seconds: End of the data behind it, Unix time: its window starts here.
        series: Names, in the order of the rows.
        pools: Namespace and kind of each row's pool when it was promised, which it teaches.
        steps: Combined step quantiles, not calibrated, shape (n_series, horizon, n_levels).
        told_steps: The same as they were published.
        tiers: Names of the tiers.
        by_tier: Each tier's at ``WEIGHED_LEVELS``, NaN where it had no answer, shape
            (n_tiers, n_series, horizon, n_weighed).
        peaks: Quantiles of the window's peak, not calibrated, shape (n_series, n_levels).
        told_peaks: The same as they were published.
        scale: What misses of steps are measured by, shape (n_series,).
        change: What misses of peaks are measured by, shape (n_series,).
        judged: Rows whose misses count: made by a model, shape (n_series,).
        broken: Levels of peaks that were exceeded already, which was counted, shape of ``peaks``.
        counted: Rows whose window the series' record counts, shape (n_series,): windows of a
            record do not overlap, so their misses may be held against a binomial law.
        learned_steps: First steps that were learned from already.
    """

    begin_seconds: int
    series: tuple[SeriesId, ...]
    pools: tuple[tuple[str, str], ...]
    steps: NDArray[np.float32]
    told_steps: NDArray[np.float32]
    tiers: tuple[str, ...]
    by_tier: NDArray[np.float32]
    peaks: Floats
    told_peaks: Floats
    scale: Floats
    change: Floats
    judged: NDArray[np.bool_]
    broken: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    learned_steps: int = 0

    @property
    def horizon(self) -> int:
        """Steps of the window."""
        return int(self.steps.shape[1])

    def ends_seconds(self, step_seconds: int) -> int:
        """End of the window, Unix time."""
        return self.begin_seconds + self.horizon * step_seconds

    def steps_over(self, now_seconds: int, step_seconds: int) -> int:
        """Steps whose bins are over, at most its horizon."""
        return min(self.horizon, max(0, now_seconds - self.begin_seconds) // step_seconds)

    def rows(self, kept: NDArray[np.bool_]) -> OpenIssue:
        """Some of its rows, in their order."""
        return replace(
            self,
            series=tuple(name for name, there in zip(self.series, kept, strict=True) if there),
            pools=tuple(pool for pool, there in zip(self.pools, kept, strict=True) if there),
            steps=self.steps[kept],
            told_steps=self.told_steps[kept],
            by_tier=self.by_tier[:, kept],
            peaks=self.peaks[kept],
            told_peaks=self.told_peaks[kept],
            scale=self.scale[kept],
            change=self.change[kept],
            judged=self.judged[kept],
            broken=self.broken[kept],
            counted=self.counted[kept],
        )

    def of(self, series: Collection[SeriesId]) -> OpenIssue:
        """The rows of series that still exist."""
        kept = self.among(series)
        return self if kept.all() else self.rows(kept)

    def among(self, series: Collection[SeriesId]) -> NDArray[np.bool_]:
        """Rows of these series, shape (n_series,)."""
        there = set(series)
        return np.array([name in there for name in self.series], dtype=bool)


def not_counted_at(
    issues: Iterable[OpenIssue],
    series: Sequence[SeriesId],
    begin_seconds: int,
    step_seconds: int,
) -> NDArray[np.bool_]:
    """Series of which no counted window reaches beyond a time, shape (n_series,).

    Which windows count is settled when they begin: chosen by how they went, they would go worse
    than the others.

    Args:
        issues: That are open then.
        series: Who is asked for.
        begin_seconds: Unix time.
        step_seconds: Width of a step.
    """
    taken = {
        name
        for issue in issues
        if issue.ends_seconds(step_seconds) > begin_seconds
        for name, counted in zip(issue.series, issue.counted, strict=True)
        if counted
    }
    return np.array([name not in taken for name in series], dtype=np.bool_)


def realised(issue: OpenIssue, history: History) -> Floats:
    """What came of an issue's window so far, NaN where nothing is known, (n_series, horizon).

    Args:
        issue: Whose window.
        history: In any order; nothing is known of series that are not in it. It may end before the
            window or begin after its start.
    """
    rows = {name: i for i, name in enumerate(history.series)}
    places = np.array([rows.get(name, -1) for name in issue.series], dtype=np.intp)
    ahead = (history.until_seconds - issue.begin_seconds) // history.step_seconds
    n_bins = history.values.shape[1]
    at = n_bins - ahead + np.arange(issue.horizon)
    there = (at >= 0) & (at < n_bins)
    result = np.full((len(places), issue.horizon), np.nan)
    read = places >= 0
    came = np.asarray(history.values, dtype=np.float64)[np.ix_(places[read], at[there])]
    result[np.ix_(read, there)] = np.where(observed(came), came, np.nan)
    return result


def peaks_so_far(window: Floats) -> Floats:
    """The highest known value of each row, ``-inf`` without any, shape (n_series,)."""
    result: Floats = np.max(np.where(np.isfinite(window), window, -np.inf), axis=1)
    return result


def realised_peaks(window: Floats) -> Floats:
    """The peak of each whole window, NaN if under half of it was observed, shape (n_series,)."""
    enough = np.isfinite(window).mean(axis=1) >= MIN_OBSERVED
    return np.where(enough, peaks_so_far(window), np.nan)
