"""What SQLite says of a history file, as errors of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from wattpack.errors import PermanentError, TransientError, WattpackError
from wattpack.sqlite_retention import immediate


@contextmanager
def transaction(db: sqlite3.Connection, file: str) -> Iterator[None]:
    """One write transaction: committed as a whole or rolled back."""
    try:
        with immediate(db):
            yield
    except sqlite3.Error as error:
        raise typed(error, file) from error


def typed(error: Exception, file: str) -> WattpackError:
    """A full disk or a busy file pass; a broken file or rows of another kind stay."""
    if isinstance(error, sqlite3.OperationalError):
        return TransientError(f"{file}: {error}")
    return PermanentError(f"{file}: not a readable history: {error}")
