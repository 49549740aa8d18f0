"""Which policy a pool needs: the one that would have reserved less at equal risk.

Replayed over the windows of the history, without models: what tells the policies apart is how the
highest bins of past days foretell the next ones. The pool decides together, since one series has
four windows a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from forecasting.peak_policy.evidence import MOST_DAYS, SAME_HOURS_DAYS, USUAL_LEVEL
from forecasting.peak_policy.peak_policies import (
    RECENT_DAYS,
    TYPICAL_DAYS,
    PeakPolicy,
    RecordPolicy,
    SameHoursPolicy,
    TypicalDayPolicy,
)
from forecasting.series_source import Floats

RISK: Final = 0.01
FEWEST_MISSES: Final = 3.0
"""A risk is compared where at least so many windows (assumed) may miss: few of them say little."""

MARGIN: Final = 0.97
"""A wider policy is kept unless the next one reserves 3 % less (assumed): changes cost calibration.
From wide to tight: record, typical day, same hours."""

ALONE_RATIO: Final = 3.0
"""Times the second largest of a pool's ratios of reserve and peak that the largest counts as
(assumed): policies would else be chosen by what they leave a single client that hardly ever works.
Four totals lie closer together (bins 0-1439)."""

FIRST_DAY: Final = 2
"""Days before the first window that is replayed: a record needs something to be one of."""

MOST_SERIES: Final = 200
"""Series of a pool that are replayed (every so many-th): more add cost and nothing else."""


def choose_policy(values: Floats, horizon: int, day_steps: int) -> PeakPolicy:
    """The policy for series of one pool.

    Args:
        values: Filled history of all of them, shape (n_series, n_bins).
        horizon: Steps of a window.
        day_steps: Bins in a day.

    Returns:
        ``RecordPolicy`` where the history is too short to tell: it is the wider one.
    """
    sampled = values[:: -(-len(values) // MOST_SERIES) or 1]
    per_day = max(1, day_steps // horizon)
    n_windows = sampled.shape[1] // horizon
    if n_windows <= FIRST_DAY * per_day or not len(sampled):
        return RecordPolicy()
    cut = sampled[:, sampled.shape[1] - n_windows * horizon :]
    peaks = cut.reshape(len(cut), n_windows, horizon).max(axis=2)
    usual = np.quantile(cut, USUAL_LEVEL, axis=1)
    came = peaks[:, FIRST_DAY * per_day :]
    scale = _day_changes(cut, day_steps)
    share = max(RISK, FEWEST_MISSES / came.size)
    chosen: PeakPolicy = RecordPolicy()
    least = np.inf
    keeps_hours = per_day * horizon == day_steps
    for policy, tops in _replayed(peaks, usual, per_day, keeps_hours=keeps_hours):
        reserve = equal_risk_reserve(tops, came, scale, share)
        if reserve < MARGIN * least:
            chosen, least = policy, reserve
    return chosen


def equal_risk_reserve(reserves: Floats, peaks: Floats, scale: Floats, share: float) -> float:
    """Reserve over peak after the least additive c·scale that leaves a share of windows missed.

    Args:
        reserves: Shape (n_series, n_windows).
        peaks: What came, likewise.
        scale: At least 0, shape (n_series,).
        share: Of windows that may be missed.

    Returns:
        Geometric mean over series with peaks; infinity where there is none.
    """
    usable = (scale > 0) & (peaks.max(axis=1) > 0)
    if not usable.any():
        return np.inf
    reserves, peaks, scale = reserves[usable], peaks[usable], scale[usable]
    # What one series lacks beyond all others is no need of theirs.
    lacking = np.sort(_shared((peaks - reserves) / scale[:, None]).ravel())[::-1]
    shift = lacking[min(int(share * lacking.size), lacking.size - 1)]
    needed = np.maximum(reserves + shift * scale[:, None], 0.0).sum(axis=1) / peaks.sum(axis=1)
    # Less than what came is reserved where one burst was all: that is no merit of a policy.
    ratios = _shared(np.maximum(needed, 1.0)[:, None], ALONE_RATIO)
    return float(np.exp(np.mean(np.log(ratios))))


def _shared(rows: Floats, alone: float = 1.0) -> Floats:
    """Cut where only one series goes: one alone does not choose for all.

    Args:
        rows: Shape (n_series, n).
        alone: How many times as far as the next one it may go.
    """
    if len(rows) < 2:
        return rows
    result: Floats = np.minimum(rows, alone * np.partition(rows.max(axis=1), -2)[-2])
    return result


def _replayed(
    peaks: Floats, usual: Floats, per_day: int, *, keeps_hours: bool
) -> Iterator[tuple[PeakPolicy, Floats]]:
    """Each policy's tops before each window, without paths, (n_series, n_windows); wide ones first.

    Args:
        peaks: Of each window, (n_series, n_windows).
        usual: Of each series.
        per_day: Windows in a day.
        keeps_hours: Whether they fill it: else those of other days have other hours.
    """
    told, of_hours = RecordPolicy(), SameHoursPolicy()
    records, typical, hours = [], [], []
    for now in range(FIRST_DAY * per_day, peaks.shape[1]):
        past = peaks[:, max(0, now - MOST_DAYS * per_day) : now]
        recent, record, *highest = (
            past[:, -days * per_day :].max(axis=1)
            for days in (RECENT_DAYS, told.days, *TYPICAL_DAYS)
        )
        records.append(record + told.room(record, recent, usual))
        typical.append(np.mean([past[:, -1], *highest], axis=0))
        hours.append(of_hours.top(past[:, ::-1][:, per_day - 1 :: per_day][:, :SAME_HOURS_DAYS]))
    yield told, np.stack(records, axis=1)
    yield TypicalDayPolicy(), np.stack(typical, axis=1)
    if keeps_hours:
        yield of_hours, np.stack(hours, axis=1)


def _day_changes(values: Floats, day_steps: int) -> Floats:
    """Mean change from one day to the next, shape (n_series,)."""
    result: Floats = np.abs(values[:, day_steps:] - values[:, :-day_steps]).mean(axis=1)
    return result
