"""The audit log of decisions: an SQLite file of this replica, merged by epoch when read together.

One row a transition (a domain changed its band, a device lost trust, leadership moved), never one
a tick. Rows are written by the tick's own thread in one transaction; a full disk is reported and
does not stop the loop. Rows that are too old or too many go again, a bounded step every ten seconds
in which there is something to write.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from wattpack.errors import InputError
from wattpack.live_view import LiveDecision
from wattpack.sqlite_retention import (
    TICK_BUSY_SECONDS,
    AgedTable,
    Retention,
    SqliteRetention,
    immediate,
    kept,
    prepare,
)
from wattpack.units import NS_PER_SECOND

TIDY_EVERY_NS = 10 * NS_PER_SECOND
KEPT_DAYS, KEPT_MEBIBYTES = 365.0, 256
DEFAULT_RETENTION = kept(KEPT_DAYS, KEPT_MEBIBYTES)
log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
  id TEXT PRIMARY KEY, wall_time_ns INTEGER NOT NULL, epoch INTEGER NOT NULL,
  domain TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS decisions_by_time ON decisions (wall_time_ns);
"""
_AGED = (AgedTable("decisions", "id", "wall_time_ns", float(NS_PER_SECOND)),)


class DecisionLog:
    """Appends decisions; ``:memory:`` for tests.

    Args:
        file: Where the database lies; created if missing.
        retention: How much of it is kept.

    Raises:
        InputError: if the file cannot be opened, or is something else.
    """

    def __init__(self, file: Path | str, retention: Retention = DEFAULT_RETENTION) -> None:
        try:
            self._database = sqlite3.connect(
                str(file), check_same_thread=False, timeout=TICK_BUSY_SECONDS, isolation_level=None
            )
            prepare(self._database)
            self._database.executescript(_SCHEMA)
            self._kept = SqliteRetention(self._database, str(file), _AGED, retention)
            self.size_bytes = self._kept.size_bytes()
        except sqlite3.Error as error:
            expected = "a decisions file that can be written"
            raise InputError("audit_file", expected, str(error), str(file)) from error
        self.failures = 0
        self._tidied_ns = 0

    def append(self, decisions: Sequence[LiveDecision]) -> None:
        """Keep the rows, all or none."""
        if not decisions:
            return
        rows = [(d.id, d.wall_time_ns, d.epoch, d.domain, d.kind, d.message) for d in decisions]
        try:
            with immediate(self._database):
                self._database.executemany(
                    "INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, ?)", rows
                )
        except sqlite3.Error as error:
            self.failures += len(rows)
            log.error("decisions not kept: %s", error)
        self._tidy(decisions[-1].wall_time_ns)

    def _tidy(self, wall_time_ns: int) -> None:
        """Let go of what is too old or too much, now and then."""
        if 0 <= wall_time_ns - self._tidied_ns < TIDY_EVERY_NS:
            return
        self._tidied_ns = wall_time_ns
        try:
            self._kept.step(wall_time_ns / NS_PER_SECOND)
            self.size_bytes = self._kept.size_bytes()
        except (sqlite3.Error, OSError) as error:
            log.warning("old decisions not deleted: %s", error)

    def newest(self, count: int) -> list[LiveDecision]:
        """The newest rows, newest first."""
        rows = self._database.execute(
            "SELECT * FROM decisions ORDER BY wall_time_ns DESC, id DESC LIMIT ?", (count,)
        )
        names = ("id", "wall_time_ns", "epoch", "domain", "kind", "message")
        return [LiveDecision(**dict(zip(names, row, strict=True))) for row in rows]

    def close(self) -> None:
        """Flush and close the file."""
        self._database.close()
