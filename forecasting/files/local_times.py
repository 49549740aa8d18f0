"""Times as people and programs write them, into Unix seconds.

A number is seconds; a text is RFC 3339. A time without a zone is refused unless a zone was stated,
and then the hour that comes twice in autumn is told apart by what came before it.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from typing import Final
from zoneinfo import ZoneInfo

from wattpack.errors import InputError

LATEST_SECONDS: Final = 253_402_300_799.0
"""End of the year 9999, the last that text can tell. Milliseconds of today lie beyond it."""

EXPECTED: Final = "seconds from 0 to 253402300799, or a time like 2026-11-23T18:00:00Z"


def zone_of(name: str) -> ZoneInfo:
    """A zone by its name in the tz database.

    Raises:
        InputError: for a name that it does not have.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InputError("zone", "a zone like Europe/Berlin", name) from error


class TimeReader:
    """Reads the times of one file, row by row.

    Args:
        zone: Of times that state none; None refuses them.

    Attributes:
        doubled: Times in an hour that came twice, resolved by the row before.
    """

    def __init__(self, zone: ZoneInfo | None = None) -> None:
        self._zone = zone
        self._last = -math.inf
        self.doubled = 0

    def seconds(self, value: object, field: str) -> float:
        """Unix seconds of a number, a text, a datetime or a date, which is its midnight.

        Raises:
            InputError: naming the field, for anything but a time from 1970 to 9999.
        """
        if isinstance(value, str):
            value = _parsed(value.strip(), field)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if isinstance(value, datetime):
            value = self._resolved(value, field)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(field, EXPECTED, value)
        if not 0 <= value <= LATEST_SECONDS:
            raise InputError(field, EXPECTED, value)
        self._last = float(value)
        return self._last

    def _resolved(self, moment: datetime, field: str) -> float:
        """Unix seconds of a time of day."""
        if moment.tzinfo is not None:
            return moment.timestamp()
        if self._zone is None:
            raise InputError(field, "a time with its zone, or --time-zone", str(moment))
        first, second = (
            moment.replace(tzinfo=self._zone, fold=fold).timestamp() for fold in (0, 1)
        )
        back = datetime.fromtimestamp(first, UTC).astimezone(self._zone).replace(tzinfo=None)
        if back != moment:
            raise InputError(field, f"a time that {self._zone.key} has had", str(moment))
        if second <= first:
            return first
        self.doubled += 1
        return first if first > self._last else second


def _parsed(text: str, field: str) -> float | datetime:
    """A number or a time of day."""
    try:
        # What Python reads beyond numbers (1_000, other digits, inf) no table means.
        if text[:1] in "0123456789.+-" and text.isascii() and "_" not in text:
            return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InputError(field, EXPECTED, text) from None
