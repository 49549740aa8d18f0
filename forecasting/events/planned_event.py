"""One planned event: what it is called, when it is, and what it does to a series."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final
from zoneinfo import ZoneInfo

from forecasting.clean_history import LARGEST
from wattpack.api.demand_forecast import ForecastEvent
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

MOST_FACTOR: Final = 20.0
"""A forecast above 20 times the record is cut and flagged, so a larger factor cannot be meant."""

MOST_DURATION_SECONDS: Final = 31 * 86400
MAX_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """A span of time in which a series is not what its history says.

    The effect is ``value * factor + added``, then at least ``at_least``, then at most ``at_most``.
    With neither factor nor addition nor bound it is learned from earlier events of the same name.

    Attributes:
        name: Events of one name are of one kind.
        start_seconds: Unix time.
        end_seconds: Unix time, above the start.
        series: Patterns of series' names (``*`` and ``?``) that it concerns; empty: all.
        factors: What it multiplies by, rising; several when learned from several events.
        added: In the series' unit.
        at_least: For example a reservation that is drawn whether used or not; NaN for none.
        at_most: For example a quota; wins over every ``at_least``; NaN for none.
    """

    name: str
    start_seconds: float
    end_seconds: float
    series: tuple[str, ...] = ()
    factors: tuple[float, ...] = ()
    added: float = 0.0
    at_least: float = math.nan
    at_most: float = math.nan

    @property
    def is_to_be_learned(self) -> bool:
        """Whether nobody said what it does."""
        bounds = math.isfinite(self.at_least) or math.isfinite(self.at_most)
        return not (self.factors or self.added or bounds)

    def concerns(self, series: str) -> bool:
        """Whether the series is one of its own."""
        return not self.series or any(fnmatchcase(series, pattern) for pattern in self.series)


def planned_event(
    event: ForecastEvent, series: tuple[str, ...] = (), field: str = "event"
) -> PlannedEvent:
    """The checked event.

    Args:
        event: As people write it.
        series: Patterns of the series that it concerns.
        field: What errors call it.

    Raises:
        InputError: naming the field, for a time that does not exist or is not clear, an end before
            the start, an effect that contradicts itself.
    """
    start = instant(event.start, event.time_zone, f"{field}.start")
    end = instant(event.end, event.time_zone, f"{field}.end")
    if not start < end <= start + MOST_DURATION_SECONDS:
        raise InputError(f"{field}.end", "after the start, by at most 31 days", event.end)
    factors = () if event.factor is None else (
        require_number(f"{field}.factor", event.factor, minimum=0, maximum=MOST_FACTOR),
    )  # fmt: skip
    at_least, at_most = (
        math.nan if bound is None else require_number(name, bound, minimum=0, maximum=LARGEST)
        for name, bound in (
            (f"{field}.atLeast", event.at_least), (f"{field}.atMost", event.at_most),
        )
    )  # fmt: skip
    if at_least > at_most:
        raise InputError(f"{field}.atLeast", "at most atMost", event.at_least)
    added = 0.0 if event.added is None else event.added
    require_number(f"{field}.added", added, minimum=-LARGEST, maximum=LARGEST)
    return PlannedEvent(event.name, start, end, series, factors, added, at_least, at_most)


def events_of_spec(events: Iterable[ForecastEvent], source: str = "") -> tuple[PlannedEvent, ...]:
    """The events of one object, all about its own series.

    Raises:
        InputError: naming the first field that cannot be used; none of them counts then.
    """
    with read_from(source):
        return tuple(
            planned_event(event, field=f"spec.events[{i}]") for i, event in enumerate(events)
        )


def instant(text: str, zone: str | None, field: str) -> float:
    """Unix time of RFC 3339 text, or of a local time in a zone.

    Raises:
        InputError: a local time without zone, one that the clock leaves out or shows twice.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        expected = "a time such as 2026-11-27T09:00:00+01:00"
        raise InputError(field, expected, text) from error
    if moment.tzinfo is not None:
        return moment.timestamp()
    if zone is None:
        raise InputError(field, "an offset (…Z, …+01:00), or a timeZone beside it", text)
    return _local_instant(moment, _zone(zone, field), text, field)


def _zone(name: str, field: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    # A folder, an absolute path and an unknown key each raise another one.
    except (ValueError, OSError, KeyError) as error:
        place = field.rpartition(".")[0]
        wanted = "an IANA time zone such as Europe/Berlin"
        raise InputError(f"{place}.timeZone", wanted, name) from error


def _local_instant(moment: datetime, zone: ZoneInfo, text: str, field: str) -> float:
    first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first.timestamp()
    # The two readings differ at both changes of the clock; only a time that exists comes back.
    back = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
    told = "shows twice" if back == moment else "leaves out"
    offset = first.utcoffset() or timedelta(0)
    raise InputError(field, f"an offset, since the clock {told} this time (offset {offset})", text)
