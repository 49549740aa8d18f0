"""The audit log of decisions: an SQLite file of this replica, merged by epoch when read together.

One row a transition (a domain changed its band, a device lost trust, leadership moved), never one
a tick. Rows are written by the tick's own thread in one transaction; a full disk is reported and
does not stop the loop.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from wattpack.errors import InputError
from wattpack.live_view import LiveDecision

#: The tick writes here: whoever holds the file for longer costs rows, never leases.
BUSY_SECONDS = 0.1
log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
  id TEXT PRIMARY KEY, wall_time_ns INTEGER NOT NULL, epoch INTEGER NOT NULL,
  domain TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS decisions_by_time ON decisions (wall_time_ns);
"""


class DecisionLog:
    """Appends decisions; ``:memory:`` for tests.

    Args:
        file: Where the database lies; created if missing.

    Raises:
        InputError: if the file cannot be opened, or is something else.
    """

    def __init__(self, file: Path | str) -> None:
        try:
            self._database = sqlite3.connect(
                str(file), check_same_thread=False, timeout=BUSY_SECONDS
            )
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            expected = "a decisions file that can be written"
            raise InputError("audit_file", expected, str(error), str(file)) from error
        self.failures = 0

    def append(self, decisions: Sequence[LiveDecision]) -> None:
        """Keep the rows, all or none."""
        if not decisions:
            return
        rows = [(d.id, d.wall_time_ns, d.epoch, d.domain, d.kind, d.message) for d in decisions]
        try:
            with self._database:
                self._database.executemany(
                    "INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, ?)", rows
                )
        except sqlite3.Error as error:
            self.failures += len(rows)
            log.error("decisions not kept: %s", error)

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
