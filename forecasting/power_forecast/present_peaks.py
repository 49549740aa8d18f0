"""The peak of the coming window from the present: for a history that is not like it.

Draw at the moment, the highest draw since the present began (``present_level``, at most a day),
what would come if work started on all free boards, and the draw of all boards at work: the window's
peak is a quantile regression on these four and the last hour's mean. It knows no days, so days of
another kind do not mislead it; how far a draw can rise is told by what stands there, not by what
rose before.
Source: Koenker and Bassett, "Regression quantiles", Econometrica 46 (1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.power_forecast.present_level import present_since
from forecasting.risk_scale import parts_of_levels
from forecasting.series_source import DAY_SECONDS, Floats
from wattpack.errors import InputError

HOUR_SECONDS: Final = 3600

LEVELS: Final = (0.5, 0.75, 0.9, 0.95, 0.99)

WEIGHTS: Final[tuple[tuple[float, ...], ...]] = (
    (0.51, 0.07, -0.28, 0.65, -0.08),
    (0.45, 0.09, -0.14, 0.78, -0.12),
    (0.35, 0.13, 0.05, 0.83, -0.09),
    (0.32, 0.12, 0.13, 0.84, -0.04),
    (0.26, 0.07, 0.14, 1.01, -0.05),
)
"""By level: of the last bin, the recent highest, startable, busy, and of the last hour's mean.
Fitted to 3,300 windows of six hours of twin domains:
``python -m benchmarks power_forecast --seed 100 --domains 300 --fit``. They hold for domains like
these before anything is learned of one's own; calibration moves them from there."""

WEIGHTS_WITHOUT_BOARDS: Final[tuple[tuple[float, ...], ...]] = (
    (0.71, 0.42, 0.0, 0.0, -0.12),
    (0.59, 0.59, 0.0, 0.0, -0.16),
    (0.51, 0.64, 0.0, 0.0, -0.08),
    (0.33, 0.61, 0.0, 0.0, 0.18),
    (0.66, 0.58, 0.0, 0.0, -0.02),
)
"""The same where nobody says what boards there are; reserves 6 % more at equal risk."""


@dataclass(frozen=True)
class PresentDraw:
    """What is known of domains now.

    Attributes:
        values: Draw, AC watts, (n, n_bins), NaN for gaps; work that was placed since the data's end
            is added (``present_work``).
        step_seconds: Width of a bin.
        startable_watts: Rise if work came to all free boards, (n,); NaN where nobody knows.
        busy_watts: Of all boards at work, (n,); NaN where nobody knows.
        ceiling_watts: What caps and rating enforce, (n,); NaN for nothing.
    """

    values: Floats
    step_seconds: int
    startable_watts: Floats
    busy_watts: Floats
    ceiling_watts: Floats

    def __post_init__(self) -> None:
        n = len(self.values)
        for name in ("startable_watts", "busy_watts", "ceiling_watts"):
            if np.shape(getattr(self, name)) != (n,):
                raise InputError(name, f"one number a domain, {n}", np.shape(getattr(self, name)))

    @cached_property
    def since(self) -> NDArray[np.intp]:
        """First bin at each domain's present level, 0 where it did not break, (n,)."""
        return present_since(self.values, self.step_seconds)


def anchors(present: PresentDraw) -> Floats:
    """Last bin, recent highest, startable, busy and the last hour's mean, watts, (n, 5).

    Startable and busy are NaN where unknown; all are where the last hour is not known.
    """
    values, step = present.values, present.step_seconds
    n_bins = values.shape[1]
    hour, day = max(1, HOUR_SECONDS // step), max(1, DAY_SECONDS // step)
    since = np.maximum(present.since, n_bins - day)
    recent = np.arange(n_bins) >= since[:, None]
    highest = np.max(np.where(recent & np.isfinite(values), values, -np.inf), axis=1)
    tail = values[:, -hour:]
    known = np.isfinite(tail)
    counts = known.sum(axis=1)
    mean = np.where(known, tail, 0.0).sum(axis=1) / np.maximum(counts, 1)
    newest = tail.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    last = np.take_along_axis(tail, newest[:, None], axis=1)[:, 0]
    made = np.stack([last, highest, present.startable_watts, present.busy_watts, mean], axis=1)
    made[counts == 0] = np.nan
    return made


def present_peak_quantiles(present: PresentDraw, levels: Sequence[float]) -> Floats:
    """Quantiles of the highest bin of the next six hours, (n, n_levels), sorted, never negative.

    Never below the last bin from the median up, never above the ceiling. Between the fitted levels
    and beyond the highest they follow the logarithm of the risk (``risk_scale``).

    Raises:
        InputError: levels out of order or outside [0.5, 1).
    """
    wanted = np.asarray(levels, dtype=np.float64)
    if not (len(wanted) and np.all((wanted >= LEVELS[0]) & (wanted < 1))):
        raise InputError("levels", f"levels from {LEVELS[0]} to below 1", tuple(levels))
    if np.any(np.diff(wanted) <= 0):
        raise InputError("levels", "ascending levels", tuple(levels))
    at = anchors(present)
    with_boards = at @ np.array(WEIGHTS).T
    alone = np.where(np.isnan(at), 0.0, at) @ np.array(WEIGHTS_WITHOUT_BOARDS).T
    fitted = np.where(np.isnan(with_boards), alone, with_boards)
    fitted[np.isnan(at[:, 0])] = np.nan
    parts = parts_of_levels(wanted, np.array(LEVELS))
    made = np.maximum.accumulate(np.maximum(fitted, at[:, :1]), axis=1) @ parts
    ceiling = np.where(np.isnan(present.ceiling_watts), np.inf, present.ceiling_watts)
    return np.asarray(np.clip(made, 0.0, ceiling[:, None]))
