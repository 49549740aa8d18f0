"""Tables and traces as rows that a history file takes: ten-minute bins in Unix time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from forecasting.files import TableSource, read_table
from forecasting.files.text_lines import Progress
from forecasting.series_source import BIN_SECONDS, MAX_BINS, Floats, SeriesId
from forecasting.traces import TokenLengths, TraceFormat, read_trace
from wattpack.errors import InputError

End = float | None
"""Unix time at which a history is to end; None leaves it where it is."""

SHORT_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class ImportedHistory:
    """Rows on the grid of a history file.

    Attributes:
        start_seconds: Start of the first bin, Unix time.
        means: By series, each of shape (n_bins,); NaN for gaps.
        maxima: Highest sample of each bin, same shapes.
        lengths: Token lengths of a trace's clients.
        refused: Series that could not be read.
        flags: What was repaired.
    """

    start_seconds: int
    means: Mapping[str, Floats]
    maxima: Mapping[str, Floats]
    lengths: tuple[TokenLengths, ...] = ()
    refused: Mapping[str, InputError] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def until_seconds(self) -> int:
        """End of the last bin."""
        n_bins = max(len(row) for row in self.means.values())
        return self.start_seconds + n_bins * BIN_SECONDS


def history_of_trace(
    file: Path,
    format: TraceFormat,
    name: str | None,
    end: End,
    progress: Progress | None = None,
) -> ImportedHistory:
    """Rates of a trace's requests and tokens.

    Args:
        file: The trace.
        format: Who wrote it.
        name: Of its series; None takes the file's.
        end: Where it is to end, at hours of day that stay what they were.
        progress: Told how far it is.

    Raises:
        InputError: for a damaged trace, or one of relative times that is to stay where it is.
    """
    series = read_trace(file, format, BIN_SECONDS, progress)
    if end is not None:
        series = series.ending(math.floor(end))
    elif series.is_relative:
        raise InputError("ends", "now or a time: this trace counts from its own start", "own")
    chosen = name or file.name.split(".")[0]
    if not 0 < len(chosen) <= SHORT_NAME:
        raise InputError("name", f"1 to {SHORT_NAME} characters", chosen)
    rows = series.named(chosen)
    # Within a bin a trace's rate is its mean: forecasts are of bins.
    return ImportedHistory(series.start_seconds, rows, rows, series.lengths)


def history_of_table(
    file: Path, zone: str | None, end: End, progress: Progress | None = None
) -> ImportedHistory:
    """The series of a table; a column that is no number, or not finite, is left out and told.

    Args:
        file: CSV or Parquet.
        zone: Of times that state none.
        end: Where the last bin is to end; moved by whole bins.
        progress: Told how far it is.

    Raises:
        InputError: for a damaged file, or if no column can be read.
    """
    table = read_table(file, zone, progress)
    source = TableSource(table)
    start = math.floor(table.seconds[0] / BIN_SECONDS) * BIN_SECONDS
    until = math.ceil(max(table.until_seconds, table.seconds[-1] + 1) / BIN_SECONDS) * BIN_SECONDS
    if (until - start) // BIN_SECONDS > MAX_BINS:
        expected = f"at most {MAX_BINS} bins of {BIN_SECONDS} s"
        raise InputError("file", expected, (until - start) // BIN_SECONDS, str(file))
    refused = dict(table.refused)
    means, maxima = {}, {}
    for name in table.values:
        row = source.fetch([SeriesId(name)], start, until)[0]
        if np.isinf(row).any() or np.isnan(row).all():
            refused[name] = InputError(name, "finite values", "infinite or none", str(file))
            continue
        means[name] = row
        maxima[name] = source.maxima(SeriesId(name), start, until)
    if not means:
        raise next(iter(refused.values()))
    if end is not None:
        start += math.floor(end / BIN_SECONDS) * BIN_SECONDS - until
    flags = source.flags(SeriesId(next(iter(means))))
    return ImportedHistory(start, means, maxima, refused=refused, flags=flags)
