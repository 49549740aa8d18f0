"""What a trace becomes: rates on a grid, and how long prompts and answers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from forecasting.series_source import DAY_SECONDS, Floats

WINDOW_SECONDS: Final = 21_600
"""Of a statistic of token lengths: six hours, as ServeGen's."""

Direction = Literal["input", "output"]

LENGTH_FIGURES: Final = ("second_moment", "p99")
"""Of the lengths of requests, beside the mean, which rates tell."""

_LENGTH_SERIES: Final = frozenset(
    f"{direction}_tokens_{figure}" for direction in ("input", "output") for figure in LENGTH_FIGURES
)


@dataclass(frozen=True, slots=True)
class TokenLengths:
    """Lengths of one client's prompts or answers in one window.

    Attributes:
        client: Name.
        direction: Of prompts or of answers.
        start_seconds: Of the window.
        window_seconds: Its width.
        weight: Requests that were counted; of ServeGen, which tells shares only, its probability.
        mean: Tokens.
        second_moment: Mean of the squares, tokens squared: what the variance of a sum rests on.
        p99: Smallest length that 99 % of requests do not exceed, tokens.
    """

    client: str
    direction: Direction
    start_seconds: int
    window_seconds: int
    weight: float
    mean: float
    second_moment: float
    p99: float


@dataclass(frozen=True, slots=True)
class TraceSeries:
    """Rates of every client on one grid.

    Attributes:
        clients: Names, in the order of the first axis.
        start_seconds: Start of the first bin: Unix time, or since the trace began.
        step_seconds: Width of a bin.
        requests_per_second: Shape (n_clients, n_bins); NaN for bins that the trace covers in part.
        input_tokens_per_second: Same shape; NaN also where lengths are not known.
        output_tokens_per_second: Same.
        lengths: Of prompts and answers, by client and window.
        is_relative: Times count from the trace's own beginning.
        total_lengths: Of all clients together; of one client they are its own.
    """

    clients: tuple[str, ...]
    start_seconds: int
    step_seconds: int
    requests_per_second: Floats
    input_tokens_per_second: Floats
    output_tokens_per_second: Floats
    lengths: tuple[TokenLengths, ...]
    is_relative: bool
    total_lengths: tuple[TokenLengths, ...] = ()

    @property
    def n_bins(self) -> int:
        """Bins of the grid."""
        return int(self.requests_per_second.shape[1])

    @property
    def until_seconds(self) -> int:
        """End of the last bin."""
        return self.start_seconds + self.n_bins * self.step_seconds

    def ending(self, end_seconds: int) -> TraceSeries:
        """The same moved so that it ends at a time, at hours of day that stay what they were.

        Moved by whole days, as far as it takes to reach the end, and cut there: up to a day is
        lost. A trace of under two days has no day to keep and is moved as it is.

        Args:
            end_seconds: Unix time.
        """
        end = end_seconds // self.step_seconds * self.step_seconds
        shift = end - self.until_seconds
        if self.n_bins * self.step_seconds >= 2 * DAY_SECONDS:
            shift = -(-shift // DAY_SECONDS) * DAY_SECONDS
        kept = (end - shift - self.start_seconds) // self.step_seconds
        lengths, total_lengths = (
            tuple(
                replace(one, start_seconds=one.start_seconds + shift)
                for one in found
                if one.start_seconds + shift < end
            )
            for found in (self.lengths, self.total_lengths)
        )
        return replace(
            self,
            start_seconds=self.start_seconds + shift,
            requests_per_second=self.requests_per_second[:, :kept],
            input_tokens_per_second=self.input_tokens_per_second[:, :kept],
            output_tokens_per_second=self.output_tokens_per_second[:, :kept],
            lengths=lengths,
            total_lengths=total_lengths,
            is_relative=False,
        )

    def named(self, name: str) -> Mapping[str, Floats]:
        """Rows by series name: totals as ``requests_per_second/NAME``, clients below them.

        Beside rates the lengths behind them: their second moment and p99 in each bin, by which
        ``spec.tokens`` is told more than means. A total is known where all clients are; rows known
        under half of the time are left out.
        """
        rows: dict[str, Floats] = {}
        for quantity in ("requests", "input_tokens", "output_tokens"):
            table: Floats = getattr(self, f"{quantity}_per_second")
            rows[f"{quantity}_per_second/{name}"] = table.sum(axis=0)
            if len(self.clients) > 1:
                for client, row in zip(self.clients, table, strict=True):
                    rows[f"{quantity}_per_second/{name}/{client}"] = row
        rows |= self._length_rows(name)
        return {key: row for key, row in rows.items() if np.isnan(row).mean() <= 0.5}

    def _length_rows(self, name: str) -> Mapping[str, Floats]:
        """By series name; NaN where nobody told."""
        found = [(name, one) for one in self.total_lengths]
        if len(self.clients) > 1:
            found += [(f"{name}/{one.client}", one) for one in self.lengths]
        rows: dict[str, Floats] = {}
        for whose, one in found:
            begin, end = (
                max(0, (at - self.start_seconds) // self.step_seconds)
                for at in (one.start_seconds, one.start_seconds + one.window_seconds)
            )
            for figure in LENGTH_FIGURES:
                key = f"{one.direction}_tokens_{figure}/{whose}"
                row = rows.setdefault(key, np.full(self.n_bins, np.nan))
                row[begin:end] = getattr(one, figure)
        return rows


def is_of_lengths(series: str) -> bool:
    """Whether a series of an imported trace tells how long requests are: no demand of its own."""
    return series.split("/", 1)[0] in _LENGTH_SERIES
