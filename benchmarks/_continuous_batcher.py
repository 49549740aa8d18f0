"""Continuous batching with chunked prefill, by iterations: the recorded server's rules.

Prompts are taken in order of arrival. While any waits, each iteration carries one token of every
answer and a share of the prompts' tokens: what waits is cut into as few equal parts as the budget
allows, as the twin's server does. Each request keeps one contiguous range of the cache for its
prompt and its whole answer, so that nothing is driven out.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

CHUNK_TOKENS: Final = 2048
"""Of one iteration, prompts and answers together; the twin's server in ``serving_draw``."""

MAX_BATCH: Final = 256


@dataclass(slots=True)
class Served:
    """One request on its way.

    Attributes:
        number: Its place among those sent.
        arrived_seconds: When it was sent, since the run's start.
        prompt_tokens, output_tokens: What it asks; at least one each.
        start: Its first place in the cache; -1 before it has one.
        filled: Prompt tokens that are in the cache.
        made: Tokens of its answer.
        first_seconds, last_seconds: When these tokens came; NaN before.
    """

    number: int
    arrived_seconds: float
    prompt_tokens: int
    output_tokens: int
    start: int = -1
    filled: int = 0
    made: int = 0
    first_seconds: float = math.nan
    last_seconds: float = math.nan

    @property
    def places(self) -> int:
        """Of the cache; the last token of an answer needs none."""
        return self.prompt_tokens + self.output_tokens


class Chunk(NamedTuple):
    """The next ``tokens`` tokens of a prompt."""

    request: Served
    tokens: int


class Iteration(NamedTuple):
    """What one pass through the model computes: decodes first, then chunks."""

    decodes: Sequence[Served]
    chunks: Sequence[Chunk]

    @property
    def prompt_tokens(self) -> int:
        """Of all chunks."""
        return sum(chunk.tokens for chunk in self.chunks)


class CacheRanges:
    """Contiguous ranges of a cache of ``places``, the first that fits."""

    def __init__(self, places: int) -> None:
        self._free: list[tuple[int, int]] = [(0, places)]

    def take(self, places: int) -> int:
        """Where a range begins that is now taken; -1 if none fits."""
        for index, (start, length) in enumerate(self._free):
            if length >= places:
                rest = (start + places, length - places)
                self._free[index : index + 1] = [rest] if rest[1] else []
                return start
        return -1

    def give_back(self, start: int, places: int) -> None:
        """Free a taken range; neighbours become one."""
        insort(self._free, (start, places))
        joined: list[tuple[int, int]] = []
        for begin, length in self._free:
            if joined and sum(joined[-1]) == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((begin, length))
        self._free = joined


@dataclass(slots=True)
class Batcher:
    """Who runs next.

    Args:
        cache_places: Tokens that the cache holds.
    """

    cache_places: int
    chunk_tokens: int = CHUNK_TOKENS
    max_batch: int = MAX_BATCH
    waiting: deque[Served] = field(default_factory=deque)
    filling: list[Served] = field(default_factory=list)
    decoding: list[Served] = field(default_factory=list)
    _ranges: CacheRanges = field(init=False)

    def __post_init__(self) -> None:
        self._ranges = CacheRanges(self.cache_places)

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.waiting or self.filling or self.decoding)

    def next(self) -> Iteration:
        """The next iteration; empty only where nothing is left to do."""
        self._admit()
        room = max(1, self.chunk_tokens - len(self.decoding))
        queued = sum(one.prompt_tokens - one.filled for one in self.filling)
        parts = math.ceil(queued / room)
        left = math.ceil(queued / parts) if parts else 0
        chunks = []
        for request in self.filling:
            tokens = min(left, request.prompt_tokens - request.filled)
            if tokens:
                chunks.append(Chunk(request, tokens))
            left -= tokens
        return Iteration(tuple(self.decoding), tuple(chunks))

    def done(self, iteration: Iteration, now_seconds: float) -> list[Served]:
        """Count what an iteration made; the requests that it finished."""
        for request in iteration.decodes:
            request.made += 1
        for request, tokens in iteration.chunks:
            request.filled += tokens
            if request.filled == request.prompt_tokens:
                request.made = 1
                request.first_seconds = now_seconds
                self.decoding.append(request)
        self.filling = [one for one in self.filling if one.filled < one.prompt_tokens]
        finished = [one for one in self.decoding if one.made >= one.output_tokens]
        for request in finished:
            request.last_seconds = now_seconds
            self._ranges.give_back(request.start, request.places)
        self.decoding = [one for one in self.decoding if one.made < one.output_tokens]
        return finished

    def _admit(self) -> None:
        """First come, first served; whoever finds no room holds back those behind."""
        while self.waiting and len(self.filling) + len(self.decoding) < self.max_batch:
            start = self._ranges.take(self.waiting[0].places)
            if start < 0:
                return
            request = self.waiting.popleft()
            request.start = start
            self.filling.append(request)
