"""Counts of requests and tokens by client and bin, gathered batch by batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from forecasting.series_source import MAX_BINS, Floats
from forecasting.traces.trace_requests import Integers, RequestBatch
from forecasting.traces.trace_series import Direction, TokenLengths, TraceSeries
from wattpack.errors import InputError

# One histogram over (client, direction, window, length), packed into a 64-bit key.
_LENGTH_BITS: Final = 24
_WINDOW_BITS: Final = 24
_BELOW_CLIENT: Final = (1 << _LENGTH_BITS + _WINDOW_BITS + 1) - 1
_MERGE_AT: Final = 1 << 20
"""Keys that wait to be merged: some tens of megabytes."""

LATEST_BEGINNING_SECONDS: Final = 1e8
"""A first time beyond it (three years) is Unix time, whatever the format says. Assumed."""

_DIRECTIONS: Final[tuple[Direction, Direction]] = ("input", "output")


class TraceBins:
    """Gathers a trace.

    Args:
        step_seconds: Width of a bin.
        window_seconds: Of a statistic of lengths.
        source: File, for refusals.
    """

    def __init__(self, step_seconds: int, window_seconds: int, source: str) -> None:
        for field, width in (("stepSeconds", step_seconds), ("windowSeconds", window_seconds)):
            if width < 1:
                raise InputError(field, "at least 1 s", width)
        self._step, self._window, self._source = step_seconds, window_seconds, source
        self._sums: dict[tuple[int, int], Floats] = {}
        self._lengths = _KeyCounts()
        self._first, self._last = math.inf, -math.inf

    def add(self, batch: RequestBatch) -> None:
        """Count some requests; their order does not matter."""
        self._first = min(self._first, float(batch.seconds.min()))
        self._last = max(self._last, float(batch.seconds.max()))
        place = np.floor(batch.seconds / self._step).astype(np.int64)
        both = np.stack([batch.client, place], axis=1)
        keys, inverse = np.unique(both, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        sums = [
            np.bincount(inverse, weights, len(keys))
            for weights in (None, batch.input_tokens, batch.output_tokens)
        ]
        for (client, bin_place), row in zip(keys.tolist(), np.stack(sums, axis=1), strict=True):
            self._sums[client, bin_place] = self._sums.get((client, bin_place), np.zeros(3)) + row
        window = np.floor(batch.seconds / self._window).astype(np.int64)
        for direction, tokens in enumerate((batch.input_tokens, batch.output_tokens)):
            group = (2 * batch.client + direction) << _WINDOW_BITS | window
            self._lengths.add(group << _LENGTH_BITS | tokens)

    def series(self, clients: tuple[str, ...], is_relative: bool) -> TraceSeries:
        """All that was counted.

        Bins that the trace does not cover to their end are NaN, else their rate would be too low;
        a trace that counts from its own beginning covers its first bin.

        Raises:
            InputError: no request, a trace too long for a history or shorter than a bin.
        """
        if not self._sums:
            raise InputError("file", "at least one request", 0, self._source)
        first = min(place for _, place in self._sums)
        is_relative = is_relative and self._first < LATEST_BEGINNING_SECONDS
        if is_relative:
            first = 0
        n_bins = max(place for _, place in self._sums) - first + 1
        if n_bins > MAX_BINS:
            raise InputError("stepSeconds", f"at most {MAX_BINS} bins", n_bins, self._source)
        table = np.zeros((3, len(clients), n_bins))
        for (client, place), row in self._sums.items():
            table[:, client, place - first] = row / self._step
        start = first * self._step
        if not is_relative and self._first > start:
            table[:, :, 0] = np.nan
        if self._last < start + n_bins * self._step:
            table[:, :, -1] = np.nan
        if np.isnan(table).all():
            raise InputError(
                "stepSeconds", f"bins that the trace fills: it has {self._last - self._first:g} s",
                self._step, self._source,
            )  # fmt: skip
        keys, counts = self._lengths.merged()
        lengths = tuple(self._token_lengths(clients, keys, counts))
        # Keys without their client: the highest bits.
        every, inverse = np.unique(keys & _BELOW_CLIENT, return_inverse=True)
        summed = np.bincount(inverse, counts, len(every)).astype(np.int64)
        totals = tuple(self._token_lengths(("all",), every, summed))
        requests, prompts, answers = table
        return TraceSeries(
            clients, start, self._step, requests, prompts, answers, lengths, is_relative, totals
        )

    def _token_lengths(
        self, clients: tuple[str, ...], keys: Integers, counts: Integers
    ) -> Iterator[TokenLengths]:
        groups, begins = np.unique(keys >> _LENGTH_BITS, return_index=True)
        ends = np.append(begins[1:], len(keys))
        for group, begin, end in zip(groups.tolist(), begins.tolist(), ends.tolist(), strict=True):
            client, direction = divmod(group >> _WINDOW_BITS, 2)
            window = group & ((1 << _WINDOW_BITS) - 1)
            lengths = keys[begin:end] & ((1 << _LENGTH_BITS) - 1)
            yield token_lengths(
                clients[client], _DIRECTIONS[direction], window * self._window, self._window,
                lengths.astype(np.float64), counts[begin:end].astype(np.float64),
            )  # fmt: skip


def token_lengths(
    client: str,
    direction: Direction,
    start_seconds: int,
    window_seconds: int,
    lengths: Floats,
    weights: Floats,
) -> TokenLengths:
    """The statistics of a histogram.

    Args:
        client: Name.
        direction: Of prompts or of answers.
        start_seconds: Of the window.
        window_seconds: Its width.
        lengths: Tokens, ascending, shape (n,).
        weights: How often each came, shape (n,), of a positive sum.
    """
    total = float(weights.sum())
    share = np.cumsum(weights) / total
    return TokenLengths(
        client=client,
        direction=direction,
        start_seconds=start_seconds,
        window_seconds=window_seconds,
        weight=total,
        mean=float(lengths @ weights) / total,
        second_moment=float(lengths**2 @ weights) / total,
        # Shares are sums of rounded ones: 0.99 itself may be a little less.
        p99=float(lengths[int(np.argmax(share >= 0.99 - 1e-12))]),
    )


class _KeyCounts:
    """How often each key came; as many as there are different ones are held."""

    def __init__(self) -> None:
        self._keys: Integers = np.empty(0, dtype=np.int64)
        self._counts: Integers = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Integers, Integers]] = []

    def add(self, keys: Integers) -> None:
        """Count some."""
        found, counts = np.unique(keys, return_counts=True)
        self._waiting.append((found, counts.astype(np.int64)))
        if sum(len(part) for part, _ in self._waiting) > _MERGE_AT:
            self.merged()

    def merged(self) -> tuple[Integers, Integers]:
        """All keys, ascending, and their counts."""
        parts = [(self._keys, self._counts), *self._waiting]
        keys, inverse = np.unique(np.concatenate([k for k, _ in parts]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([c for _, c in parts]), len(keys))
        self._keys, self._counts, self._waiting = keys, counts.astype(np.int64), []
        return self._keys, self._counts
