"""Which history a command reads: a SQLite file, the Prometheus query API, or a table file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from forecasting.app.unknown_series import names_of
from forecasting.files import TableSource, read_table
from forecasting.files.local_times import TimeReader, zone_of
from forecasting.prometheus import PrometheusSource
from forecasting.prometheus.range_source import PartialAnswers
from forecasting.series_source import SeriesId, SeriesSource
from forecasting.sqlite import HistoryStore
from forecasting.traces import is_of_lengths
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.http_address import http_address
from wattpack.settings import Settings
from wattpack.times import LAST_TIME_SECONDS
from wattpack.units import NS_PER_SECOND, require_number

HISTORY_FLAGS: Final = ("history_file", "prometheus_url")
FILE_FLAGS: Final = (*HISTORY_FLAGS, "data_file", "time_zone")


class HistorySettings(Settings):
    """Where the history is (file < environment ``WATTPACK_…`` < flag)."""

    history_file: Path | None = Field(None, description="SQLite history")
    prometheus_url: str | None = Field(None, description="query API instead of SQLite")
    prometheus_deadline_seconds: float = Field(10.0, gt=0, le=300)
    prometheus_partial_answers: PartialAnswers = Field(
        "refuse", description="of stores that did not answer: keep the last forecast, or flag"
    )

    @field_validator("prometheus_url")
    @classmethod
    def _can_be_asked(cls, address: str | None) -> str | None:
        return None if address is None else http_address(address)


class FileHistorySettings(HistorySettings):
    """The same for commands that run once and end: tables, too."""

    data_file: Path | None = Field(None, description="CSV or Parquet, one column a series")
    time_zone: str | None = Field(None, description="of times in data_file that state none")


class ClosableSource(SeriesSource, Protocol):
    """A history with an end."""

    def close(self) -> None:
        """Release it."""
        ...


def add_history_flags(parser: argparse.ArgumentParser) -> None:
    """``--history-file`` and ``--prometheus-url``."""
    parser.add_argument("--history-file", type=Path, help="SQLite history")
    parser.add_argument("--prometheus-url", help="for example http://prometheus:9090")


def add_file_flags(parser: argparse.ArgumentParser) -> None:
    """The same and ``--data-file`` with ``--time-zone``."""
    add_history_flags(parser)
    parser.add_argument("--data-file", type=Path, help="CSV or Parquet, one column a series")
    parser.add_argument("--time-zone", help="of its times without one, for example Europe/Berlin")


def open_file_history(settings: FileHistorySettings) -> ClosableSource:
    """The history that the settings name.

    Raises:
        InputError: unless exactly one is named, or for a table that cannot be read.
    """
    named = {"data_file": settings.data_file, "history_file": settings.history_file,
             "prometheus_url": settings.prometheus_url}  # fmt: skip
    given = [name for name, value in named.items() if value is not None]
    if len(given) != 1:
        flags = "--data-file, --history-file or --prometheus-url"
        raise InputError("history", f"one of {flags}", ", ".join(given) or None)
    if settings.data_file is None:
        return open_history(settings)
    return TableSource(read_table(settings.data_file, settings.time_zone))


def end_seconds_of(source: SeriesSource, clock: Clock) -> float:
    """When a history ends, Unix time: a table with its last row, anything else now."""
    if isinstance(source, TableSource):
        return source.table.until_seconds
    return clock.wall_time_ns() / NS_PER_SECOND


def moment_seconds(text: str, field: str, time_zone: str | None = None) -> float:
    """Unix time of what a flag says: a number of seconds, or a date or time as RFC 3339 has it.

    Args:
        text: As it was given.
        field: The flag.
        time_zone: Of a time that states none; UTC without.

    Raises:
        InputError: naming the flag, for anything else and for times before 1970 or after 9998.
    """
    zone = zone_of(time_zone) if time_zone else ZoneInfo("UTC")
    seconds = TimeReader(zone).seconds(text, field)
    return require_number(field, seconds, minimum=0, maximum=LAST_TIME_SECONDS, unit="s")


def open_history(settings: HistorySettings) -> ClosableSource:
    """The history that the settings name.

    Raises:
        InputError: unless exactly one is named.
    """
    if (settings.history_file is None) == (settings.prometheus_url is None):
        raise InputError(
            "history_file", "either history_file or prometheus_url", settings.history_file
        )
    if settings.history_file is not None:
        return HistoryStore(settings.history_file, read_only=True)
    return PrometheusSource(
        settings.prometheus_url or "",
        settings.prometheus_deadline_seconds,
        partial_answers=settings.prometheus_partial_answers,
    )


def chosen_series(source: SeriesSource, named: Sequence[str], everything: bool) -> list[SeriesId]:
    """The series that were named, or all of a history that knows its names.

    All but those that tell how long requests are, which nobody is asked for.

    Raises:
        InputError: for none, both, one name twice, or all of a history that cannot list them.
    """
    if everything == bool(named):
        raise InputError("series", "names of series, or --all", list(named) or None)
    if everything:
        names = names_of(source)
        if names is None:
            raise InputError("all", "a file; a query API has no list of series: name them")
        named = [name for name in names if not is_of_lengths(name)]
        if not named:
            raise InputError("all", "a history with at least one series", 0)
    twice = [name for name, count in Counter(named).items() if count > 1]
    if twice:
        raise InputError("series", "each name once", twice[0])
    return [SeriesId(name) for name in named]
