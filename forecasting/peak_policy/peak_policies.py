"""Policies that promise the peak of the coming window; chosen apart from the point models.

Up to the 0.9 quantile both take the joint paths at their word. Paths know little of a tail that is
met once a week, so the 0.99 comes from the highest bins of past days; between and beyond, the
quantile grows with -log10(1 - level), as an exponential tail does.

- ``RecordPolicy`` for single bursty clients: the seven-day maximum and most of how far it stands
  above the usual once more. A record is broken by as much as made it one; a series whose peaks are
  all alike needs no such room, and one of days ago less. Never less than the seven-day maximum.
- ``TypicalDayPolicy`` for sums of many: the mean of the paths' own 0.99 and of the highest bins of
  the last few hours and of one, three, seven and ten days, whose errors are little alike.
- ``SameHoursPolicy`` for load that keeps its hours: the highest of the same hours of seven days and
  most of how far it stands above their middle once more. The others know no hour.

No maximum is a floor of the typical day, nor of any promise once it is corrected: measured, a floor
costs reserve and spares hardly a miss (``docs/forecast-peaks.md``).

The first two shapes were chosen by the reserve at equal risk on bins 0-1439
(``docs/forecast-peaks.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from forecasting.peak_policy.evidence import PeakEvidence
from forecasting.series_source import Floats

PATH_LEVEL: Final = 0.9
"""Highest level at which paths are believed: twenty of two hundred lie above."""

TOP_LEVEL: Final = 0.99

RECORD_DAYS: Final = 7
"""Days that a record is of."""

RECENT_DAYS: Final = 3

TYPICAL_DAYS: Final = (1, 3, 7, 10)


class PeakPolicy(Protocol):
    """Evidence in, quantiles of the window's peak out."""

    def quantiles(self, evidence: PeakEvidence, levels: Sequence[float]) -> Floats:
        """Quantiles of the highest value of the window, sorted over levels, at least 0.

        Args:
            evidence: Of all series.
            levels: In (0, 1), ascending.

        Returns:
            Shape (n_series, n_levels); not calibrated.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecordPolicy:
    """The record of seven days, and a share of how far it stands out.

    Attributes:
        share: Of the record's height above the usual.
        faded_share: Of its height above the last three days' highest, taken off that room.
        days: That the record is of.
    """

    share: float = 0.8
    faded_share: float = 0.3
    days: int = RECORD_DAYS

    def quantiles(self, evidence: PeakEvidence, levels: Sequence[float]) -> Floats:
        """As ``PeakPolicy``."""
        record = evidence.highest_of(self.days)
        room = self.room(record, evidence.highest_of(RECENT_DAYS), evidence.usual)
        return with_top(evidence, levels, record + room, room)

    def room(self, record: Floats, recent: Floats, usual: Floats) -> Floats:
        """What is promised above the record, any shape.

        Args:
            record: The highest bin.
            recent: The highest of the last three days.
            usual: The usual.
        """
        high = np.maximum(record - usual, 0.0)
        result: Floats = np.maximum(
            self.share * high - self.faded_share * np.maximum(record - recent, 0.0), 0.0
        )
        return result


@dataclass(frozen=True, slots=True)
class TypicalDayPolicy:
    """What paths, the last hours and the highest bins of some days say together."""

    def quantiles(self, evidence: PeakEvidence, levels: Sequence[float]) -> Floats:
        """As ``PeakPolicy``."""
        of_paths = evidence.path_quantiles((PATH_LEVEL, TOP_LEVEL))
        highest = [evidence.highest_of(days) for days in TYPICAL_DAYS]
        top = np.mean([of_paths[:, 1], evidence.recent_maximum, *highest], axis=0)
        return with_top(evidence, levels, top, of_paths[:, 1] - of_paths[:, 0])


@dataclass(frozen=True, slots=True)
class SameHoursPolicy:
    """The record of the window's hours, and a share of how far it stands out among them.

    Attributes:
        share: Of the record's height above the middle of these hours' maxima; the record's own.
    """

    share: float = 0.8

    def quantiles(self, evidence: PeakEvidence, levels: Sequence[float]) -> Floats:
        """As ``PeakPolicy``."""
        of_paths = evidence.path_quantiles((PATH_LEVEL, TOP_LEVEL))
        # A series that has just grown has paths above what its hours were.
        top = np.maximum(self.top(evidence.same_hours), of_paths[:, 0])
        return with_top(evidence, levels, top, of_paths[:, 1] - of_paths[:, 0])

    def top(self, same_hours: Floats) -> Floats:
        """What is promised.

        Args:
            same_hours: Maxima by day, shape (n_series, n_days).
        """
        record = same_hours.max(axis=1)
        result: Floats = record + self.share * (record - np.median(same_hours, axis=1))
        return result


def with_top(
    evidence: PeakEvidence, levels: Sequence[float], top: Floats, per_decade: Floats
) -> Floats:
    """Path quantiles up to 0.9, a given 0.99, and an exponential tail beyond.

    Where paths and top disagree, the top gives way to the paths' median (a series that has grown
    beyond its past) and higher quantiles of the paths give way to the top: lifting it to their 0.9
    instead costs a tenth more reserve at equal risk.

    Args:
        evidence: Its paths count.
        levels: In (0, 1), ascending.
        top: The 0.99 quantile, shape (n_series,).
        per_decade: What the tail grows by when misses become ten times as rare, (n_series,).

    Returns:
        Sorted over levels, at least 0, shape (n_series, n_levels).
    """
    asked = np.asarray(levels, dtype=np.float64)
    middle, base = evidence.path_quantiles((0.5, PATH_LEVEL)).T
    top = np.maximum(top, middle)
    base = np.minimum(base, top)
    known = evidence.path_quantiles(tuple(np.minimum(asked, PATH_LEVEL)))
    decades = np.log10((1 - PATH_LEVEL) / (1 - np.maximum(asked, PATH_LEVEL)))
    full = np.log10((1 - PATH_LEVEL) / (1 - TOP_LEVEL))
    upward = (top - base)[:, None] * np.minimum(decades / full, 1.0)
    beyond = per_decade[:, None] * np.maximum(decades - full, 0.0)
    lower = np.minimum(known, base[:, None])
    result: Floats = np.maximum.accumulate(np.maximum(lower + upward + beyond, 0.0), axis=1)
    return result
