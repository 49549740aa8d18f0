"""Requests of a service: a real trace, repeated end to end and thickened by a reported factor.

Each request of the trace arrives ``factor`` times (the fraction by chance). The copies are spread
over ``SPREAD_SECONDS`` after the original, so that minutes stay as bursty as they were and a
thicker stream is not a row of simultaneous copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.traces import Trace

Floats = NDArray[np.float64]

SPREAD_SECONDS = 5.0
CHUNK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in order of arrival, each array (n,)."""

    arrival_seconds: Floats
    prompt_tokens: Floats
    output_tokens: Floats

    def __len__(self) -> int:
        return len(self.arrival_seconds)


class RequestStream:
    """Requests in any order of windows that move on; the same seed gives the same requests.

    Args:
        trace: What is repeated.
        factor: Requests for each request of the trace.
        start_seconds: Where in the repeated trace time 0 lies.
        seed: Of the copies' times and of the factor's fraction.
        stream: Number of the service, so that services with one seed differ.
    """

    def __init__(
        self, trace: Trace, factor: float, start_seconds: float, seed: int, stream: int
    ) -> None:
        self._trace = trace
        self._factor = factor
        self._start_seconds = start_seconds
        self._seed = seed
        self._stream = stream
        self._next_chunk = 0
        self._waiting = _none()

    def take(self, until_seconds: float) -> Requests:
        """All requests that arrive before a time and were not taken yet."""
        parts = [self._waiting]
        while self._next_chunk * CHUNK_SECONDS < until_seconds:
            parts.append(self._chunk(self._next_chunk))
            self._next_chunk += 1
        merged = _sorted(parts) if len(parts) > 1 else self._waiting
        cut = int(np.searchsorted(merged.arrival_seconds, until_seconds))
        self._waiting = _slice(merged, slice(cut, None))
        return _slice(merged, slice(0, cut))

    def _chunk(self, number: int) -> Requests:
        """The copies of the originals between two multiples of ``CHUNK_SECONDS``."""
        begin = number * CHUNK_SECONDS
        index, at_seconds = self._originals(begin, begin + CHUNK_SECONDS)
        generator = np.random.default_rng((self._seed, 1, self._stream, number))
        whole = int(self._factor)
        extra = generator.random(len(index)) < self._factor - whole
        copies = np.repeat(np.arange(len(index)), whole + extra)
        delay = generator.random(len(copies)) * SPREAD_SECONDS
        index = index[copies]
        return _sorted(
            [
                Requests(
                    at_seconds[copies] + delay,
                    self._trace.prompt_tokens[index],
                    self._trace.output_tokens[index],
                )
            ]
        )

    def _originals(self, begin: float, end: float) -> tuple[NDArray[np.intp], Floats]:
        """Which requests of the repeated trace lie in [begin, end), and when, on our time."""
        length, arrivals = self._trace.length_seconds, self._trace.arrival_seconds
        indices, times = [], []
        low = begin + self._start_seconds
        high = end + self._start_seconds
        for lap in range(int(low // length), int(high // length) + 1):
            first, last = np.searchsorted(arrivals, (low - lap * length, high - lap * length))
            indices.append(np.arange(first, last))
            times.append(arrivals[first:last] + lap * length - self._start_seconds)
        return np.concatenate(indices), np.concatenate(times)


def _none() -> Requests:
    return Requests(np.zeros(0), np.zeros(0), np.zeros(0))


def _slice(requests: Requests, part: slice) -> Requests:
    return Requests(
        requests.arrival_seconds[part], requests.prompt_tokens[part], requests.output_tokens[part]
    )


def _sorted(parts: list[Requests]) -> Requests:
    arrival = np.concatenate([p.arrival_seconds for p in parts])
    order = np.argsort(arrival, kind="stable")
    prompt = np.concatenate([p.prompt_tokens for p in parts])
    output = np.concatenate([p.output_tokens for p in parts])
    return Requests(arrival[order], prompt[order], output[order])
