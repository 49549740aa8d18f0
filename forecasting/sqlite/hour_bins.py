"""Bins of ten minutes that are old become bins of an hour: a sixth of the rows, years of history.

Forecasts read ten days; what is older serves questions about weeks and seasons.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import numpy as np

from forecasting.series_source import BIN_SECONDS, Floats
from wattpack.sqlite_retention import STEP_ROWS, AgedTable

HOUR_SECONDS: Final = 3600
BINS_AN_HOUR: Final = HOUR_SECONDS // BIN_SECONDS

FINE_SECONDS: Final = 30 * 86_400
"""Age at which bins are merged: three times what forecasts read, as long as all was kept before."""

AGED_HOURS: Final = AgedTable("hours", "id, hour", "hour", 1 / HOUR_SECONDS)

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS hours (
  id INTEGER NOT NULL, hour INTEGER NOT NULL, mean REAL NOT NULL, maximum REAL NOT NULL,
  n INTEGER NOT NULL, PRIMARY KEY (id, hour)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hours_by_time ON hours (hour);
"""

_OLDEST: Final = "SELECT id, bin, mean, maximum, n FROM bins WHERE bin < ? ORDER BY bin, id LIMIT ?"


def make_table(db: sqlite3.Connection) -> None:
    """Make the table where it is missing: files of earlier versions have none."""
    for statement in filter(str.strip, _SCHEMA.split(";")):
        db.execute(statement)


def has_table(db: sqlite3.Connection) -> bool:
    """Whether a file has hours; one that is only read may be of an earlier version."""
    found = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'hours'").fetchone()
    return found is not None


def merge_step(db: sqlite3.Connection, before_seconds: float) -> int:
    """Merge the oldest bins before a time, some at once; returns how many. In a transaction."""
    most = (int(before_seconds // HOUR_SECONDS) * BINS_AN_HOUR, STEP_ROWS)
    db.execute(
        f"INSERT INTO hours SELECT id, CAST(floor(bin / {BINS_AN_HOUR}.0) AS INTEGER) AS h,"
        f" sum(mean * n) / sum(n), max(maximum), sum(n) FROM ({_OLDEST}) GROUP BY id, h"
        " ON CONFLICT (id, hour) DO UPDATE SET"
        " mean = (mean * n + excluded.mean * excluded.n) / (n + excluded.n),"
        " maximum = max(maximum, excluded.maximum), n = n + excluded.n",
        most,
    )
    keys = _OLDEST.replace("id, bin, mean, maximum, n", "id, bin")
    return int(db.execute(f"DELETE FROM bins WHERE (id, bin) IN ({keys})", most).rowcount)


def hour_rows(db: sqlite3.Connection, series: int, start: int, end: int) -> Floats:
    """Merged bins of a series as bins of ten minutes: each hour's mean in each of its six.

    Args:
        db: The file.
        series: Id.
        start: Unix seconds.
        end: Unix seconds.

    Returns:
        Start, mean, maximum and weight, shape (n, 4), within the range.
    """
    rows = db.execute(
        "SELECT hour * ?, mean, maximum, n FROM hours WHERE id = ? AND hour >= ? AND hour < ?",
        (HOUR_SECONDS, series, start // HOUR_SECONDS, -(-end // HOUR_SECONDS)),
    ).fetchall()
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    spread = np.repeat(table, BINS_AN_HOUR, axis=0)
    spread[:, 0] += BIN_SECONDS * np.tile(np.arange(BINS_AN_HOUR), len(table))
    spread[:, 3] /= BINS_AN_HOUR
    inside: Floats = spread[(spread[:, 0] >= start) & (spread[:, 0] < end)]
    return inside
