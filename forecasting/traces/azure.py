"""Azure LLM inference traces of 2023 and 2024: ``TIMESTAMP,ContextTokens,GeneratedTokens``.

The traces of 2023 state times without a zone and with seven decimals, those of 2024 with six and
``+00:00``; both are UTC (of 2023: assumed). Source: Azure/AzurePublicDataset,
AzureLLMInferenceDataset2023.md and AzureLLMInferenceDataset2024.md.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from forecasting.files.text_lines import Progress, text_lines
from forecasting.traces.trace_requests import ClientNames, Request, token_count
from wattpack.errors import InputError

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
CLIENT: Final = "all"
_WHOLE_SECONDS: Final = len("2023-11-16 18:15:46")
_A_TIME: Final = "a time like 2023-11-16 18:15:46.6805900"


def azure_requests(
    file: Path, clients: ClientNames, progress: Progress | None = None
) -> Generator[Request, None, None]:
    """The requests of a file.

    Raises:
        InputError: naming the line.
    """
    source, client = str(file), clients.place(CLIENT)
    with closing(text_lines(file, progress)) as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                require_header(line, source)
            else:
                seconds, prompt, output = azure_row(line, number, source)
                yield Request(seconds, client, prompt, output)


def require_header(line: str, source: str) -> None:
    """Refuse a file of other columns.

    Raises:
        InputError: naming the columns.
    """
    if tuple(line.split(",")) != COLUMNS:
        raise InputError("line 1", f"the columns {','.join(COLUMNS)}", line, source)


def azure_row(line: str, number: int, source: str) -> tuple[float, int, int]:
    """Unix seconds, prompt and answer tokens of a line.

    Raises:
        InputError: naming the line and the column.
    """
    cells = line.split(",")
    if len(cells) != len(COLUMNS):
        raise InputError(f"line {number}", f"{len(COLUMNS)} cells", line, source)
    prompt, output = (
        token_count(cell, f"line {number}.{name}", source)
        for name, cell in zip(COLUMNS[1:], cells[1:], strict=True)
    )
    return _seconds(cells[0], number, source), prompt, output


def _seconds(cell: str, number: int, source: str) -> float:
    """Unix seconds of a UTC time stamp with any number of decimals."""
    whole, rest = cell[:_WHOLE_SECONDS], cell[_WHOLE_SECONDS:].removesuffix("+00:00")
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError as error:
        raise InputError(f"line {number}.TIMESTAMP", _A_TIME, cell, source) from error
    # ISO 8601 has shorter forms, without seconds or with a zone in their place.
    if len(whole) < _WHOLE_SECONDS or moment.tzinfo is not None:
        raise InputError(f"line {number}.TIMESTAMP", _A_TIME, cell, source)
    decimals = rest.removeprefix(".")
    if rest and not (rest[0] == "." and decimals.isascii() and decimals.isdigit()):
        raise InputError(f"line {number}.TIMESTAMP", "decimals of a second", cell, source)
    seconds = moment.replace(tzinfo=UTC).timestamp()
    return seconds + (float(f"0.{decimals}") if decimals else 0.0)
