"""An append-only history of named series in one SQLite file.

New values are kept as they come and rolled up into ten-minute bins (mean, maximum, count) when the
next bin begins; bins of a month ago are merged into hours (``hour_bins``). A batch is one
transaction in write-ahead mode: after ``kill -9`` it is there as a whole or not at all.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import quote

import numpy as np

from forecasting.series_source import BIN_SECONDS, Floats, SeriesId, bin_count
from forecasting.sqlite.history_errors import transaction, typed
from forecasting.sqlite.hour_bins import (
    AGED_HOURS,
    FINE_SECONDS,
    has_table,
    hour_rows,
    make_table,
    merge_step,
)
from forecasting.sqlite.stored_series import StoredSeries, stored_series
from wattpack.errors import InputError
from wattpack.sqlite_retention import (
    AgedTable,
    Retention,
    SqliteRetention,
    immediate,
    kept,
    prepare,
)

SCHEMA_VERSION: Final = 1
MAX_NAME: Final = 4096
LATEST_SECONDS: Final = 253_402_300_799.0
"""End of the year 9999; beyond it lie milliseconds, and what no integer of SQLite holds."""
_SCHEMA: Final = """
CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE samples (id INTEGER NOT NULL, time_s REAL NOT NULL, value REAL NOT NULL);
CREATE INDEX samples_by_series ON samples (id, time_s);
CREATE INDEX samples_by_time ON samples (time_s);
CREATE TABLE bins (
  id INTEGER NOT NULL, bin INTEGER NOT NULL, mean REAL NOT NULL, maximum REAL NOT NULL,
  n INTEGER NOT NULL, PRIMARY KEY (id, bin)
) WITHOUT ROWID;
"""

KEPT_DAYS: Final = 30.0
KEPT_MEBIBYTES: Final = 512
DEFAULT_RETENTION: Final = kept(KEPT_DAYS, KEPT_MEBIBYTES)
"""Three times the ten days that forecasts read, as bins of ten minutes: 1 MB a month and series."""

_AGED: Final = (
    AGED_HOURS,
    AgedTable("bins", "id, bin", "bin", 1 / BIN_SECONDS),
    AgedTable("samples", "rowid", "time_s", 1.0),
)

_NO_FILE: Final = "a file that is there (a controller writes one, or `wattpack history import`)"

Sample = tuple[float, str, float]
"""Unix time in seconds, series name, value."""


class HistoryStore:
    """A ``SeriesSource`` over a file that processes append to.

    Args:
        file: The database; made if missing. ``:memory:`` keeps it in memory.
        busy_seconds: How long to wait for another writer.
        read_only: Refuse to write; the file has to exist.
        retention: What ``compact`` keeps.

    Raises:
        InputError: if the file is no history of this version.
    """

    def __init__(
        self,
        file: Path | str,
        busy_seconds: float = 5.0,
        read_only: bool = False,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        self._file = str(file)
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._newest_bin = -(2**62)
        if read_only and not Path(self._file).exists():
            raise InputError("history", _NO_FILE, self._file)
        target = f"file:{quote(self._file)}?mode=ro" if read_only else self._file
        try:
            self._db = sqlite3.connect(
                target,
                timeout=busy_seconds,
                check_same_thread=False,
                uri=read_only,
                isolation_level=None,
            )
        except sqlite3.Error as error:
            raise InputError(
                "history", "a readable database file", str(error), self._file
            ) from error
        try:
            self._prepare(read_only)
            self._kept = SqliteRetention(self._db, self._file, _AGED, retention)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise InputError("history", "a wattpack history", str(error), self._file) from error
        except InputError:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        """The open store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._db.close()

    def _prepare(self, read_only: bool) -> None:
        """Make the tables in an empty file; refuse a foreign one."""
        if not read_only:
            prepare(self._db)
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and tables == 0 and not read_only:
            script = f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version={SCHEMA_VERSION};COMMIT;"
            try:
                self._db.executescript(script)
            except sqlite3.OperationalError:
                # Another process made the tables between our look and our write.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise InputError("user_version", str(SCHEMA_VERSION), version, self._file)
        if not read_only:
            self._db.execute("CREATE INDEX IF NOT EXISTS bins_by_time ON bins (bin)")
            make_table(self._db)
        self._has_hours = has_table(self._db)

    def append(self, samples: Iterable[Sample]) -> int:
        """Store a batch, all or nothing; returns how many.

        When the batch enters a new bin, finished ones are rolled up with it. Nothing is deleted
        here: a sample with a wrong time stamp must not be able to expire the history.

        Raises:
            InputError: for an empty name, a time or a value that is not finite.
            TransientError: if another writer holds the file too long.
        """
        rows = [self._checked(sample) for sample in samples]
        if not rows:
            return 0
        with self._lock, transaction(self._db, self._file):
            ids = self._series_ids({name for _, name, _ in rows})
            self._db.executemany(
                "INSERT INTO samples VALUES (?, ?, ?)", [(ids[name], t, v) for t, name, v in rows]
            )
            newest = math.floor(max(t for t, _, _ in rows) / BIN_SECONDS)
            if newest > self._newest_bin:
                self._roll_up(newest * BIN_SECONDS)
            self._ids.update(ids)
        self._newest_bin = max(self._newest_bin, newest)
        return len(rows)

    def append_bins(self, name: str, start_seconds: int, means: Floats, maxima: Floats) -> None:
        """Store ready bins of one series (preloading a history); NaN bins are left out.

        Args:
            name: The series.
            start_seconds: Start of the first bin, a multiple of 600 s.
            means: Shape (n_bins,).
            maxima: Shape (n_bins,).
        """
        self.append_rows(start_seconds, {name: means}, {name: maxima})

    def append_rows(
        self, start_seconds: int, means: Mapping[str, Floats], maxima: Mapping[str, Floats]
    ) -> None:
        """Store ready bins of several series, all or nothing; NaN bins are left out.

        Args:
            start_seconds: Start of the first bin, a multiple of 600 s.
            means: By series, each of shape (n_bins,).
            maxima: The same of the highest samples.

        Raises:
            InputError: for rows of different shapes, infinite values or another grid.
            TransientError: if another writer holds the file too long.
        """
        for name, row in means.items():
            self._checked((start_seconds, name, 0.0))
            high = maxima.get(name, np.empty(0))
            if row.shape != high.shape or row.ndim != 1 or start_seconds % BIN_SECONDS:
                raise InputError(
                    "bins", "two equal rows on the 600 s grid", (row.shape, start_seconds), name
                )
            if np.any(np.isinf(row)) or np.any(np.isinf(high)):
                raise InputError("bins", "finite values or NaN", "infinite", name)
        first = start_seconds // BIN_SECONDS
        with self._lock, transaction(self._db, self._file):
            ids = self._series_ids(set(means))
            for name, row in means.items():
                known = np.nonzero(~(np.isnan(row) | np.isnan(maxima[name])))[0]
                bins = zip(known.tolist(), row[known].tolist(), maxima[name][known].tolist(),
                           strict=True)  # fmt: skip
                self._db.executemany(
                    "INSERT OR REPLACE INTO bins VALUES (?, ?, ?, ?, 1)",
                    [(ids[name], first + i, mean, high) for i, mean, high in bins],
                )
            self._ids.update(ids)

    def compact(self, now_seconds: float) -> int:
        """Roll finished bins up, and one bounded step towards the retention; rows rolled up.

        Call it every half minute or so: a step deletes more than that adds.

        Args:
            now_seconds: Unix time; the bin that contains it is left alone.

        Raises:
            TransientError: if another writer holds the file too long, or the disk is full.
        """
        edge = math.floor(now_seconds / BIN_SECONDS) * BIN_SECONDS
        with self._lock:
            with transaction(self._db, self._file):
                rolled = self._roll_up(edge)
                merge_step(self._db, now_seconds - FINE_SECONDS)
            try:
                self._kept.step(now_seconds)
            except sqlite3.Error as error:
                raise typed(error, self._file) from error
        return rolled

    def shrink(self, now_seconds: float) -> tuple[int, int]:
        """All steps at once, then the whole file written anew; bytes before and after.

        Minutes for a large file, and others wait: for a command, never for a process with a rhythm.

        Args:
            now_seconds: Unix time.

        Raises:
            TransientError: if somebody else holds the file, or the disk is full.
        """
        before = self.size_bytes()
        self.compact(now_seconds)
        with self._lock:
            try:
                left = 1
                while left:
                    with immediate(self._db):
                        left = merge_step(self._db, now_seconds - FINE_SECONDS)
                    left += self._kept.step(now_seconds)
                self._db.execute("VACUUM")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as error:
                raise typed(error, self._file) from error
        return before, self.size_bytes()

    def size_bytes(self) -> int:
        """Of the file and its write-ahead log."""
        with self._lock:
            return self._kept.size_bytes()

    def _roll_up(self, edge_seconds: int) -> int:
        """Move samples before the edge into bins; inside a transaction."""
        self._db.execute(
            "INSERT INTO bins SELECT id, CAST(floor(time_s / ?) AS INTEGER) AS b, avg(value),"
            " max(value), count(*) FROM samples WHERE time_s < ? GROUP BY id, b"
            " ON CONFLICT (id, bin) DO UPDATE SET"
            " mean = (mean * n + excluded.mean * excluded.n) / (n + excluded.n),"
            " maximum = max(maximum, excluded.maximum), n = n + excluded.n",
            (BIN_SECONDS, edge_seconds),
        )
        return int(
            self._db.execute("DELETE FROM samples WHERE time_s < ?", (edge_seconds,)).rowcount
        )

    def overview(self) -> list[StoredSeries]:
        """What is stored of each series, by name."""
        with self._lock:
            try:
                return stored_series(self._db)
            except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
                raise typed(error, self._file) from error

    def names(self) -> list[str]:
        """All series, sorted."""
        with self._lock:
            try:
                rows = self._db.execute("SELECT name FROM series ORDER BY name").fetchall()
            except sqlite3.Error as error:
                raise typed(error, self._file) from error
        return [name for (name,) in rows]

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """Bin means, rolled up or not; see ``SeriesSource``."""
        return self.fetch_statistic(series, start_seconds, end_seconds, step_seconds, "mean")

    def fetch_statistic(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int,
        statistic: Literal["mean", "maximum"],
    ) -> Floats:
        """Bin means or maxima, shape (n_series, n_bins)."""
        if step_seconds % BIN_SECONDS:
            raise InputError("stepSeconds", f"a multiple of {BIN_SECONDS} s", step_seconds)
        count = bin_count(start_seconds, end_seconds, step_seconds)
        result = np.full((len(series), count), np.nan)
        with self._lock:
            try:
                for i, name in enumerate(series):
                    result[i] = self._one(name, start_seconds, end_seconds, step_seconds, statistic)
            except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
                raise typed(error, self._file) from error
        return result

    def _one(self, name: str, start: int, end: int, step: int, statistic: str) -> Floats:
        """One row of an answer."""
        count = (end - start) // step
        found = self._db.execute("SELECT id FROM series WHERE name = ?", (name,)).fetchone()
        if found is None:
            return np.full(count, np.nan)
        rows = self._db.execute(
            "SELECT bin * :w, mean, maximum, n FROM bins"
            " WHERE id = :id AND bin >= :low AND bin < :high UNION ALL"
            " SELECT floor(time_s / :w) * :w AS b, avg(value), max(value), count(*) FROM samples"
            " WHERE id = :id AND time_s >= :start AND time_s < :end GROUP BY b",
            {"w": BIN_SECONDS, "id": found[0], "low": start // BIN_SECONDS,
             "high": end // BIN_SECONDS, "start": start, "end": end},
        ).fetchall()  # fmt: skip
        table = np.array(rows, dtype=np.float64).reshape(-1, 4)
        if self._has_hours:
            table = np.concatenate([hour_rows(self._db, found[0], start, end), table])
        if not len(table):
            return np.full(count, np.nan)
        place = ((table[:, 0] - start) // step).astype(np.intp)
        weight = np.bincount(place, table[:, 3], count)
        if statistic == "maximum":
            highest = np.full(count, -np.inf)
            np.maximum.at(highest, place, table[:, 2])
            return np.where(weight > 0, highest, np.nan)
        total = np.bincount(place, table[:, 1] * table[:, 3], count)
        result: Floats = np.divide(total, weight, out=np.full(count, np.nan), where=weight > 0)
        return result

    def _checked(self, sample: Sample) -> Sample:
        """A storable sample."""
        if not isinstance(sample, tuple) or len(sample) != 3:
            raise InputError("sample", "(time_s, name, value)", sample)
        time_s, name, value = sample
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
            raise InputError("sample.name", f"1 to {MAX_NAME} characters", name)
        for field, quantity in (("time_s", time_s), ("value", value)):
            usable = isinstance(quantity, (int, float)) and not isinstance(quantity, bool)
            if not usable or not math.isfinite(quantity):
                raise InputError(f"sample.{field}", "a finite number", quantity, name)
        if not 0 <= time_s <= LATEST_SECONDS:
            expected = f"Unix seconds from 0 to {LATEST_SECONDS:.0f}"
            raise InputError("sample.time_s", expected, time_s, name)
        return float(time_s), name, float(value)

    def _series_ids(self, names: set[str]) -> dict[str, int]:
        """Ids of series, made where missing; inside a transaction."""
        ids = {name: self._ids[name] for name in names if name in self._ids}
        for name in sorted(names - ids.keys()):
            self._db.execute("INSERT OR IGNORE INTO series (name) VALUES (?)", (name,))
            row = self._db.execute("SELECT id FROM series WHERE name = ?", (name,)).fetchone()
            ids[name] = int(row[0])
        return ids
