"""What the forecasters need from the outside: history on a regular grid.

Adapters: ``forecasting.memory_source`` (arrays), ``forecasting.sqlite`` (a file),
``forecasting.prometheus`` (anything with the Prometheus query API).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NewType, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattpack.errors import InputError

SeriesId = NewType("SeriesId", str)
"""A series' name in the history, or a PromQL expression that gives one series."""

Floats = NDArray[np.float64]

BIN_SECONDS: Final = 600
"""Width of a history bin. Source: the forecasting data sets and figures all use 10 minutes."""

DAY_SECONDS: Final = 86_400

LONGEST_SECONDS: Final = 7 * DAY_SECONDS
"""The longest horizon that is answered."""

MAX_BINS: Final = 100_000


@dataclass(frozen=True, slots=True)
class History:
    """Bin means of several series on one grid.

    Attributes:
        series: Names, in the order of the first axis.
        values: Shape (n_series, n_bins); NaN is a gap.
        until_seconds: End of the last bin, Unix time.
        step_seconds: Width of a bin.

    Raises:
        InputError: for values that are not one row a series with at least one bin.
    """

    series: Sequence[SeriesId]
    values: Floats
    until_seconds: int = 0
    step_seconds: int = BIN_SECONDS

    def __post_init__(self) -> None:
        shape = np.shape(self.values)
        if len(shape) != 2 or shape[0] != len(self.series) or shape[1] == 0:
            raise InputError("history", f"an array of ({len(self.series)}, n_bins)", shape)

    def before(self, cut: int) -> History:
        """The first ``cut`` bins."""
        later = self.values.shape[1] - cut
        until_seconds = self.until_seconds - later * self.step_seconds
        return replace(self, values=self.values[:, :cut], until_seconds=until_seconds)

    def rows(self, kept: Sequence[int]) -> History:
        """Some of the series, by their places."""
        names = [self.series[i] for i in kept]
        return replace(self, series=names, values=self.values[list(kept)])


def window_steps(horizon_seconds: float, step_seconds: int) -> int:
    """Steps of a window that covers the horizon, as far as any model answers (seven days).

    The last one may reach beyond it: a window that ended before would hold for less than was asked.

    Args:
        horizon_seconds: At most seven days.
        step_seconds: Width of a step; the horizon is one at least.
    """
    # A tenth of an hour times 3600 is no whole number of seconds.
    steps = math.ceil(horizon_seconds / step_seconds - 1e-9)
    return max(1, min(steps, LONGEST_SECONDS // step_seconds))


class SeriesSource(Protocol):
    """History of many series."""

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """Bin means of each series.

        Args:
            series: Names; the rows of the answer keep their order.
            start_seconds: Start of the first bin, Unix time, a multiple of the step.
            end_seconds: End of the last bin, Unix time, a multiple of the step.
            step_seconds: Width of a bin.

        Returns:
            Shape (n_series, n_bins); NaN where nothing was recorded. An unknown series is all NaN.

        Raises:
            InputError: for a bad range, or an expression that gives several series.
            TransientError: when the history cannot be read now.
        """
        ...


@runtime_checkable
class TellsFlags(Protocol):
    """A source that knows what its answers were short of."""

    def flags(self, series: SeriesId) -> tuple[str, ...]:
        """Flags of the newest answer about a series, for example ``partial``; sorted."""
        ...


def source_flags(source: SeriesSource, series: SeriesId) -> tuple[str, ...]:
    """What a source says about its newest answer; nothing for sources that say nothing."""
    return cast(TellsFlags, source).flags(series) if _tells_flags(type(source)) else ()


@cache
def _tells_flags(kind: type) -> bool:
    """Asked once: looking through a protocol takes longer than a forecast of a series."""
    return issubclass(kind, TellsFlags)


def bin_count(start_seconds: int, end_seconds: int, step_seconds: int) -> int:
    """Number of bins in a range.

    Raises:
        InputError: if the range is not a whole number of bins on the grid, or is too long.
    """
    if step_seconds <= 0:
        raise InputError("stepSeconds", "a positive number of seconds", step_seconds)
    for name, value in (("startSeconds", start_seconds), ("endSeconds", end_seconds)):
        if value % step_seconds:
            raise InputError(name, f"a multiple of {step_seconds} s", value)
    count = (end_seconds - start_seconds) // step_seconds
    if not 0 < count <= MAX_BINS:
        raise InputError("endSeconds", f"1 to {MAX_BINS} bins after the start", end_seconds)
    return count
