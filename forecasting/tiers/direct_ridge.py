"""Direct ridge regression of every series and step, the tier that answers nearly always.

A cold fit of 10,000 series takes seconds, an answer much less: after new bins only a part of the
series is fitted anew, in turn, and the others keep coefficients and past errors of at most six
hours ago while their features are always of now.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from forecasting.series_source import Floats
from forecasting.tiers.level_grid import GRID, at_levels
from forecasting.tiers.past_errors import row_groups
from forecasting.tiers.records import Records
from forecasting.tiers.ridge_features import (
    OWN,
    SHARED,
    StepGroup,
    compress,
    expand,
    hour_steps,
    level_scale,
    seasonal_tables,
    shared_features,
    step_groups,
)
from forecasting.tiers.ridge_solve import StepFit, fit_steps, least_bins
from forecasting.tiers.tier import Tier

PREPARED_STEPS: Final = 36
"""Steps that are fitted in ``update``: six hours of ten-minute bins."""

REFIT_SECONDS: Final = 6 * 3600
"""Within this time of data every series is fitted anew."""

MIN_REFIT: Final = 256
"""Series fitted anew at each update at the least: a small installation is always fresh."""

CHUNK_SERIES: Final = 64
"""Series fitted together: a table of 36 steps and 200 origins then is 2 MB."""

THREADS: Final = 2

MIN_KNOWN_LAST_DAY: Final = 0.5
"""Share of the last day's bins that must have been observed."""

MIN_ORIGINS: Final = 20
"""Fewest training origins: 1.2 days of ten-minute bins' windows after the features' first day."""


@dataclass(slots=True)
class _Fits:
    """Fitted rows of one group of steps; NaN where a row has no fit."""

    group: StepGroup
    tables: StepFit


class Ridge(Tier):
    """One small regression per series and step ahead, with its past errors.

    Steps up to 36 have coefficients of their own; later ones share those of the next whole hour,
    and beyond a day of the next six hours, each with the seasonal values of its own time.

    Args:
        records: Bins shared with other tiers; None keeps them for this tier alone.
        horizon: Steps that ``update`` prepares. A longer question fits what it lacks, and forgets.
    """

    model = "ridge/3"

    def __init__(self, records: Records | None = None, horizon: int = PREPARED_STEPS) -> None:
        super().__init__(records)
        self._prepared = horizon
        self._fits: list[_Fits] = []
        self._level: Floats = np.empty((0, 1))
        self._fitted_at: np.ndarray = np.empty(0, dtype=np.int64)
        self._turn = 0

    def _learn(self) -> None:
        records = self.records
        n_series = len(records.series)
        if not records.only_appended or len(self._level) != n_series:
            self._start_over()
            rows = np.arange(n_series)
        else:
            bins = max(1, REFIT_SECONDS // records.step_seconds)
            due = max(MIN_REFIT, -(-n_series * records.new_bins // bins))
            rows = np.unique((self._turn + np.arange(min(due, n_series))) % max(1, n_series))
            self._turn = (self._turn + due) % max(1, n_series)
        self._level[rows] = level_scale(records.filled[rows], records.day_steps)
        self._fitted_at[rows] = records.until_seconds
        for fits in self._fits:
            self._fit(fits, rows)

    def _start_over(self) -> None:
        n_series = len(self.records.series)
        self._level = np.ones((n_series, 1))
        self._fitted_at = np.zeros(n_series, dtype=np.int64)
        self._turn = 0
        self._fits = [
            _empty_fits(n_series, group)
            for group in step_groups(self._prepared, self.records.day_steps)
        ]

    def _fitted_until(self) -> int:
        return int(self._fitted_at.min()) if len(self._fitted_at) else 0

    def _fit(self, fits: _Fits, rows: np.ndarray) -> None:
        """Fit some rows anew, in place; rows that cannot be fitted get NaN."""
        records = self.records
        day_steps = records.day_steps
        fits.tables.constant[rows] = np.nan
        least = least_bins(fits.group, day_steps, MIN_ORIGINS)
        jobs = list(row_groups(records, least, CHUNK_SERIES, rows))

        def solve(job: tuple[np.ndarray, int]) -> None:
            part, bins = job
            z = compress(records.filled[part, -bins:], self._level[part])
            known = records.known[part, -bins:]
            made = fit_steps(z, known, fits.group, day_steps, records.step_seconds)
            for field in fields(StepFit):
                getattr(fits.tables, field.name)[part] = getattr(made, field.name)

        if len(jobs) < 2 * THREADS:
            for job in jobs:
                solve(job)
            return
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(solve, jobs))

    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        records = self.records
        result = np.full((len(records.series), horizon, len(levels)), np.nan)
        done = 0
        for group in step_groups(horizon, records.day_steps):
            fits = self._fits_of(group)
            last = min(horizon, int(group.steps[-1]))
            self._answer(result[:, done:last], np.arange(done + 1, last + 1), fits, levels)
            done = last
        stale = records.known[:, -records.day_steps :].mean(axis=1) < MIN_KNOWN_LAST_DAY
        result[stale] = np.nan
        return result

    def _fits_of(self, group: StepGroup) -> _Fits:
        """The prepared fits that hold the group's steps, or fresh ones that are not kept."""
        for fits in self._fits:
            first, last = int(fits.group.steps[0]), int(fits.group.steps[-1])
            if first <= group.steps[0] and group.steps[-1] <= last:
                return fits
        fresh = _empty_fits(len(self.records.series), group)
        self._fit(fresh, np.arange(len(self.records.series)))
        return fresh

    def _answer(self, out: Floats, steps: np.ndarray, fits: _Fits, levels: Floats) -> None:
        """Quantiles of consecutive steps from one group's fits, in place."""
        records = self.records
        day_steps = records.day_steps
        back = fits.group.days_back
        # Only bins that a feature looks at: the last day and an hour, and days before the steps.
        reach = min(records.filled.shape[1], (back + 2) * day_steps + hour_steps(day_steps))
        if reach < back * day_steps + hour_steps(day_steps) + 1:
            return
        level = self._level
        z = compress(records.filled[:, -reach:], level)
        now = np.array([reach - 1])
        shared = shared_features(z, now, day_steps)[:, 0]
        newest = shared[:, 0]
        at = reach - 1 + steps - back * day_steps
        own = [table[:, at] - newest[:, None] for table in seasonal_tables(z, day_steps)]
        knot = np.searchsorted(fits.group.steps, steps)
        tables = fits.tables
        mean = newest[:, None] + tables.constant[:, knot]
        mean += (tables.shared @ shared[:, :, None])[..., 0][:, knot]
        for j in range(OWN):
            mean += tables.own[:, knot, j] * own[j]
        record = compress(records.filled.max(axis=1, keepdims=True), level)
        np.clip(mean, 0.0, record, out=mean)
        errors = at_levels(tables.errors, levels)[:, knot]
        out[:] = expand(mean[:, :, None] + errors, level[:, :, None])


def _empty_fits(n_series: int, group: StepGroup) -> _Fits:
    n_steps = len(group.steps)

    def table(*shape: int) -> np.ndarray:
        return np.full((n_series, n_steps, *shape), np.nan, dtype=np.float32)

    return _Fits(group, StepFit(table(), table(SHARED), table(OWN), table(len(GRID))))
