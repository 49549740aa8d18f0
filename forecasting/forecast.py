"""What the forecaster publishes for a group of series: step quantiles and quantiles of the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.clean_history import Cleaned
from forecasting.domains.coherent_paths import CoherentPaths
from forecasting.forecaster import Provenance
from forecasting.series_source import Floats, SeriesId
from wattpack.errors import InputError

LAST_DAY: Final = "last-24h-max"
LIMIT: Final = "limit"
FALLBACKS: Final = (LAST_DAY, LIMIT)
"""Methods that a status calls a fallback."""

LIMIT_VERSION: Final = "limit/1"
"""As ``Provenance.model`` of what has no model: the ceiling, at every level and step."""

EXTREME: Final = 20.0
"""Multiples of the highest value ever seen at which a forecast is cut and flagged."""

EXTREME_FLAG: Final = "extreme"

ASSUMED_OFFSET: Final = 0.2
"""Share of a maximum added where there is no record of errors. Last-day maximum times 1.2 was
exceeded in 8.8 % of 80 windows, so this is flagged and not called a p99."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quantiles of several series over one window, calibrated and bounded.

    Attributes:
        series: Names, in the order of the first axis.
        data_until_seconds: End of the newest bin used, Unix time: the window starts here.
        step_seconds: Width of a step.
        levels: Quantile levels, ascending.
        quantiles: Each step, shape (n_series, horizon, n_levels): finite, >= 0, sorted.
        peaks: Highest value of the window, shape (n_series, n_levels), likewise.
        now: Newest observed value, shape (n_series,); NaN if there is none.
        scale: What misses are measured by, positive, shape (n_series,).
        methods: What made each row: tiers of weight joined by ``+``, or a fallback.
        flags: What a user should know about each row, for example ``stale`` or ``gaps``.
        tops: What no answer may exceed, shape (n_series,).
        observed_until_seconds: End of the newest observed bin, Unix time, shape (n_series,); the
            start of the history where nothing was observed.
        tiers: What stands behind the answers: names, versions and ends of data.
        weights: Share of each tier in each row, shape (n_series, n_tiers).
        calibrated_until_seconds: End of the newest window behind each row's correction of the peak,
            Unix time, shape (n_series,); 0 without any.
        peak_shifts: What calibration and bounds added to the p99 of the peak, shape (n_series,).
        running: Peaks of what runs now, without free boards and pods that came since,
            at most ``peaks`` and of their shape; NaN where nobody knows. None for none known.
        coherent: Joint paths of the power tree among the series, not calibrated; None without one.
        paths: Joint paths of what is published, shape (n_series, n_paths, horizon); None where
            nobody asked.
        by_tier: What each of ``tiers`` said of the steps, not calibrated, without events and
            ceilings, shape (n_tiers, n_series, horizon, n_levels), NaN where it had no answer;
            None where nobody asked.
    """

    series: tuple[SeriesId, ...]
    data_until_seconds: int
    step_seconds: int
    levels: tuple[float, ...]
    quantiles: Floats
    peaks: Floats
    now: Floats
    scale: Floats
    methods: tuple[str, ...]
    flags: tuple[tuple[str, ...], ...]
    tops: Floats
    observed_until_seconds: Floats
    tiers: tuple[Provenance, ...]
    weights: Floats
    calibrated_until_seconds: NDArray[np.int64]
    peak_shifts: Floats
    running: Floats | None = None
    coherent: CoherentPaths | None = None
    paths: Floats | None = None
    by_tier: NDArray[np.float32] | None = None


def level_index(levels: Sequence[float], level: float) -> int:
    """Position of a level.

    Raises:
        InputError: if it was not forecast.
    """
    for i, known in enumerate(levels):
        if abs(known - level) < 1e-9:
            return i
    raise InputError("level", f"one of {tuple(levels)}", level)


def checked_levels(levels: Sequence[float]) -> Floats:
    """Ascending levels in (0, 1).

    Raises:
        InputError: for anything else.
    """
    chosen = np.asarray(levels, dtype=np.float64)
    inside = chosen.ndim == 1 and len(chosen) > 0 and bool(np.all((chosen > 0) & (chosen < 1)))
    if not inside or np.any(np.diff(chosen) <= 0):
        raise InputError("levels", "ascending numbers between 0 and 1", levels)
    return chosen


def tops_of(cleaned: Cleaned, ceilings: Floats) -> Floats:
    """The ceiling or 20 times the record, whichever is lower; 0 with neither, (n_series,)."""
    record = np.where(cleaned.length == 0, np.inf, cleaned.highest * EXTREME)
    lowest = np.fmin(record, np.where(np.isfinite(ceilings), ceilings, np.inf))
    result: Floats = np.where(np.isfinite(lowest), lowest, 0.0)
    return result


def bounded(quantiles: Floats, peaks: Floats, tops: Floats) -> tuple[Floats, Floats]:
    """Both cut at zero and at the top, sorted over levels, and no step above its window's peak.

    The step gives way: the peak's level is kept by its own record, and lifting it to the highest of
    so many steps reserves an eighth more at equal risk (82 clients, bins 0-1439).

    Args:
        quantiles: Shape (n_series, horizon, n_levels).
        peaks: Shape (n_series, n_levels).
        tops: Shape (n_series,).
    """
    highest = np.maximum.accumulate(np.clip(peaks, 0.0, tops[:, None]), axis=1)
    steps = np.maximum.accumulate(np.maximum(quantiles, 0.0), axis=2)
    return np.minimum(steps, highest[:, None, :]), highest
