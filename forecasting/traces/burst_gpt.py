"""BurstGPT traces: CSV, seconds since the first midnight, a model and a kind of log a request.

Source: HPMLL/BurstGPT, README; of its first two files the columns are ``Timestamp,Model,Request
tokens,Response tokens,Total tokens,Log Type``, of the third ``Session ID`` and ``Elapsed time``
stand after the time. A client is a model and a kind of log: sessions are too many to forecast.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from forecasting.files.text_lines import Progress, text_lines
from forecasting.traces.trace_requests import ClientNames, Request, token_count
from wattpack.errors import InputError

TIME: Final = "Timestamp"
NEEDED: Final = (TIME, "Model", "Request tokens", "Response tokens", "Log Type")
LATEST_SECONDS: Final = 3.2e9
"""A hundred years; the published traces have 121 days."""


def burst_gpt_requests(
    file: Path, clients: ClientNames, progress: Progress | None = None
) -> Generator[Request, None, None]:
    """The requests of a file.

    Raises:
        InputError: naming the line.
    """
    with closing(text_lines(file, progress)) as lines:
        yield from _requests(lines, clients, str(file))


def _requests(lines: Iterable[str], clients: ClientNames, source: str) -> Iterator[Request]:
    rows = csv.reader(lines, strict=True)
    try:
        names = [name.strip() for name in next(rows, [])]
        if not set(NEEDED) <= set(names):
            raise InputError("line 1", f"the columns {','.join(NEEDED)}", names, source)
        time, model, prompt, answer, kind = (names.index(name) for name in NEEDED)
        for row in rows:
            where = f"line {rows.line_num}"
            if len(row) != len(names):
                raise InputError(where, f"{len(names)} cells", len(row), source)
            yield Request(
                _seconds(row[time], f"{where}.{TIME}", source),
                clients.place(_client(row[model], row[kind])),
                token_count(row[prompt], f"{where}.{NEEDED[2]}", source),
                token_count(row[answer], f"{where}.{NEEDED[3]}", source),
            )
    except csv.Error as error:
        raise InputError("file", "comma-separated values", str(error), source) from error


def _client(model: str, kind: str) -> str:
    """``ChatGPT/conversation`` of ``ChatGPT`` and ``Conversation log``."""
    return f"{model.strip()}/{kind.strip().lower().removesuffix(' log')}".replace(" ", "-")


def _seconds(cell: str, field: str, source: str) -> float:
    """Seconds since the trace's first midnight."""
    try:
        seconds = float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LATEST_SECONDS:
        raise InputError(field, f"seconds from 0 to {LATEST_SECONDS:g}", cell, source)
    return seconds
