"""Wide Parquet files, by pyarrow where it is installed (``wattpack[parquet]``)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
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
from forecasting.files.text_lines import regular_file
from forecasting.series_source import Floats
from wattpack.errors import InputError, read_from

_UNITS_A_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_parquet(file: Path, zone: ZoneInfo | None = None) -> Table:
    """The table in a Parquet file.

    The time is a column named like one or the first: a timestamp, a number of seconds or RFC 3339
    text. A column that is no number is refused alone.

    Raises:
        InputError: no pyarrow, a damaged or too large file, times that are none.
    """
    require_arrow(str(file))
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    source = str(regular_file(file))
    try:
        with parquet.ParquetFile(source) as opened:
            shape = opened.metadata
            require_room(shape.num_rows, shape.num_columns, source)
            columns = opened.read()
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise InputError("file", "a whole Parquet file", str(error), source) from error
    if columns.num_rows == 0:
        raise InputError("file", "at least one row", 0, source)
    names = list(columns.column_names)
    time_place = time_column(names)
    places = series_names(names, time_place, source)
    times = TimeReader(zone)
    with read_from(source):
        seconds = _seconds(columns.column(time_place), names[time_place], times)
    order, flags = sorted_rows(seconds, times.doubled)
    values: dict[str, Floats] = {}
    refused: dict[str, InputError] = {}
    for name, place in places.items():
        try:
            values[name] = _numbers(columns.column(place), name)[order]
        except InputError as error:
            refused[name] = error
    return Table(seconds[order], values, refused, flags)


def require_arrow(file: str) -> None:
    """Pass where Parquet can be read and written.

    Raises:
        InputError: naming the file, without pyarrow.
    """
    try:
        import pyarrow.parquet  # noqa: F401 - whether it can be
    except ImportError as error:
        why = "pyarrow for Parquet: pip install 'wattpack[parquet]'"
        raise InputError("file", why, "not installed", file) from error


def path_table(path: Floats, seconds: Floats, values: Mapping[str, Floats]) -> bytes:
    """A file of sample paths: number of the path, time of the step (UTC), one column a series.

    Args:
        path: Of each row, (n_rows,).
        seconds: Unix time, (n_rows,).
        values: Of each series, (n_rows,) each.

    Raises:
        InputError: no pyarrow.
    """
    require_arrow("paths")
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    columns = {
        "path": arrow.array(path.astype(np.int32)),
        "time": arrow.array(seconds.astype(np.int64) * 1000, arrow.timestamp("ms", "UTC")),
    }
    columns |= {name: arrow.array(column) for name, column in values.items()}
    made = io.BytesIO()
    parquet.write_table(arrow.table(columns), made)
    return made.getvalue()


def _seconds(column: Any, name: str, times: TimeReader) -> Floats:  # noqa: ANN401 - pyarrow
    """Unix seconds of every row."""
    kind = str(column.type)
    cells = column.to_pylist() if not kind.startswith("timestamp") else _moments(column, kind)
    return np.array(
        [times.seconds(cell, f"row {number}.{name}") for number, cell in enumerate(cells, start=1)]
    )


def _moments(column: Any, kind: str) -> list[datetime | None]:  # noqa: ANN401 - pyarrow
    """Timestamps, without a zone where the column has none.

    From whole numbers: pyarrow's own datetimes refuse nanoseconds, and need pandas for them.
    """
    unit = kind.removeprefix("timestamp[").rstrip("]").split(",")[0]
    per_second = _UNITS_A_SECOND[unit]
    has_zone = "tz=" in kind
    moments: list[datetime | None] = []
    for count in column.cast("int64").to_pylist():
        if count is None or not 0 <= count / per_second < 2.5e11:
            moments.append(None)
            continue
        whole, part = divmod(count, per_second)
        moment = _EPOCH + timedelta(seconds=whole, microseconds=part * 10**6 // per_second)
        moments.append(moment if has_zone else moment.replace(tzinfo=None))
    return moments


def _numbers(column: Any, name: str) -> Floats:  # noqa: ANN401 - pyarrow
    """A column of numbers; NaN for what is null."""
    kind = str(column.type)
    if not kind.startswith(("int", "uint", "float", "double", "half", "decimal")):
        raise InputError(name, "a column of numbers", kind)
    # Null becomes NaN only in a column of floats; integers beyond 2**53 (identifiers, counters of
    # microjoules) are rounded, and refused by nobody.
    numbers = column.cast("float64", safe=False)
    result: Floats = np.asarray(numbers.to_numpy(), dtype=np.float64)
    return result
