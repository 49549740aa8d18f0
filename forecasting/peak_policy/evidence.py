"""What a peak policy may look at: joint paths, and what the highest bins of past days were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.peak_policy.coupling import ranked_quantiles
from forecasting.series_source import Floats
from wattpack.errors import InputError

MOST_DAYS: Final = 10
USUAL_DAYS: Final = 7
SAME_HOURS_DAYS: Final = 7
"""A week: weekends have hours of their own."""

USUAL_LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class PeakEvidence:
    """All of the same series, in any unit that is at least 0.

    Attributes:
        path_peaks: Highest value of each joint path, shape (n_series, n_paths).
        daily_maxima: Highest bin of each of the last days, newest first, counted back from now,
            shape (n_series, n_days); what is left of the first day counts as one.
        recent_maximum: Highest bin of as long as the window lasts, shape (n_series,).
        same_hours: Highest bin in the hours of the window, of each of the last days that has them
            all, newest first; the highest of all where none has, shape (n_series, n_days).
        usual: 95th percentile of the bins of the last seven days, shape (n_series,).
    """

    path_peaks: Floats
    daily_maxima: Floats
    recent_maximum: Floats
    same_hours: Floats
    usual: Floats

    @classmethod
    def of(cls, values: Floats, paths: Floats, day_steps: int) -> PeakEvidence:
        """Evidence at the end of a history.

        Args:
            values: Filled history, shape (n_series, n_bins), at least one bin.
            paths: Joint paths, shape (n_series, n_paths, horizon).
            day_steps: Bins in a day.

        Raises:
            InputError: no bins, no paths, or other numbers of series.
        """
        n_series, n_bins = values.shape
        if n_bins == 0:
            raise InputError("values", "at least one bin", values.shape)
        if len(paths) != n_series or 0 in paths.shape[1:]:
            raise InputError("paths", f"an array of ({n_series}, n_paths, horizon)", paths.shape)
        n_days = min(MOST_DAYS, -(-n_bins // day_steps))
        starts = [max(0, n_bins - day * day_steps) for day in range(n_days, 0, -1)]
        maxima = np.maximum.reduceat(values, starts, axis=1)[:, ::-1]
        return cls(
            path_peaks=paths.max(axis=2),
            daily_maxima=maxima,
            recent_maximum=values[:, -paths.shape[2] :].max(axis=1),
            same_hours=_same_hours(values, paths.shape[2], day_steps),
            usual=_quantile(values[:, -USUAL_DAYS * day_steps :], USUAL_LEVEL),
        )

    @classmethod
    def joined(cls, parts: Sequence[PeakEvidence]) -> PeakEvidence:
        """Of the series of all parts, one part after the other; at least one part."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.path_peaks for part in parts]),
            np.concatenate([part.daily_maxima for part in parts]),
            np.concatenate([part.recent_maximum for part in parts]),
            np.concatenate([part.same_hours for part in parts]),
            np.concatenate([part.usual for part in parts]),
        )

    def rows(self, kept: np.ndarray) -> PeakEvidence:
        """Of some of the series, by their places."""
        return PeakEvidence(
            self.path_peaks[kept],
            self.daily_maxima[kept],
            self.recent_maximum[kept],
            self.same_hours[kept],
            self.usual[kept],
        )

    def highest_of(self, days: int) -> Floats:
        """Highest bin of the last days, or of what there is of them, shape (n_series,)."""
        result: Floats = self.daily_maxima[:, :days].max(axis=1)
        return result

    def path_quantiles(self, levels: Sequence[float]) -> Floats:
        """Quantiles of the paths' peaks, shape (n_series, n_levels)."""
        return ranked_quantiles(np.sort(self.path_peaks, axis=1), levels)


def _same_hours(values: Floats, horizon: int, day_steps: int) -> Floats:
    """Highest bin of the window's hours on each of the last days, shape (n_series, n_days)."""
    n_bins = values.shape[1]
    starts = [n_bins - day * day_steps for day in range(1, SAME_HOURS_DAYS + 1)]
    days = [values[:, start : start + horizon].max(axis=1) for start in starts if start >= 0]
    return np.stack(days or [values.max(axis=1)], axis=1)


def _quantile(values: Floats, level: float) -> Floats:
    """The lowest value that at least this share of a row does not exceed."""
    n = values.shape[1]
    place = min(n - 1, max(0, int(np.ceil(level * n)) - 1))
    result: Floats = np.partition(values, place, axis=1)[:, place]
    return result
