"""Mooncake traces: an object a line with ``timestamp`` (ms), ``input_length``, ``output_length``.

Times count from the trace's beginning; ``hash_ids`` (blocks of the prompt) are not read. Source:
kvcache-ai/Mooncake, FAST25-release/traces.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from forecasting.files.text_lines import Progress, text_lines
from forecasting.traces.trace_requests import MAX_TOKENS, ClientNames, Request
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

CLIENT: Final = "all"
LATEST_MILLISECONDS: Final = 3.2e12
"""A hundred years; the published traces have an hour."""


def mooncake_requests(
    file: Path, clients: ClientNames, progress: Progress | None = None
) -> Generator[Request, None, None]:
    """The requests of a file; empty lines are passed over.

    Raises:
        InputError: naming the line.
    """
    client = clients.place(CLIENT)
    with closing(text_lines(file, progress)) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                with read_from(str(file)):
                    request = _request(_object(line, number), number, client)
                yield request


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number}", "a JSON object", line[:100]) from error
    if not isinstance(body, dict):
        raise InputError(f"line {number}", "a JSON object", line[:100])
    return body


def _request(body: dict[str, Any], number: int, client: int) -> Request:
    where = f"line {number}"
    milliseconds = require_number(
        f"{where}.timestamp", body.get("timestamp"),
        minimum=0, maximum=LATEST_MILLISECONDS, unit="ms",
    )  # fmt: skip
    prompt, answer = (
        _tokens(body.get(name), f"{where}.{name}") for name in ("input_length", "output_length")
    )
    return Request(milliseconds / 1000, client, prompt, answer)


def _tokens(value: object, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKENS:
        raise InputError(field, f"an integer from 0 to {MAX_TOKENS} tokens", value)
    return value
