"""A table as a ``SeriesSource``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.files.table import Table
from forecasting.series_source import BIN_SECONDS, Floats, SeriesId, bin_count

COARSE: Final = "coarse-rows"
"""Flag of a table whose rows stand for more than a bin: peaks within them nobody knows."""


class TableSource:
    """History of a table's series: what its rows stand for counts by its time in a bin.

    Rows closer than bins count alike. One that stands for more (quarters of an hour, hours) holds
    until the next, or for as long as rows usually do: a mean of an hour is that of its six bins.

    Args:
        table: What was read.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def close(self) -> None:
        """Nothing is held."""

    def names(self) -> list[str]:
        """All series, sorted."""
        return self.table.names

    def flags(self, series: SeriesId) -> tuple[str, ...]:
        """What reading the file repaired, and ``coarse-rows``; see ``TellsFlags``."""
        if series not in self.table.values:
            return ()
        coarse = (COARSE,) if self.table.held_seconds > BIN_SECONDS else ()
        return tuple(sorted((*self.table.flags, *coarse)))

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """Bin means; see ``SeriesSource``.

        Raises:
            InputError: also for a series whose cells are no numbers.
        """
        count = bin_count(start_seconds, end_seconds, step_seconds)
        result = np.full((len(series), count), np.nan)
        laid = self._laid(start_seconds, end_seconds, step_seconds)
        for i, name in enumerate(series):
            if name in self.table.refused:
                raise self.table.refused[name]
            if name in self.table.values:
                result[i] = laid.means(self.table.values[name], count)
        return result

    def maxima(self, series: SeriesId, start_seconds: int, end_seconds: int) -> Floats:
        """Highest sample of each ten-minute bin of a readable series, NaN for none, (n_bins,)."""
        count = bin_count(start_seconds, end_seconds, BIN_SECONDS)
        laid = self._laid(start_seconds, end_seconds, BIN_SECONDS)
        highest = np.full(count, np.nan)
        np.fmax.at(highest, laid.places, self.table.values[series][laid.rows])
        return highest

    def _laid(self, start_seconds: int, end_seconds: int, step_seconds: int) -> _Laid:
        """Rows on the bins of a range."""
        held, seconds = self.table.held_seconds, self.table.seconds
        if held <= step_seconds:
            low, high = np.searchsorted(seconds, (start_seconds, end_seconds))
            places = ((seconds[low:high] - start_seconds) // step_seconds).astype(np.intp)
            return _Laid(np.arange(low, high), places, np.ones(high - low))
        low, high = np.searchsorted(seconds, (start_seconds - held, end_seconds))
        begin = seconds[low:high]
        # The next other time: of rows that share one the mean counts.
        following = np.append(seconds, np.inf)[np.searchsorted(seconds, begin, side="right")]
        end = np.minimum(np.minimum(begin + held, following), end_seconds) - start_seconds
        begin = np.maximum(begin, start_seconds) - start_seconds
        first = (begin // step_seconds).astype(np.intp)
        sizes = np.maximum(np.ceil(end / step_seconds).astype(np.intp) - first, 0)
        row = np.repeat(np.arange(len(begin)), sizes)
        places = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + first[row]
        bins = places * step_seconds
        within = np.minimum(end[row], bins + step_seconds) - np.maximum(begin[row], bins)
        return _Laid(low + row, places, within)


@dataclass(frozen=True, slots=True)
class _Laid:
    """Which rows count in which bins.

    Attributes:
        rows: Of the table, shape (n,).
        places: Bins, shape (n,).
        weights: How much each counts, positive, shape (n,).
    """

    rows: np.ndarray
    places: np.ndarray
    weights: Floats

    def means(self, values: Floats, count: int) -> Floats:
        """Mean of each bin's rows, NaN without any, shape (count,)."""
        found = values[self.rows]
        known = ~np.isnan(found)
        places, weights = self.places[known], self.weights[known]
        weight = np.bincount(places, weights, count)
        with np.errstate(invalid="ignore", over="ignore"):
            total = np.bincount(places, found[known] * weights, count)
            result: Floats = np.where(weight > 0, total / np.where(weight > 0, weight, 1), np.nan)
        return result
