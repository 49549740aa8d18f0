"""A record for series that have none: their history is gone through, window by window.

At each earlier window an engine of its own forecasts from what was known then. What it learns is
out of sample, so a restarted forecaster knows its errors before its first answer. A backtest and a
benchmark run the same engine: what they print is what the process publishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

import numpy as np

from forecasting.calibration.pooled import PooledCalibration
from forecasting.combination import LossRecord
from forecasting.engine_memory import EngineMemory, Pool
from forecasting.engine_question import Beside, Question, Shape
from forecasting.forecast_engine import Engine
from forecasting.forecaster import Forecaster
from forecasting.peak_policy.peak_policies import RECORD_DAYS
from forecasting.series_source import History, SeriesId

MIN_TRAINING_DAYS: Final = 4
"""Days of history before the first rehearsed window."""

ENOUGH_WINDOWS: Final = 300
"""Windows of series in which three are expected to miss a p99. Where neither the rehearsal nor what
its pool knows has so many, those behind a short record teach peaks, too. Clients, bins 0-1439,
origins from day 8, ridge: uncorrected p99 of peaks are missed in 1.0 % at a reserve of 4.01;
corrected by all windows 0.6 % at 4.48."""


def rehearsed(
    shape: Shape,
    tiers: Sequence[Forecaster],
    history: History,
    pools: Mapping[SeriesId, Pool],
    memory: EngineMemory,
    beside: Beside | None = None,
) -> EngineMemory:
    """The memory after the windows of a history, which do not overlap.

    Args:
        shape: What is asked.
        tiers: New ones, without any history.
        history: Of series without a record.
        pools: Of these series and of all others that are forecast: what few series show counts for
            no more than their share of a pool.
        memory: What is known; calibration of pools goes on from there.
        beside: What is known of them beside their history.
    """
    base = rehearsal_base(memory)
    learned = gone_through(shape, tiers, history, pools, base, beside)
    return with_learned(memory, base, learned)


def rehearsal_base(memory: EngineMemory) -> EngineMemory:
    """What a rehearsal begins with."""
    return EngineMemory(points=memory.points, peaks=memory.peaks)


def gone_through(
    shape: Shape,
    tiers: Sequence[Forecaster],
    history: History,
    pools: Mapping[SeriesId, Pool],
    base: EngineMemory,
    beside: Beside | None = None,
) -> EngineMemory:
    """What the windows of a history teach, on top of ``base``; arguments as ``rehearsed``."""
    cuts = rehearsal_cuts(history.values.shape[1], shape)
    engine, known = Engine(shape, tiers, base, rehearsed=True), beside or Beside()
    nothing = np.full(len(history.series), np.nan)
    behind = [cut for cut in cuts if cut >= RECORD_DAYS * shape.day_steps]
    sure = _sure_pools({pools[name] for name in history.series}, history, behind, base)
    for cut in cuts:
        if behind and cut == behind[0]:
            engine.memory = _without_short_records(engine.memory, base, sure)
        then = known.before(cut)
        engine.issue(Question(history.before(cut), pools, nothing, beside=then))
    engine.settle(history, pools, known)
    return engine.memory if behind else _without_short_records(engine.memory, base, sure)


def with_learned(memory: EngineMemory, base: EngineMemory, learned: EngineMemory) -> EngineMemory:
    """The memory with what a rehearsal learned.

    Args:
        memory: As it is now.
        base: What the rehearsal began with. A pool that has learned of real promises since goes on
            from these or from the rehearsal, whichever rests on more windows.
        learned: What it ended with. What really became of promises meanwhile stays counted.
    """
    counted = {
        name: replace(memory.record(name), rehearsed=record.rehearsed)
        for name, record in learned.records.items()
    }
    return replace(
        memory,
        points=_renewed(memory.points, base.points, learned.points),
        peaks=_renewed(memory.peaks, base.peaks, learned.peaks),
        losses=joined(memory.losses, learned.losses),
        records={**memory.records, **counted},
    )


def _renewed(
    now: Mapping[Pool, PooledCalibration],
    base: Mapping[Pool, PooledCalibration],
    learned: Mapping[Pool, PooledCalibration],
) -> dict[Pool, PooledCalibration]:
    """Calibrations of all pools."""
    kept = {
        pool: one
        for pool, one in now.items()
        if one is not base.get(pool) and pool in learned and one.windows >= learned[pool].windows
    }
    return {**now, **learned, **kept}


def rehearsal_cuts(n_bins: int, shape: Shape) -> list[int]:
    """Where the windows begin, oldest first; the last one ends with the history."""
    first = MIN_TRAINING_DAYS * shape.day_steps
    return list(range(n_bins - shape.horizon, first - 1, -shape.horizon))[::-1]


def _sure_pools(
    pools: Set[Pool], history: History, behind: Sequence[int], base: EngineMemory
) -> Set[Pool]:
    """Pools whose peaks only windows behind a whole record teach: enough are, or were."""
    if len(behind) * len(history.series) >= ENOUGH_WINDOWS:
        return pools
    known = {pool for pool, kept in base.peaks.items() if kept.windows >= ENOUGH_WINDOWS}
    return pools & known


def _without_short_records(
    memory: EngineMemory, base: EngineMemory, sure: Set[Pool]
) -> EngineMemory:
    """What peaks miss while their record is short says nothing of a whole one."""
    if not sure:
        return memory
    kept = {pool: one for pool, one in memory.peaks.items() if pool not in sure}
    before = {pool: one for pool, one in base.peaks.items() if pool in sure}
    return replace(memory, peaks=kept | before, open_issues=())


def joined(one: LossRecord, other: LossRecord) -> LossRecord:
    """Losses of the series of both; where both know a series, the other's. Its tiers stay."""
    new = set(other.series)
    kept = [i for i, name in enumerate(one.series) if name not in new]
    sums, windows = np.zeros((2, len(other.tiers), len(kept), other.sums.shape[2]))
    for j, name in enumerate(other.tiers):
        if name in one.tiers:
            sums[j] = one.sums[one.tiers.index(name), kept]
            windows[j] = one.windows[one.tiers.index(name), kept]
    return LossRecord(
        tiers=other.tiers,
        series=(*(one.series[i] for i in kept), *other.series),
        sums=np.concatenate([sums, other.sums], axis=1),
        windows=np.concatenate([windows, other.windows], axis=1),
        until_seconds=max(one.until_seconds, other.until_seconds),
    )
