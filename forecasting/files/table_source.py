"""A table as a ``SeriesSource``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecasting.files.table import Table
from forecasting.series_source import BIN_SECONDS, Floats, SeriesId, bin_count


class TableSource:
    """History of a table's series: samples of a bin count by their mean.

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
        """What reading the file repaired; see ``TellsFlags``."""
        return self.table.flags if series in self.table.values else ()

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
        low, high = np.searchsorted(self.table.seconds, (start_seconds, end_seconds))
        places = ((self.table.seconds[low:high] - start_seconds) // step_seconds).astype(np.intp)
        for i, name in enumerate(series):
            if name in self.table.refused:
                raise self.table.refused[name]
            if name in self.table.values:
                result[i] = _means(self.table.values[name][low:high], places, count)
        return result

    def maxima(self, series: SeriesId, start_seconds: int, end_seconds: int) -> Floats:
        """Highest sample of each ten-minute bin of a readable series, NaN for none, (n_bins,)."""
        count = bin_count(start_seconds, end_seconds, BIN_SECONDS)
        low, high = np.searchsorted(self.table.seconds, (start_seconds, end_seconds))
        places = ((self.table.seconds[low:high] - start_seconds) // BIN_SECONDS).astype(np.intp)
        highest = np.full(count, np.nan)
        np.fmax.at(highest, places, self.table.values[series][low:high])
        return highest


def _means(values: Floats, places: np.ndarray, count: int) -> Floats:
    """Mean of each bin's samples, NaN without any, shape (count,)."""
    known = ~np.isnan(values)
    number = np.bincount(places[known], minlength=count)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.bincount(places[known], values[known], count)
        result: Floats = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    return result
