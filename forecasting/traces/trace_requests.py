"""Requests as traces tell them, in batches: a trace may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecasting.series_source import Floats
from wattpack.errors import InputError

BATCH_ROWS: Final = 65_536
MAX_TOKENS: Final = 10_000_000
"""Of one request; beyond every context window, and what packed keys have room for."""
MAX_CLIENTS: Final = 10_000

Integers = NDArray[np.int64]


class Request(NamedTuple):
    """One line of a trace.

    Attributes:
        seconds: Of its arrival: Unix time, or since the trace began.
        client: Position of its client's name.
        input_tokens: Of the prompt.
        output_tokens: Of the answer; 0 for a request that failed.
    """

    seconds: float
    client: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """Some requests, each attribute of shape (n,); see ``Request``."""

    seconds: Floats
    client: Integers
    input_tokens: Integers
    output_tokens: Integers


class ClientNames:
    """Names of clients in the order of their first request.

    Args:
        source: File, for refusals.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        """Position of a name, given at its first request.

        Raises:
            InputError: for more names than a forecast could be made of.
        """
        if name not in self._places:
            if len(self._places) >= MAX_CLIENTS:
                raise InputError("clients", f"at most {MAX_CLIENTS}", "more", self._source)
            self._places[name] = len(self._places)
        return self._places[name]

    def all(self) -> tuple[str, ...]:
        """Every name."""
        return tuple(self._places)


def batches(requests: Iterator[Request]) -> Iterator[RequestBatch]:
    """The same requests as arrays."""
    while rows := list(islice(requests, BATCH_ROWS)):
        seconds, client, prompts, outputs = zip(*rows, strict=True)
        yield RequestBatch(
            np.array(seconds, dtype=np.float64),
            np.array(client, dtype=np.int64),
            np.array(prompts, dtype=np.int64),
            np.array(outputs, dtype=np.int64),
        )


def token_count(cell: str, field: str, source: str) -> int:
    """Tokens as a trace writes them.

    Raises:
        InputError: naming the field.
    """
    if not cell.isascii() or not cell.isdigit() or len(cell) > 8 or int(cell) > MAX_TOKENS:
        raise InputError(field, f"an integer from 0 to {MAX_TOKENS} tokens", cell, source)
    return int(cell)
