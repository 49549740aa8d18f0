"""Wide CSV files of users: a time and one column a series, in bins of one width.

It shares no code with ``forecasting``: what judges the product must not err as it does.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError, read_from

__all__ = ["Wide", "read_wide", "ten_minute_bins", "without_gaps"]

Floats = npt.NDArray[np.float64]

FIRST_LINE: Final = 2
"""Of the file's lines, below the header."""

UNEVEN: Final = 1.05
"""Times a bin that rows of one bin may be apart: clocks and scrapes are not exact."""


@dataclass(frozen=True, slots=True)
class Wide:
    """What a file has.

    Attributes:
        source: Its path.
        columns: Names of the series, unlike.
        times: Begin of each row, Unix time, shape (n_rows,).
        values: Finite, at least 0, NaN where a cell is empty, shape (n_series, n_rows).
    """

    source: str
    columns: tuple[str, ...]
    times: Floats
    values: Floats


def read_wide(path: Path) -> Wide:
    """A wide CSV, plain or gzipped; an empty cell or NaN is a gap.

    Raises:
        InputError: naming row and column, for a file that is none and cells that are no demand.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError("--data", "a CSV file, plain or gzipped", str(error), str(path)) from error
    width = len(rows[0]) if rows else 0
    if width < 2 or len(set(rows[0])) != width:
        raise InputError("--data", "a header of unlike names, the time's first", rows[:1])
    names = rows[0][1:]
    cells = np.empty((len(rows) - 1, width))
    for line, row in enumerate(rows[1:], start=FIRST_LINE):
        if len(row) != width:
            raise InputError("--data", f"{width} cells in row {line}", len(row), str(path))
        with read_from(str(path)):
            cells[line - FIRST_LINE] = [_seconds(row[0], line), *_demands(row[1:], line, names)]
    return Wide(str(path), tuple(names), cells[:, 0], cells[:, 1:].T.copy())


def ten_minute_bins(table: Wide, bin_seconds: int) -> Wide:
    """The table in bins of one width, on the grid of Unix time; a bin without a row is a gap.

    Rows that are closer than a bin are averaged, each where its middle lies, so that times may be
    off by some seconds.

    Raises:
        InputError: naming the row, where times do not rise or most rows are further apart.
    """
    times, apart = table.times, np.diff(table.times)
    if (apart <= 0).any():
        line = int(np.argmax(apart <= 0)) + FIRST_LINE + 1
        got = float(times[line - FIRST_LINE])
        raise InputError("--data", f"a later time in row {line} than before it", got, table.source)
    usual = float(np.median(apart)) if len(apart) else float(bin_seconds)
    if usual > UNEVEN * bin_seconds:
        line = int(np.argmax(apart > UNEVEN * bin_seconds)) + FIRST_LINE + 1
        expected = f"rows at most {bin_seconds} s apart, row {line} behind the one before it"
        raise InputError("--data", expected, f"{apart[line - FIRST_LINE - 1]:g} s", table.source)
    places = ((times + usual / 2) // bin_seconds).astype(np.int64)
    places, n_bins = places - places[0], int(places[-1] - places[0]) + 1
    # Rows years apart are not worth the memory of all between them.
    if n_bins > 2 * len(times):
        raise InputError("--data", "a row in most bins", f"{len(times)} rows", table.source)
    known = np.isfinite(table.values)
    sums, counts = np.zeros((2, len(table.columns), n_bins))
    for row, (values, is_known) in enumerate(zip(table.values, known, strict=True)):
        np.add.at(sums[row], places[is_known], values[is_known])
        np.add.at(counts[row], places[is_known], 1.0)
    means = np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan)
    first = ((times[0] + usual / 2) // bin_seconds) * bin_seconds
    return Wide(table.source, table.columns, first + bin_seconds * np.arange(n_bins), means)


def without_gaps(values: Floats, longest: int) -> Floats:
    """Gaps of up to so many bins on the line between their neighbours; longer ones stay.

    Args:
        values: NaN for gaps, shape (n_series, n_bins).
        longest: Bins; those at an end have one neighbour only, and stay.
    """
    made = values.copy()
    for row in made:
        gap = np.isnan(row)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], gap, [False]])))
        for start, end in edges.reshape(-1, 2).tolist():
            if start > 0 and end < len(row) and end - start <= longest:
                row[start - 1 : end + 1] = np.linspace(row[start - 1], row[end], end - start + 2)
    return made


def _demands(cells: Sequence[str], line: int, names: Sequence[str]) -> list[float]:
    return [_demand(cell, line, name) for cell, name in zip(cells, names, strict=True)]


def _demand(cell: str, line: int, column: str) -> float:
    """A number, or NaN for nothing."""
    return math.nan if cell.strip().lower() in ("", "nan") else _number(cell, line, column)


def _seconds(cell: str, line: int) -> float:
    """Unix seconds, as such or as a time with its offset."""
    with suppress(ValueError):
        float(cell)
        return _number(cell, line, "time")
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        expected = f"Unix seconds in row {line}, or a time like 2026-11-23T18:00:00Z"
        raise InputError("--data", expected, cell) from None
    if moment.tzinfo is None:
        raise InputError("--data", f"a time with its offset in row {line}, such as …Z", cell)
    return moment.timestamp()


def _number(cell: str, line: int, column: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError("--data", f"a number of at least 0 in row {line}, {column:.40}", cell)
    return value
