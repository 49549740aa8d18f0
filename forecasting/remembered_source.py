"""A history that is asked only for what is new: ten days of a series are read once a day.

Ten days of a sum over thousands of boards cost a Prometheus seconds, and are asked for anew every
ten minutes. What was read is kept; each time the last hour is read again, since samples come late,
and once a day all of it, since somebody may have filled a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.series_source import (
    BIN_SECONDS,
    Floats,
    SeriesId,
    SeriesSource,
    bin_count,
    source_flags,
)

LATE_SECONDS: Final = 3600
"""How late a sample may come and still be seen in the next round. Assumed."""

WHOLE_AFTER_SECONDS: Final = 86_400
"""Of data time: after which a series is read as a whole again. Assumed."""

DOUBTS: Final = frozenset({"partial", "not-finite"})
"""Flags of answers that are read anew as a whole: the next may be better, or lack the flag."""

MOST_SERIES: Final = 20_000
"""Rows that are kept: 230 MB of ten days."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read of one series.

    Attributes:
        start_seconds: Start of the first bin.
        values: Bin means, shape (n_bins,).
        end_seconds: End of the last bin.
        whole_seconds: End of the range when all of it was read last.
    """

    start_seconds: int
    values: Floats
    end_seconds: int
    whole_seconds: int


class RememberedSource:
    """A ``SeriesSource`` before another one; for one reader, whose ranges move forward.

    Args:
        source: What is asked.
    """

    def __init__(self, source: SeriesSource) -> None:
        self._source = source
        self._kept: dict[tuple[SeriesId, int], _Kept] = {}

    def flags(self, series: SeriesId) -> tuple[str, ...]:
        """What the source says; see ``TellsFlags``."""
        return source_flags(self._source, series)

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = BIN_SECONDS,
    ) -> Floats:
        """Bin means; see ``SeriesSource``."""
        count = bin_count(start_seconds, end_seconds, step_seconds)
        rows = np.full((len(series), count), np.nan)
        by_begin: dict[int, list[int]] = {}
        for i, name in enumerate(series):
            begin = self._begin(name, start_seconds, end_seconds, step_seconds)
            by_begin.setdefault(begin, []).append(i)
        made: dict[SeriesId, _Kept] = {}
        for begin, places in by_begin.items():
            old = (begin - start_seconds) // step_seconds
            names = [series[i] for i in places]
            rows[places, old:] = self._source.fetch(names, begin, end_seconds, step_seconds)
            for i in places:
                whole_seconds = end_seconds
                if old:
                    kept = self._kept[series[i], step_seconds]
                    first = (start_seconds - kept.start_seconds) // step_seconds
                    rows[i, :old] = kept.values[first : first + old]
                    whole_seconds = kept.whole_seconds
                row = rows[i].copy()
                made[series[i]] = _Kept(start_seconds, row, end_seconds, whole_seconds)
        for name, kept in made.items():
            self._keep((name, step_seconds), kept)
        return rows

    def _begin(self, name: SeriesId, start: int, end: int, step: int) -> int:
        """From when on a series has to be read."""
        kept = self._kept.get((name, step))
        if kept is None or not kept.end_seconds <= end < kept.whole_seconds + WHOLE_AFTER_SECONDS:
            return start
        begin = (kept.end_seconds - LATE_SECONDS) // step * step
        return begin if kept.start_seconds <= start < begin else start

    def _keep(self, key: tuple[SeriesId, int], made: _Kept) -> None:
        """Remember a row, but none that its source doubts."""
        self._kept.pop(key, None)
        if DOUBTS.intersection(source_flags(self._source, key[0])):
            return
        while len(self._kept) >= MOST_SERIES:
            del self._kept[next(iter(self._kept))]  # whoever was not asked for longest
        self._kept[key] = made
