"""Wide CSV: a header, a time column, one column a series; plain or gzip."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from forecasting.files.local_times import TimeReader
from forecasting.files.table import (
    Table,
    require_room,
    series_names,
    sorted_rows,
    time_column,
)
from forecasting.files.text_lines import Progress, text_lines
from wattpack.errors import InputError, read_from

NOTHING = frozenset({"", "nan", "NaN", "NA", "null", "None"})
"""Cells that are gaps."""


def read_csv(file: Path, zone: ZoneInfo | None = None, progress: Progress | None = None) -> Table:
    """The table in a CSV file.

    A cell that is no number refuses its column alone; a time that is none, or a row of another
    width, the file.

    Args:
        file: Plain or gzip.
        zone: Of times that state none.
        progress: Told how far it is.

    Raises:
        InputError: naming the line.
    """
    with closing(text_lines(file, progress)) as lines:
        return _table(_rows(lines, str(file)), zone, str(file))


def _table(rows: Iterator[tuple[int, list[str]]], zone: ZoneInfo | None, source: str) -> Table:
    """The table of these rows, the first of which is the header."""
    _, names = next(rows, (0, []))
    if not names:
        raise InputError("line 1", "a header: a time and names of series", "nothing", source)
    time_place = time_column(names)
    places = series_names(names, time_place, source)
    times, cells = TimeReader(zone), []
    refused: dict[str, InputError] = {}
    seconds: list[float] = []
    for number, row in rows:
        if len(row) != len(names):
            raise InputError(f"line {number}", f"{len(names)} cells", len(row), source)
        with read_from(source):
            seconds.append(times.seconds(row[time_place], f"line {number}.{names[time_place]}"))
        cells.append(_numbers(row, names, time_place, number, refused))
        require_room(len(cells), len(names), source)
    if not cells:
        raise InputError("line 2", "at least one row", "end of file", source)
    at = np.array(seconds)
    order, flags = sorted_rows(at, times.doubled)
    table = np.array(cells)[order]
    return Table(
        seconds=at[order],
        values={
            name: np.ascontiguousarray(table[:, place])
            for name, place in places.items()
            if name not in refused
        },
        refused=refused,
        flags=flags,
    )


def _rows(lines: Iterable[str], source: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells; empty lines are passed over."""
    try:
        rows = csv.reader(lines, strict=True)
        for row in rows:
            if row:
                yield rows.line_num, row
    except csv.Error as error:
        raise InputError("file", "comma-separated values", str(error), source) from error


def _numbers(
    row: list[str],
    names: list[str],
    time_place: int,
    number: int,
    refused: dict[str, InputError],
) -> np.ndarray:
    """A row's values; what cannot be read refuses its column."""
    row[time_place] = ""
    values = np.full(len(row), np.nan)
    for place, cell in enumerate(row):
        if cell in NOTHING:
            continue
        try:
            if not cell.isascii() or "_" in cell:
                raise ValueError(cell)
            values[place] = float(cell)
        except ValueError:
            name = names[place].strip()
            where = f"line {number}.{name}"
            refused.setdefault(name, InputError(where, "a number or nothing", cell))
    return values
