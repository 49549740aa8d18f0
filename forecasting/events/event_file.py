"""Planned events in a CSV file: one a line, a header with the columns' names.

name,start,end,timeZone,series,factor,added,atLeast,atMost
launch,2026-11-27T09:00,2026-11-27T12:00,Europe/Berlin,requests_per_second/chat,1.8,,,
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from forecasting.events.planned_event import MAX_EVENTS, PlannedEvent, planned_event
from wattpack.api.demand_forecast import ForecastEvent
from wattpack.errors import InputError, read_from
from wattpack.named_problems import named_problem

REQUIRED: Final = ("name", "start", "end")
NUMBERS: Final = ("factor", "added", "atLeast", "atMost")
COLUMNS: Final = (*REQUIRED, "timeZone", "series", *NUMBERS)
MOST_BYTES: Final = 16 << 20


def events_from_csv(path: Path) -> tuple[PlannedEvent, ...]:
    """Every event of the file; several series of one event are separated by spaces.

    A blank in a name is written ``?``, which stands for any one character.

    Raises:
        InputError: naming line and column; no event of the file counts then.
    """
    with read_from(str(path)):
        try:
            if path.stat().st_size > MOST_BYTES:
                raise InputError("events", "a file of at most 16 MiB", path.stat().st_size)
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("events", "a readable CSV file in UTF-8", str(error)) from error
        return _events(text)


def _events(text: str) -> tuple[PlannedEvent, ...]:
    reader = csv.reader(text.splitlines())
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header)
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}", "a line of CSV", str(error)) from error
    if len(rows) > MAX_EVENTS:
        raise InputError("events", f"at most {MAX_EVENTS} events", len(rows))
    return tuple(_event(line, header, row) for line, row in rows)


def _check_header(header: list[str]) -> None:
    for name in REQUIRED:
        if name not in header:
            raise InputError("header", f"a column {name}", ",".join(header))
    for name in header:
        if name not in COLUMNS:
            raise InputError("header", f"columns out of {', '.join(COLUMNS)}", name)
        if header.count(name) > 1:
            raise InputError("header", "each column once", name)


def _event(line: int, header: list[str], row: list[str]) -> PlannedEvent:
    place = f"line {line}"
    if len(row) != len(header):
        raise InputError(place, f"{len(header)} cells", len(row))
    cells = {name: cell.strip() for name, cell in zip(header, row, strict=True) if cell.strip()}
    series = tuple(cells.pop("series", "").split())
    given: dict[str, object] = dict(cells)
    for name in NUMBERS:
        if name in cells:
            given[name] = _number(f"{place}.{name}", cells[name])
    try:
        event = ForecastEvent.model_validate(given)
    except ValidationError as error:
        named = named_problem(error.errors()[0])
        field = ".".join(filter(None, (place, named.field)))
        raise InputError(field, named.expected, named.got) from error
    return planned_event(event, series, place)


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(field, "a number", text) from error
