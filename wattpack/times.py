"""Times as they stand in objects: RFC 3339 text, and the comparisons that validators need."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from wattpack.units import NS_PER_SECOND

LAST_TIME_SECONDS: Final = 253_370_764_800
"""The year 9999 begins: what is computed from a time must still be a time."""


def rfc3339(wall_time_ns: int) -> str:
    """Whole seconds in UTC, as metav1.Time prints them."""
    return datetime.fromtimestamp(wall_time_ns // NS_PER_SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(wall_time_ns: int) -> str:
    """Microseconds in UTC, as metav1.MicroTime prints them."""
    seconds, rest = divmod(wall_time_ns, NS_PER_SECOND)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> datetime:
    """The moment, with its zone.

    Raises:
        ValueError: if the text is no RFC 3339 time with a zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time needs a zone, got {text!r}")
    return moment
