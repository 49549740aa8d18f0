"""What an engine has learned: a value, and losing it costs a rehearsal and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.calibration.pooled import PooledCalibration
from forecasting.calibration.promise_record import PromiseRecord
from forecasting.combination import LossRecord
from forecasting.open_issues import OpenIssue
from forecasting.series_source import SeriesId

Pool = tuple[str, str]
"""Namespace and kind: misses are pooled over both, nobody's series moves another namespace's."""

RECORDED_LEVEL: Final = 0.99
"""Promises of the window's peak that are counted, series by series."""


def rows_by_pool(
    series: Sequence[SeriesId], pools: Mapping[SeriesId, Pool]
) -> dict[Pool, NDArray[np.intp]]:
    """Rows of each pool among some series."""
    return places_of([pools[name] for name in series])


def places_of(pools: Sequence[Pool]) -> dict[Pool, NDArray[np.intp]]:
    """Places of each pool among those of some rows."""
    found: dict[Pool, list[int]] = {}
    for i, pool in enumerate(pools):
        found.setdefault(pool, []).append(i)
    return {pool: np.array(rows, dtype=np.intp) for pool, rows in found.items()}


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """What one engine hands to its next round, and to the next process.

    Attributes:
        open_issues: Oldest first.
        points: Calibration of step quantiles by pool.
        peaks: Calibration of the window's peaks by pool.
        losses: What the tiers have lost.
        records: What became of each series' promised p99.
    """

    open_issues: tuple[OpenIssue, ...] = ()
    points: Mapping[Pool, PooledCalibration] = field(default_factory=dict)
    peaks: Mapping[Pool, PooledCalibration] = field(default_factory=dict)
    losses: LossRecord = field(default_factory=LossRecord)
    records: Mapping[SeriesId, PromiseRecord] = field(default_factory=dict)

    def of(self, series: Collection[SeriesId]) -> EngineMemory:
        """What concerns series that still exist; pools keep what they have learned as pools."""
        there = set(series)
        return replace(
            self,
            open_issues=tuple(issue.of(series) for issue in self.open_issues),
            points={pool: kept.only(there) for pool, kept in self.points.items()},
            peaks={pool: kept.only(there) for pool, kept in self.peaks.items()},
            losses=self.losses.of(there),
            records={k: v for k, v in self.records.items() if k in there},
        )

    def record(self, name: SeriesId) -> PromiseRecord:
        """A series' record; an empty one before its first window."""
        found = self.records.get(name)
        return PromiseRecord.new((RECORDED_LEVEL,)) if found is None else found
