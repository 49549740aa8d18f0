"""The newest bins of every series, kept gap-free, however they arrive.

Tiers that are given the same ``Records`` share one copy: a batch that one of them took in is not
taken in again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.clean_history import SPIKE_RATIO, clean, observed
from forecasting.series_source import DAY_SECONDS, Floats, History, SeriesId
from wattpack.errors import InputError

HISTORY_DAYS: Final = 10
"""Bins kept. Training window of every published figure; longer did not help the ridge."""


CHUNK_SERIES: Final = 1000
"""Series cleaned together, which bounds what that needs beside the table."""

SPARE_BINS: Final = 144
"""Bins appended in place before the table is moved: one move a day of ten-minute bins."""


class Records:
    """Bins of many series on one grid, at most ``days`` of them.

    Bins that follow what is known are appended in place, whether they come alone or at the end of a
    batch that repeats what is known. Only rows with a gap or a doubtful value there are cleaned
    anew; a long gap is then filled from the days before it, and once a day, when the table is
    moved, from those after it too.

    Attributes:
        series: Names, in the order of the rows.
        step_seconds: Width of a bin; 0 before the first batch.
        until_seconds: End of the newest bin, Unix time.
        version: Counts the batches taken in.
        new_bins: Bins that the last batch added at the end.
        only_appended: Whether the last batch changed nothing but that.
    """

    def __init__(self, days: int = HISTORY_DAYS) -> None:
        self.series: tuple[SeriesId, ...] = ()
        self.step_seconds = 0
        self.until_seconds = 0
        self.version = 0
        self.new_bins = 0
        self.only_appended = False
        self._days = days
        self._table = np.empty((0, 0), dtype=np.float64)
        self._was_known = np.empty((0, 0), dtype=np.bool_)
        self._end = 0
        self._length = np.empty(0, dtype=np.intp)
        # Readings that are not believed yet: row -> (column, value). At most one a row.
        self._doubted: dict[int, tuple[int, float]] = {}
        self._newest_batch: History | None = None

    @property
    def day_steps(self) -> int:
        """Bins in a day; 1 before the first batch."""
        return max(1, DAY_SECONDS // self.step_seconds) if self.step_seconds else 1

    @property
    def filled(self) -> Floats:
        """Without gaps (see ``clean_history``), 0 before the first value, (n_series, n_bins)."""
        return self._table[:, self._start : self._end]

    @property
    def known(self) -> np.ndarray:
        """Where a usable value was observed, shape of ``filled``."""
        return self._was_known[:, self._start : self._end]

    @property
    def length(self) -> np.ndarray:
        """Bins of the stretch that counts as history, at most those kept, shape (n_series,)."""
        result: np.ndarray = np.minimum(self._length, self._end - self._start)
        return result

    @property
    def _start(self) -> int:
        return max(0, self._end - self._days * self.day_steps)

    def absorb(self, batch: History) -> None:
        """Take the batch's bins in; where it does not reach, what was known stays.

        Raises:
            InputError: it ends before the batch before it, or its bins have another width.
        """
        if batch is self._newest_batch:
            return
        self._refuse(batch)
        series = tuple(batch.series)
        values = np.asarray(batch.values, dtype=np.float64)
        added = self._bins_since(batch)
        self.only_appended = self._only_adds(series, values, added)
        if self.only_appended and self._end + added <= self._table.shape[1]:
            self._append(values[:, values.shape[1] - added :])
        else:
            self._rebuild(series, values, added, batch.step_seconds)
        self.new_bins = added
        self.series, self.step_seconds = series, batch.step_seconds
        self.until_seconds = batch.until_seconds
        self.version += 1
        self._newest_batch = batch

    def _refuse(self, batch: History) -> None:
        if self.version and batch.step_seconds != self.step_seconds:
            raise InputError("stepSeconds", f"{self.step_seconds} s", batch.step_seconds)
        if not 0 < batch.step_seconds <= DAY_SECONDS:
            raise InputError("stepSeconds", f"1 to {DAY_SECONDS} s", batch.step_seconds)
        if self._bins_since(batch) < 0:
            expected = f"whole bins after {self.until_seconds}"
            raise InputError("untilSeconds", expected, batch.until_seconds)

    def _bins_since(self, batch: History) -> int:
        """Bins by which the batch ends after what is known; -1 where that is no whole number."""
        if not self.version:
            return int(batch.values.shape[1])
        later = batch.until_seconds - self.until_seconds
        return -1 if later % batch.step_seconds else later // batch.step_seconds

    def _only_adds(self, series: tuple[SeriesId, ...], values: Floats, added: int) -> bool:
        """Whether the series are the same and the batch repeats what is known of them."""
        repeated = values.shape[1] - added
        if not self.version or series != self.series or repeated < 0:
            return False
        kept = self._end - self._start
        if repeated > kept and kept < self._days * self.day_steps:
            return False
        width = min(repeated, kept)
        if not width:
            return True
        again = values[:, repeated - width : repeated]
        sure = self._was_known[:, self._end - width : self._end]
        if not np.array_equal(observed(again), sure):
            return False
        return bool(np.all((again == self._table[:, self._end - width : self._end]) | ~sure))

    def _append(self, values: Floats) -> None:
        """New bins at the end, in place."""
        added = values.shape[1]
        if not added:
            return
        first, self._end = self._end, self._end + added
        record = np.max(self._table[:, max(0, first - self._days * self.day_steps) : first], axis=1)
        usable = observed(values)
        self._table[:, first : self._end] = values
        self._was_known[:, first : self._end] = usable
        self._length += np.where(self._length > 0, added, 0)
        plain = usable.all(axis=1) & self._was_known[:, first - 1] & (self._length > 0)
        plain &= values.max(axis=1) <= SPIKE_RATIO * record
        rows = np.nonzero(~plain)[0]
        if len(rows):
            self._clean(rows, self._raw(rows))

    def _raw(self, rows: np.ndarray) -> Floats:
        """Kept bins as they were read, NaN where nothing usable was, shape (n_rows, n_bins)."""
        raw = np.where(self.known[rows], self.filled[rows], np.nan)
        for place, row in enumerate(rows.tolist()):
            column, value = self._doubted.get(row, (-1, 0.0))
            if column >= self._start:
                raw[place, column - self._start] = value
        return raw

    def _clean(self, rows: np.ndarray, raw: Floats) -> None:
        """Fill some rows of the kept bins anew, in place."""
        cleaned = clean(raw, self.day_steps)
        self._table[rows, self._start : self._end] = cleaned.filled
        self._was_known[rows, self._start : self._end] = cleaned.known
        self._length[rows] = np.where(cleaned.known.any(axis=1), cleaned.length, 0)
        for row in rows.tolist():
            self._doubted.pop(row, None)
        for place, column in np.argwhere(observed(raw) & ~cleaned.known).tolist():
            doubted = self._start + int(column), float(raw[place, column])
            self._doubted[int(rows[place])] = doubted

    def _rebuild(
        self, series: tuple[SeriesId, ...], values: Floats, added: int, step_seconds: int
    ) -> None:
        """A new table from what was known and what came."""
        day_steps = max(1, DAY_SECONDS // step_seconds)
        before = self._end - self._start if self.version else 0
        width = min(self._days * day_steps, max(before + added, values.shape[1]))
        raw = np.full((len(series), width), np.nan)
        kept = min(before, width - added)
        if kept > 0:
            self._carry_over(raw[:, width - added - kept : width - added], series)
        came = min(width, values.shape[1])
        raw[:, width - came :] = values[:, -came:]
        spare = min(SPARE_BINS, day_steps)
        self.step_seconds, self._end, self._doubted = step_seconds, width, {}
        self._table = np.empty((len(series), width + spare))
        self._was_known = np.zeros((len(series), width + spare), dtype=np.bool_)
        self._length = np.zeros(len(series), dtype=np.intp)
        for rows in np.array_split(np.arange(len(series)), -(-len(series) // CHUNK_SERIES)):
            self._clean(rows, raw[rows])

    def _carry_over(self, out: Floats, series: tuple[SeriesId, ...]) -> None:
        """The newest known bins of series that stay, in place."""
        rows = {name: i for i, name in enumerate(self.series)}
        stay = np.array([rows.get(name, -1) for name in series], dtype=np.intp)
        there = stay >= 0
        out[there] = self._raw(stay[there])[:, -out.shape[1] :]
