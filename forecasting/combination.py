"""The tiers' forecasts become one: the mean of their quantiles, weighted by their recent loss.

Weights are never frozen. They rest on forecasts that were really made before and whose bins are
over, per series and band of steps: near steps belong to whoever follows the newest value, far ones
to whoever knows the day. What a single series has seen is shrunk towards its pool.

Averaging quantiles level by level keeps the shape of the distributions, where averaging
probabilities would widen them (Lichtendahl, Grushka-Cockayne and Winkler, Management Science 59
(2013), section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forecasting.series_source import Floats

BAND_ENDS: Final = (1, 3, 9, 36, 144, 1008)
"""Last step of each band that has weights of its own; later steps belong to the last one."""

HALF_LIFE_SECONDS: Final = 3 * 86400
"""Age at which a loss counts half."""

POOL_WINDOWS: Final = 4.0
"""Windows of one series that weigh as much as its pool."""

PRIOR_WINDOWS: Final = 2.0
"""Windows of a pool that weigh as much as the prior losses."""

SHARPNESS: Final = 8.0
"""Weights are relative losses to the power of minus this. On bins 0-1439 losses fall up to 8 and
are flat from there; there is no floor, since a tier without weight is judged all the same."""

FEW_SHARPNESS: Final = 5.0
FEW_SERIES: Final = 16.0
"""The power of a pool of a single series, and the size of one half-way to the other: the fewer, the
more of a difference is chance."""

PRIOR_LOSSES: Final[Mapping[str, float]] = {
    "boosted": 1.0,
    "ridge": 1.04,
    "smoothing": 1.04,
    "last-value": 1.5,
    "seasonal-naive": 1.6,
    "last-24h-max": 2.6,
}
"""Losses relative to the best tier before anything was seen, from bins 0-1439; a foreign tier is
taken for an ordinary one."""

FOREIGN_LOSS: Final = 1.1


@dataclass(frozen=True, slots=True)
class LossRecord:
    """What every tier has lost lately, decayed; empty at first. ``settled`` makes the next one.

    Attributes:
        tiers: Names, in the order of the first axis.
        series: Names, in the order of the second axis.
        sums: Decayed sum of mean losses, shape (n_tiers, n_series, n_bands).
        windows: Decayed number of windows behind them, same shape.
        until_seconds: Time of the newest loss, Unix time.
    """

    tiers: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    sums: Floats = field(default_factory=lambda: np.zeros((0, 0, len(BAND_ENDS))))
    windows: Floats = field(default_factory=lambda: np.zeros((0, 0, len(BAND_ENDS))))
    until_seconds: int = 0

    def of(self, series: Set[str]) -> LossRecord:
        """Without series that are not forecast any more."""
        if all(name in series for name in self.series):
            return self
        return carried(self, self.tiers, tuple(name for name in self.series if name in series))


def band_losses(quantiles: Floats, came: Floats, levels: Sequence[float], first: int = 0) -> Floats:
    """Mean pinball loss of each series and band of steps, shape (n_series, n_bands).

    Args:
        quantiles: As issued, shape (n_series, horizon, n_levels); NaN rows without an answer.
        came: What came, shape (n_series, horizon); NaN where nothing was observed or is not over.
        levels: Shape (n_levels,).
        first: Steps of the issue before these.

    Returns:
        NaN where nothing can be said.
    """
    tau = np.asarray(levels)
    miss = came[:, :, None] - quantiles
    loss = np.mean(np.maximum(tau * miss, (tau - 1) * miss), axis=2)
    bands = step_bands(first + came.shape[1])[first:]
    result = np.full((len(came), len(BAND_ENDS)), np.nan)
    for band in np.unique(bands).tolist():
        part = loss[:, bands == band]
        there = np.isfinite(part)
        some = there.any(axis=1)
        result[some, band] = np.sum(part[some], axis=1, where=there[some]) / there[some].sum(axis=1)
    return result


def band_shares(horizon: int, first: int, last: int) -> Floats:
    """Share of each band's steps that lie behind the first ones and up to the last, (n_bands,)."""
    bands = step_bands(horizon)
    whole = np.bincount(bands, minlength=len(BAND_ENDS))
    result: Floats = np.bincount(bands[first:last], minlength=len(BAND_ENDS)) / np.maximum(whole, 1)
    return result


