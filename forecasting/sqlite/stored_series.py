"""What a history file holds, series by series."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from forecasting.series_source import BIN_SECONDS
from forecasting.sqlite.hour_bins import HOUR_SECONDS, has_table


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """One series of a file.

    Attributes:
        name: Of the series.
        since_seconds: Start of its oldest bin, Unix time.
        until_seconds: End of its newest bin, or its newest sample.
        fine_bins: Bins of ten minutes.
        hours: Bins of an hour, merged from those.
    """

    name: str
    since_seconds: float
    until_seconds: float
    fine_bins: int
    hours: int


def stored_series(db: sqlite3.Connection) -> list[StoredSeries]:
    """Every series that has values, by name."""
    parts = [
        ("bins", "bin * :w", "(bin + 1) * :w", 1, 0),
        ("samples", "time_s", "time_s", 0, 0),
    ]
    if has_table(db):
        parts.append(("hours", "hour * :h", "(hour + 1) * :h", 0, 1))
    every = " UNION ALL ".join(
        f"SELECT id, {since} AS since, {until} AS until, {fine} AS fine, {hours} AS hours"
        f" FROM {table}"
        for table, since, until, fine, hours in parts
    )
    rows = db.execute(
        f"SELECT name, min(since), max(until), sum(fine), sum(hours) FROM ({every})"
        " JOIN series USING (id) GROUP BY id ORDER BY name",
        {"w": BIN_SECONDS, "h": HOUR_SECONDS},
    ).fetchall()
    return [
        StoredSeries(str(name), float(since), float(until), int(fine), int(hours))
        for name, since, until, fine, hours in rows
    ]
