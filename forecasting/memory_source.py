"""History in memory: tests, replays and the first minutes of a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from forecasting.series_source import BIN_SECONDS, Floats, SeriesId, bin_count
from wattpack.errors import InputError


class MemorySource:
    """Series that all begin at one time, kept as arrays.

    Args:
        values: Bin means by name, each of shape (n,); NaN marks a gap.
        start_seconds: Start of the first bin.
        step_seconds: Width of a bin; other widths are refused.

    Attributes:
        values: The same, to be changed by whoever owns it.
    """

    def __init__(
        self,
        values: Mapping[str, Floats],
        start_seconds: int = 0,
        step_seconds: int = BIN_SECONDS,
    ) -> None:
        self.values = {name: np.asarray(row, dtype=np.float64) for name, row in values.items()}
        self._start_seconds = start_seconds
        self._step_seconds = step_seconds

    def append(self, name: str, value: float) -> None:
        """One more bin at the end of a series."""
        row = self.values.get(name, np.empty(0))
        self.values[name] = np.append(row, value)

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """Bin means; see ``SeriesSource``."""
        if step_seconds != self._step_seconds:
            raise InputError("stepSeconds", f"{self._step_seconds} s", step_seconds)
        count = bin_count(start_seconds, end_seconds, step_seconds)
        first = (start_seconds - self._start_seconds) // step_seconds
        result = np.full((len(series), count), np.nan)
        for i, name in enumerate(series):
            row = self.values.get(name, np.empty(0))
            low, high = max(0, first), min(len(row), first + count)
            if low < high:
                result[i, low - first : high - first] = row[low:high]
        return result