def settled(
    record: LossRecord,
    series: Sequence[str],
    losses: Mapping[str, Floats],
    at_seconds: int,
    windows: float | Floats = 1.0,
) -> LossRecord:
    """The record with the losses of one issue whose bins are over.

    Tiers that are not in this issue are forgotten; series that are not stay, and their losses age.
    New ones begin without a past.

    Args:
        record: The one before.
        series: Names, in the order of the losses.
        losses: By tier's name, shape (n_series, n_bands), NaN without an answer.
        at_seconds: When the bins were over, Unix time.
        windows: What the issue counts, of each band where it is an array: see ``band_shares``.
    """
    issued = set(series)
    others = tuple(name for name in record.series if name not in issued)
    names, rows = tuple(losses), (*series, *others)
    before = carried(record, names, rows)
    fade = 0.5 ** (max(0, at_seconds - record.until_seconds) / HALF_LIFE_SECONDS)
    new = np.full(before.sums.shape, np.nan)
    for place, name in enumerate(names):
        new[place, : len(series)] = losses[name]
    there = np.isfinite(new)
    return LossRecord(
        tiers=names,
        series=rows,
        sums=before.sums * fade + np.where(there, new, 0.0) * windows,
        windows=before.windows * fade + there * windows,
        until_seconds=at_seconds,
    )


def weights(
    record: LossRecord, tiers: Sequence[str], series: Sequence[str], pools: np.ndarray | None = None
) -> Floats:
    """How much each tier counts, shape (n_tiers, n_series, n_bands); sums to 1 over tiers.

    Args:
        record: Recent losses.
        tiers: Names as asked now.
        series: Names as asked now.
        pools: Class of each series, whole numbers, shape (n_series,); None is one pool.
    """
    known = carried(record, tuple(tiers), tuple(series))
    classes = np.zeros(len(series), dtype=np.intp) if pools is None else np.asarray(pools)
    seen = known.windows > 0
    mean = known.sums / np.where(seen, known.windows, 1.0)
    # Only tiers that were judged on a series are compared there.
    best = np.min(mean, axis=0, initial=np.inf, where=seen)
    usual = (best > 0) & np.isfinite(best)
    relative = np.where(seen & usual, mean / np.where(usual, best, 1.0), 1.0)
    prior = np.array([PRIOR_LOSSES.get(name.split("/")[0], FOREIGN_LOSS) for name in tiers])[
        :, None
    ]
    losses, power = np.empty_like(relative), np.empty(len(series))
    for pool in np.unique(classes).tolist():
        members = classes == pool
        n, own = known.windows[:, members], relative[:, members]
        count = np.mean(n, axis=1)
        pooled = np.sum(n * own, axis=1) / np.maximum(np.sum(n, axis=1), 1e-12)
        shrunk = (PRIOR_WINDOWS * prior + count * pooled) / (PRIOR_WINDOWS + count)
        losses[:, members] = (n * own + POOL_WINDOWS * shrunk[:, None]) / (n + POOL_WINDOWS)
        size = float(members.sum())
        share = (size - 1) / (size - 1 + FEW_SERIES)
        power[members] = FEW_SHARPNESS + (SHARPNESS - FEW_SHARPNESS) * share
    raw = np.maximum(losses, 1e-3) ** -power[:, None]
    result: Floats = raw / np.sum(raw, axis=0, keepdims=True)
    return result


def combine(quantiles: Sequence[Floats], weights: Floats) -> Floats:
    """The weighted mean of quantiles level by level, shape (n_series, horizon, n_levels).

    Args:
        quantiles: Of each tier, shape (n_series, horizon, n_levels); rows of NaN do not count.
        weights: Shape (n_tiers, n_series, n_bands).

    Returns:
        Sorted over levels; rows of NaN where no tier answered.
    """
    bands = step_bands(quantiles[0].shape[1])
    total = np.zeros_like(quantiles[0])
    mass = np.zeros(quantiles[0].shape[:2])
    for made, weight in zip(quantiles, weights, strict=True):
        answered = np.isfinite(made[:, 0, 0])
        share = weight[answered][:, bands]
        total[answered] += share[:, :, None] * made[answered]
        mass[answered] += share
    result = np.full_like(total, np.nan)
    some = mass[:, 0] > 0
    result[some] = np.sort(total[some] / mass[some][:, :, None], axis=2)
    return result


def step_bands(horizon: int) -> np.ndarray:
    """The band of each step, shape (horizon,)."""
    steps = np.arange(1, horizon + 1)
    result: np.ndarray = np.minimum(np.searchsorted(BAND_ENDS, steps), len(BAND_ENDS) - 1)
    return result


def carried(record: LossRecord, tiers: tuple[str, ...], series: tuple[str, ...]) -> LossRecord:
    """The record in another order of tiers and series; zeros where it knows nothing."""
    if record.tiers == tiers and record.series == series:
        return record
    shape = len(tiers), len(series), len(BAND_ENDS)
    sums, windows = np.zeros(shape), np.zeros(shape)
    old = {name: i for i, name in enumerate(record.series)}
    places = np.array([old.get(name, -1) for name in series], dtype=np.intp)
    there = places >= 0
    for i, name in enumerate(tiers):
        if name in record.tiers:
            j = record.tiers.index(name)
            sums[i, there] = record.sums[j, places[there]]
            windows[i, there] = record.windows[j, places[there]]
    return LossRecord(tiers, series, sums, windows, record.until_seconds)
