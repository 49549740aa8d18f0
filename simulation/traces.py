"""Reading request traces: every row is checked, a damaged file is refused with its line.

A trace is arrays of arrival seconds and tokens. The shipped ones are Azure's of 2023, real but less
than an hour long, so longer runs repeat them end to end.
"""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forecasting.traces.azure import azure_row, require_header
from wattpack.errors import InputError

Floats = NDArray[np.float64]

TraceName = Literal["conversation", "code"]
FILES: dict[str, str] = {
    "conversation": "azure_llm_2023_conv.csv.gz",
    "code": "azure_llm_2023_code.csv.gz",
}
MAX_TRACE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival.

    Attributes:
        arrival_seconds: Since the first request, never falling, (n,).
        prompt_tokens: (n,).
        output_tokens: At least one each, (n,).
        source: File that it was read from.
    """

    arrival_seconds: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    source: str

    @property
    def length_seconds(self) -> float:
        """Time after which the trace repeats: last arrival plus one mean gap."""
        last = float(self.arrival_seconds[-1])
        return last + max(last, 1.0) / len(self.arrival_seconds)


def parse_trace(data: bytes, source: str) -> Trace:
    """A trace out of CSV bytes, gzip or plain.

    Raises:
        InputError: for a truncated, empty, unsorted or otherwise damaged file, with the line.
    """
    text = _decompress(data, source)
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if not lines:
        raise InputError("line 1", "a header", "an empty file", source)
    require_header(lines[0].rstrip("\r"), source)
    if len(lines) == 1:
        raise InputError("line 2", "at least one request", "end of file", source)
    rows = [_parse_row(line.rstrip("\r"), i, source) for i, line in enumerate(lines[1:], start=2)]
    columns = zip(*rows, strict=True)
    stamps, prompts, outputs = (np.array(column, dtype=np.float64) for column in columns)
    falls = np.flatnonzero(np.diff(stamps) < 0)
    if len(falls):
        number = int(falls[0]) + 3
        raise InputError(
            f"line {number}.TIMESTAMP", "times that never go back", lines[number - 1], source
        )
    return Trace(stamps - stamps[0], prompts, outputs, source)


def _decompress(data: bytes, source: str) -> str:
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as stream:
                data = stream.read(MAX_TRACE_BYTES + 1)
        if len(data) > MAX_TRACE_BYTES:
            raise InputError("file", f"at most {MAX_TRACE_BYTES} bytes", len(data), source)
        return data.decode("utf-8")
    except (EOFError, OSError, zlib.error, UnicodeDecodeError) as error:
        raise InputError("file", "a whole UTF-8 CSV, gzip or plain", str(error), source) from error


def _parse_row(line: str, number: int, source: str) -> tuple[float, float, float]:
    seconds, prompt, output = azure_row(line, number, source)
    # A request without an answer still ends: it costs its prompt and one token.
    return seconds, float(prompt), max(1.0, float(output))


@lru_cache(maxsize=4)
def shipped_trace(name: TraceName) -> Trace:
    """One of the two traces that come with wattpack."""
    file = resources.files("simulation") / "data" / "azure" / FILES[name]
    return parse_trace(file.read_bytes(), FILES[name])
