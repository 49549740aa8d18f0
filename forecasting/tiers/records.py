"""The newest bins of every series, kept gap-free, however they arrive.

Tiers that are given the same ``Records`` share one copy: a batch that one of them took in is not
taken in again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.clean_history import clean, observed
from forecasting.series_source import Floats, History, SeriesId
from wattpack.errors import InputError

HISTORY_DAYS: Final = 10
"""Bins kept. Training window of every published figure; longer did not help the ridge."""

DAY_SECONDS: Final = 86400

SPARE_BINS: Final = 144
"""Bins appended in place before the table is moved: one move a day of ten-minute bins."""


class Records:
    """Bins of many series on one grid, at most ``days`` of them.

    Attributes:
        series: Names, in the order of the rows.
        step_seconds: Width of a bin; 0 before the first batch.
        until_seconds: End of the newest bin, Unix time.
        version: Counts the batches taken in.
        new_bins: Bins that the last batch added at the end; all of them when rows changed.
        same_rows: Whether the last batch had the series of the one before it, and added bins only.
    """

    def __init__(self, days: int = HISTORY_DAYS) -> None:
        self.series: tuple[SeriesId, ...] = ()
        self.step_seconds = 0
        self.until_seconds = 0
        self.version = 0
        self.new_bins = 0
        self.same_rows = False
        self._days = days
        self._table = np.empty((0, 0), dtype=np.float64)
        self._was_known = np.empty((0, 0), dtype=bool)
        self._end = 0
        self._length = np.empty(0, dtype=np.intp)
        self._newest_batch: History | None = None

    @property
    def day_steps(self) -> int:
        """Bins in a day; 1 before the first batch."""
        return max(1, DAY_SECONDS // self.step_seconds) if self.step_seconds else 1

    @property
    def filled(self) -> Floats:
        """Gaps interpolated, ends held, 0 before the first value, shape (n_series, n_bins)."""
        start = max(0, self._end - self._days * self.day_steps)
        return self._table[:, start : self._end]

    @property
    def known(self) -> np.ndarray:
        """Where a usable value was observed, shape of ``filled``."""
        start = max(0, self._end - self._days * self.day_steps)
        return self._was_known[:, start : self._end]

    @property
    def length(self) -> np.ndarray:
        """Bins since the first observation, at most those kept, shape (n_series,)."""
        result: np.ndarray = np.minimum(self._length, self.filled.shape[1])
        return result

    def absorb(self, batch: History) -> None:
        """Take the batch's bins in; where it does not reach, what was known stays.

        Raises:
            InputError: it ends before the batch before it, or its bins have another width.
        """
        if batch is self._newest_batch:
            return
        self._refuse(batch)
        series = tuple(batch.series)
        added = self._bins_since(batch)
        short = batch.values.shape[1] == added and not self._starts_over(series)
        if short and self._end + added <= self._table.shape[1]:
            self._append(np.asarray(batch.values, dtype=np.float64))
        else:
            self._rebuild(batch, series, added)
        self.same_rows = bool(short)
        self.new_bins = added if short else self.filled.shape[1]
        self.series, self.step_seconds = series, batch.step_seconds
        self.until_seconds = batch.until_seconds
        self.version += 1
        self._newest_batch = batch

    def _refuse(self, batch: History) -> None:
        if self.step_seconds and batch.step_seconds != self.step_seconds:
            raise InputError("stepSeconds", f"{self.step_seconds} s", batch.step_seconds)
        if batch.step_seconds <= 0 or batch.step_seconds > DAY_SECONDS:
            raise InputError("stepSeconds", "between 1 and 86400 s", batch.step_seconds)
        if self.version and self._bins_since(batch) < 0:
            raise InputError(
                "untilSeconds", f"whole bins after {self.until_seconds}", batch.until_seconds
            )

    def _bins_since(self, batch: History) -> int:
        """Bins by which the batch ends after what is known; -1 where that is no whole number."""
        if not self.version:
            return int(batch.values.shape[1])
        later = batch.until_seconds - self.until_seconds
        return -1 if later % batch.step_seconds else later // batch.step_seconds

    def _starts_over(self, series: tuple[SeriesId, ...]) -> bool:
        return self.version == 0 or series != self.series

    def _append(self, values: Floats) -> None:
        """New bins at the end, in place: values as observed, gaps held, ended gaps interpolated."""
        for column in values.T:
            usable = observed(column)
            row = self._end
            held = self._table[:, row - 1]
            self._table[:, row] = np.where(usable, column, held)
            self._was_known[:, row] = usable
            self._end += 1
            self._length += self._length > 0
            self._length[usable & (self._length == 0)] = 1
            for i in np.nonzero(usable & ~self._was_known[:, row - 1] & (self._length > 1))[0]:
                self._interpolate(int(i), row)

    def _interpolate(self, i: int, row: int) -> None:
        """The gap that ends at bin ``row`` becomes a line between its neighbours."""
        known = np.nonzero(self._was_known[i, :row])[0]
        if len(known):
            before = int(known[-1])
            line = np.linspace(self._table[i, before], self._table[i, row], row - before + 1)
            self._table[i, before:row] = line[:-1]

    def _rebuild(self, batch: History, series: tuple[SeriesId, ...], added: int) -> None:
        """A new table from what was known and what came, cleaned as a whole."""
        day_steps = max(1, DAY_SECONDS // batch.step_seconds)
        before = self.filled.shape[1] if self.version else 0
        width = min(self._days * day_steps, max(before + added, batch.values.shape[1]))
        raw = np.full((len(series), width), np.nan)
        kept = min(before, width - added)
        if kept > 0:
            self._carry_over(raw, series, added, kept)
        came = min(width, batch.values.shape[1])
        raw[:, width - came :] = np.asarray(batch.values, dtype=np.float64)[:, -came:]
        cleaned = clean(raw, day_steps)
        spare = min(SPARE_BINS, day_steps)
        self._table = np.empty((len(series), width + spare))
        self._table[:, :width] = cleaned.filled
        self._was_known = np.zeros((len(series), width + spare), dtype=bool)
        self._was_known[:, :width] = cleaned.known
        self._length = np.where(cleaned.known.any(axis=1), cleaned.length, 0).astype(np.intp)
        self._end = width

    def _carry_over(self, raw: Floats, series: tuple[SeriesId, ...], added: int, kept: int) -> None:
        """What was known of series that stay, moved back by the added bins; in place."""
        end = raw.shape[1] - added
        old = np.where(self.known, self.filled, np.nan)[:, -kept:]
        if series == self.series:
            raw[:, end - kept : end] = old
            return
        rows = {name: i for i, name in enumerate(self.series)}
        for i, name in enumerate(series):
            if name in rows:
                raw[i, end - kept : end] = old[rows[name]]
