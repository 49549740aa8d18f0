"""How good forecasts are: losses, coverage, broken peaks, and reserve at equal risk.

Pure functions of arrays; shares no code with ``forecasting``. Shapes: W windows, S series, H steps,
L levels. Windows of which nothing changes from one day to the next have no scale and do not count
where a scale is divided by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError

__all__ = [
    "DECILES",
    "Losses",
    "Ratios",
    "at_level",
    "broken",
    "coverage",
    "equal_risk_shift",
    "losses",
    "median_coverage",
    "ratios",
    "reserve_ratio",
    "shifted",
    "wape",
]

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

DECILES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Levels that the losses are means over."""

ROUNDING: Final = 1e-9
"""Share of a promise by which a peak may pass it: figures of statuses have six digits at best."""


def at_level(quantiles: Floats, levels: Sequence[float], level: float) -> Floats:
    """One level's quantiles, (..., L) to (...).

    Raises:
        InputError: if that level is not there.
    """
    for i, known in enumerate(levels):
        if abs(known - level) < 1e-9:
            found: Floats = quantiles[..., i]
            return found
    raise InputError("levels", f"{level:g} among them", tuple(levels))


# -- losses ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Losses:
    """What one model lost on one set.

    Attributes:
        pinball: 2·max(τe, (τ−1)e), mean over the deciles, shape (W, S, H).
        absolute: |e| of the median, shape (W, S, H).
        truth: Shape (W, S, H).
        scales: Shape (W, S).
    """

    pinball: Floats
    absolute: Floats
    truth: Floats
    scales: Floats

    @property
    def sql_by_series(self) -> Floats:
        """Scaled quantile loss, mean over bins and windows, shape (S,)."""
        return _scaled(self.pinball, self.scales)

    @property
    def mase_by_series(self) -> Floats:
        """Absolute error of the median on the same scale, shape (S,)."""
        return _scaled(self.absolute, self.scales)

    @property
    def sql(self) -> float:
        """Mean over series."""
        return float(np.nanmean(self.sql_by_series))

    @property
    def mase(self) -> float:
        """Mean over series."""
        return float(np.nanmean(self.mase_by_series))

    @property
    def wql(self) -> float:
        """Σ pinball ÷ Σ |y|, pooled over the set."""
        return float(self.pinball.sum() / np.abs(self.truth).sum())


def losses(quantiles: Floats, levels: Sequence[float], truth: Floats, scales: Floats) -> Losses:
    """Of step quantiles of shape (W, S, H, L); they are cut at 0 for every model.

    Raises:
        InputError: for a decile that is missing, or quantiles that are not finite.
    """
    if not np.isfinite(quantiles).all():
        raise InputError("quantiles", "finite numbers for every window, series, step and level")
    cut = np.maximum(quantiles, 0.0)
    pinball = np.zeros(truth.shape)
    for level in DECILES:
        error = truth - at_level(cut, levels, level)
        pinball += 2 * np.maximum(level * error, (level - 1) * error) / len(DECILES)
    return Losses(pinball, np.abs(truth - at_level(cut, levels, 0.5)), truth, scales)


def _scaled(loss: Floats, scales: Floats) -> Floats:
    """Mean over steps and windows of loss ÷ scale, shape (S,); NaN for a series without scale."""
    usable = scales > 0
    shares = np.where(usable, loss.mean(axis=2) / np.where(usable, scales, 1.0), 0.0)
    windows = usable.sum(axis=0)
    result: Floats = np.where(
        windows > 0, shares.sum(axis=0) / np.where(windows > 0, windows, 1), np.nan
    )
    return result


@dataclass(frozen=True, slots=True)
class Ratios:
    """A model's losses as shares of seasonal naive's.

    Attributes:
        sql: Of the means over series.
        sql_geometric: Geometric mean of the series' own ratios, where both are above 0.
        mase: Of the means over series.
        wql: Of the pooled losses.
    """

    sql: float
    sql_geometric: float
    mase: float
    wql: float


def ratios(model: Losses, naive: Losses) -> Ratios:
    """Both of the same windows and series."""
    ours, theirs = model.sql_by_series, naive.sql_by_series
    usable = (ours > 0) & (theirs > 0)
    return Ratios(
        sql=model.sql / naive.sql,
        sql_geometric=float(np.exp(np.mean(np.log(ours[usable] / theirs[usable])))),
        mase=model.mase / naive.mase,
        wql=model.wql / naive.wql,
    )


def wape(points: Floats, truth: Floats) -> float:
    """Σ |error| ÷ Σ |y|, pooled over everything."""
    return float(np.abs(points - truth).sum() / np.abs(truth).sum())


# -- calibration -----------------------------------------------------------------------------------


def coverage(quantile: Floats, truth: Floats) -> Floats:
    """P(y ≤ q) of each series over windows and steps, (W, S, H) to (S,)."""
    result: Floats = (truth <= quantile).mean(axis=(0, 2))
    return result


def median_coverage(quantile: Floats, truth: Floats) -> Floats:
    """½(P(y < q) + P(y ≤ q)) of each series: zeros that were forecast count half, (S,)."""
    below: Floats = (truth < quantile).mean(axis=(0, 2))
    return 0.5 * (coverage(quantile, truth) + below)


def broken(promised: Floats, truth: Floats) -> Booleans:
    """Whether a window's highest bin passed its promise, (W, S) and (W, S, H) to (W, S)."""
    peaks = truth.max(axis=2)
    result: Booleans = peaks > promised + ROUNDING * np.maximum(peaks, 1.0)
    return result


# -- reserve at equal risk -------------------------------------------------------------------------


def shifted(reserves: Floats, scales: Floats, shift: float) -> Floats:
    """Reserves moved by so many scales, never below 0, shape (W, S)."""
    return np.maximum(reserves + shift * scales, 0.0)


def equal_risk_shift(reserves: Floats, peaks: Floats, scales: Floats, share: float) -> float:
    """The smallest c so that at most ``share`` of windows pass their reserve + c·scale.

    One c for the set, positive or negative: what is compared is how policies spread a reserve, not
    how bold they are. A window without a peak cannot be broken, one without a scale does not count.

    Args:
        reserves: Shape (W, S).
        peaks: What was reached, shape (W, S).
        scales: Shape (W, S).
        share: Of windows that may be broken.

    Raises:
        InputError: if no window has a scale.
    """
    counted = scales > 0
    if not counted.any():
        raise InputError("scales", "a window whose training changes from day to day")
    allowed = int(np.floor(share * counted.sum() + 1e-9))
    usable = counted & (peaks > 0)
    needed = np.sort((peaks[usable] - reserves[usable]) / scales[usable])[::-1]
    return float(needed[allowed]) if allowed < len(needed) else -np.inf


def reserve_ratio(reserves: Floats, peaks: Floats) -> float:
    """Σ reserve ÷ Σ peak of each series, geometric mean over series with peaks, (W, S) each."""
    total = peaks.sum(axis=0)
    used = total > 0
    return float(np.exp(np.mean(np.log(reserves.sum(axis=0)[used] / total[used]))))
