"""Requests and loads as values, and what a simulated server tells of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from capacity.serving.step_costs import IterationLoads
from wattpack.errors import InputError

MOST_STRIDES: Final = 300_000
"""Of one load: some ten seconds. 4,096 clients of 9,000 tokens on one board need fewer."""


@dataclass(slots=True)
class Request:
    """One request on its way.

    Attributes:
        sent: When the client sent it, seconds.
        number: Its place among those sent.
        prompt, output: Tokens.
        cached: Leading prompt tokens that nobody had to compute.
        first: When its first token came; NaN before.
        last: When its last token came; NaN before.
        deadline: When its last token should have come; orders an urgent server's queue.
        strides: Index of the stride that made its first and its last token.
    """

    sent: float
    prompt: int
    output: int
    number: int = 0
    first: float = float("nan")
    last: float = float("nan")
    strides: list[int] = field(default_factory=lambda: [0, 0, 0])
    deadline: float = math.inf
    cached: int = 0
    filled: int = 0
    reused: int = 0
    made: int = 0
    arrived: float = 0.0

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.first - self.sent

    @property
    def tpot(self) -> float:
        """Seconds for each further token."""
        return (self.last - self.first) / max(1, self.output - 1)


@dataclass(slots=True)
class StrideLog:
    """What ran: one entry a stride, lists of equal length."""

    counts: list[int] = field(default_factory=list)
    decodes: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)
    contexts: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    free_seconds: list[float] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def require_few(self) -> None:
        """Pass what is still short enough to be played to its end.

        Raises:
            InputError: where clients whose tokens the cache never holds drive one another out.
        """
        if len(self.counts) > MOST_STRIDES:
            fits = f"a load that ends within {MOST_STRIDES:,} strides: fewer clients or tokens"
            raise InputError("concurrency", fits, f"{sum(self.counts):,} iterations, no end")

    def iterations(self) -> IterationLoads:
        """One mean iteration a stride."""
        return IterationLoads(
            np.array(self.decodes, dtype=np.int64),
            np.array(self.prompts, dtype=np.int64),
            np.array(self.tokens, dtype=np.int64),
            np.array(self.pairs, dtype=np.float64),
            np.array(self.contexts, dtype=np.float64),
        )


@dataclass(frozen=True, slots=True)
class ServerRun:
    """Outcome of a simulation.

    Attributes:
        idle_seconds: Time without work.
        preempted: How often a full cache drove out a request.
    """

    requests: Sequence[Request]
    log: StrideLog
    seconds: float
    idle_seconds: float
    preempted: int


@dataclass(frozen=True, slots=True)
class Size:
    """What one request asks.

    Attributes:
        cached: Leading prompt tokens whose keys and values are still in the cache.
    """

    prompt: int
    output: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Clients that each send their next request when the last token of the previous one came."""

    concurrency: int
    sizes: Sequence[Size]


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests that come at their own times, rising."""

    times: Sequence[float]
    sizes: Sequence[Size]


Work = ClosedLoop | OpenLoop
