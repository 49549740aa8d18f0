"""Keeps an SQLite file of time-stamped rows within an age and a size, a small step at a time.

Rows go oldest first; freed pages go back to the file system a few at a time; the write-ahead log
is checkpointed without waiting for anybody. Each step costs milliseconds, so that a thread with a
rhythm may call it. Time is an argument: a row with a wrong time stamp cannot expire the others.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wattpack.units import require_number

STEP_ROWS: Final = 4000
"""Rows deleted in one step: a few milliseconds, and far more than a step's worth of new ones."""

STEP_PAGES: Final = 512
"""Pages handed back in one step: 2 MiB of a file with pages of 4 KiB."""

TICK_BUSY_SECONDS: Final = 0.1
"""A tick that writes waits no longer: whoever holds the file costs rows, never leases."""

SMALLEST_BYTES: Final = 1 << 20

#: Shares of the size bound. The rest is what is written between two steps.
LIVE_SHARE: Final = 0.6
LOG_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept.

    Attributes:
        age_seconds: Older rows go.
        max_bytes: Of the file and its write-ahead log; beyond it the oldest rows go.
    """

    age_seconds: float
    max_bytes: int

    def __post_init__(self) -> None:
        require_number("age_seconds", self.age_seconds, exclusive_minimum=0, unit="s")
        require_number("max_bytes", self.max_bytes, minimum=SMALLEST_BYTES, unit="bytes")


def kept(days: float, mebibytes: int) -> Retention:
    """The retention that settings name."""
    return Retention(age_seconds=days * 86400, max_bytes=mebibytes << 20)


@dataclass(frozen=True, slots=True)
class AgedTable:
    """A table whose rows have a time; an index on it makes each step cheap.

    Attributes:
        name: Of the table.
        key: Columns of its key, as SQL lists them.
        time: Column of the time.
        units_per_second: 1e9 for nanoseconds, 1/600 for bins of ten minutes.
    """

    name: str
    key: str
    time: str
    units_per_second: float


class SqliteRetention:
    """The steps.

    Args:
        database: In autocommit mode, prepared by ``prepare``.
        file: Its path; ``:memory:`` has no log.
        tables: From the one whose rows go first.
        retention: What is kept.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        file: str,
        tables: Sequence[AgedTable],
        retention: Retention,
    ) -> None:
        self._database, self._file = database, file
        self._tables, self._retention = tables, retention
        (self._page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        log_bytes = int(retention.max_bytes * LOG_SHARE)
        database.execute(f"PRAGMA journal_size_limit={log_bytes}")
        # Half of it: the log is started anew only after a checkpoint that reached its end.
        pages = max(1, log_bytes // 2 // int(self._page_bytes))
        database.execute(f"PRAGMA wal_autocheckpoint={pages}")

    def step(self, now_seconds: float) -> int:
        """One bounded step; returns the rows deleted.

        Args:
            now_seconds: Unix time.

        Raises:
            sqlite3.Error: if another writer holds the file, or the disk is full.
        """
        deleted = 0
        with immediate(self._database):
            for table in self._tables:
                edge = (now_seconds - self._retention.age_seconds) * table.units_per_second
                where = f"WHERE {table.time} < ? "
                deleted += self._delete(table, where, (edge,), STEP_ROWS - deleted)
            if not deleted and self._live_bytes() > self._retention.max_bytes * LIVE_SHARE:
                for table in self._tables:
                    deleted += self._delete(table, "", (), STEP_ROWS - deleted)
        # A pragma returns a row a page and works only as far as they are fetched.
        self._database.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()
        self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return deleted

    def size_bytes(self) -> int:
        """Of the file and its write-ahead log."""
        (pages,) = self._database.execute("PRAGMA page_count").fetchone()
        log = f"{self._file}-wal"
        return int(pages) * int(self._page_bytes) + (
            os.path.getsize(log) if os.path.exists(log) else 0
        )

    def _live_bytes(self) -> int:
        (pages,) = self._database.execute("PRAGMA page_count").fetchone()
        (free,) = self._database.execute("PRAGMA freelist_count").fetchone()
        return (int(pages) - int(free)) * int(self._page_bytes)

    def _delete(self, table: AgedTable, where: str, values: tuple[float, ...], most: int) -> int:
        oldest = f"SELECT {table.key} FROM {table.name} {where}ORDER BY {table.time} LIMIT ?"
        statement = f"DELETE FROM {table.name} WHERE ({table.key}) IN ({oldest})"
        return int(self._database.execute(statement, (*values, most)).rowcount) if most else 0


def prepare(database: sqlite3.Connection) -> None:
    """Write-ahead log, and pages that can be handed back; before the first table is made.

    A file that was made without it keeps its size and uses freed pages again.
    """
    database.execute("PRAGMA auto_vacuum=INCREMENTAL")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")


class immediate:  # noqa: N801 - reads as a statement
    """A write transaction of an autocommit connection: whole, or not at all."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._database.execute("COMMIT")
        finally:
            # A commit that failed (a full disk) leaves the transaction open.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
