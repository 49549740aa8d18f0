"""What a backtest's windows say: were promises kept, at what reserve, and against what else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.backtest.references import MAXIMA_DAYS
from forecasting.backtest.tier_verdicts import TierVerdict, tier_verdicts
from forecasting.backtest.window import LEVELS, MODELS, Window
from forecasting.binomial import share_bounds
from forecasting.series_source import Floats

P99: Final = LEVELS.index(0.99)
EQUAL_RISK: Final = 0.01
"""Share of windows that every policy may miss where reserves are compared."""

ROUNDING: Final = 1e-6
"""Share by which a peak may pass a promise: figures have six digits."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """One level: stated and observed.

    Attributes:
        level: Stated.
        observed: Share of windows whose peak stayed at or below it.
        low: Lower 95 % bound of what that share can come from.
        high: Upper.
        steps: Share of bins at or below the steps' quantile of that level.
    """

    level: float
    observed: float
    low: float
    high: float
    steps: float


@dataclass(frozen=True, slots=True)
class Loss:
    """One model's losses of the steps, over the windows that every model answered.

    Attributes:
        model: Name.
        scaled: Mean over series of the loss in units of the mean change from day to day.
        ratio: That, as a share of seasonal naive's; None where nothing can be divided by.
        geometric_ratio: Geometric mean of the series' own ratios, where both have losses.
        pooled_ratio: Of the summed losses, as a share of seasonal naive's.
    """

    model: str
    scaled: float | None
    ratio: float | None
    geometric_ratio: float | None
    pooled_ratio: float | None


@dataclass(frozen=True, slots=True)
class Reserve:
    """One policy's promises for the peak.

    Attributes:
        policy: Name.
        missed: Share of windows whose peak was above it.
        reserve: Sum of promises over sum of peaks, geometric mean over series with a peak.
        equal_risk: The same after the smallest shift (in scales, with hindsight) that misses at
            most 1 %; None where nothing has a scale.
    """

    policy: str
    missed: float
    reserve: float | None
    equal_risk: float | None


@dataclass(frozen=True, slots=True)
class SeriesVerdict:
    """One series.

    Attributes:
        series: Name.
        method: Of its newest window.
        windows: With a promise and a peak.
        missed: Of them, above the p99.
        reserve: Sum of p99 over sum of peaks; None where nothing came.
        ratio: Its loss as a share of seasonal naive's.
    """

    series: str
    method: str
    windows: int
    missed: int
    reserve: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole backtest.

    Attributes:
        windows: With a promise and a peak.
        unanswered: Without a promise, or without enough observations to judge it.
        missed: Whose peak was above the p99.
        missed_low: Lower 95 % bound of the share missed (Clopper-Pearson), if windows were
            independent.
        missed_high: Upper.
        reliability: One entry a level.
        losses: Forecast first.
        tiers: Models behind the forecasts, the best first.
        reserves: Forecast first.
        series: Most missed first.
    """

    windows: int
    unanswered: int
    missed: int
    missed_low: float
    missed_high: float
    reliability: tuple[Reliability, ...]
    losses: tuple[Loss, ...]
    tiers: tuple[TierVerdict, ...]
    reserves: tuple[Reserve, ...]
    series: tuple[SeriesVerdict, ...]


def verdict_of(windows: Sequence[Window]) -> Verdict:
    """Everything that the windows say."""
    judged = [window for window in windows if window.counts]
    missed = sum(map(is_missed, judged))
    low, high = share_bounds(missed, len(judged))
    by_series = grouped(windows)
    told = [_series_verdict(name, of_one) for name, of_one in by_series.items()]
    return Verdict(
        windows=len(judged),
        unanswered=len(windows) - len(judged),
        missed=missed,
        missed_low=low,
        missed_high=high,
        reliability=_reliability(judged),
        losses=_losses(list(by_series.values())),
        tiers=tier_verdicts(windows),
        reserves=_reserves(judged),
        series=tuple(sorted(told, key=lambda one: (-one.missed, -one.windows, one.series))),
    )


def grouped(windows: Sequence[Window]) -> dict[str, list[Window]]:
    """By series, each oldest first."""
    found: dict[str, list[Window]] = {}
    for window in sorted(windows, key=lambda window: window.origin_seconds):
        found.setdefault(window.series, []).append(window)
    return found


def is_missed(window: Window) -> bool:
    """Whether the peak was above the promised p99."""
    return window.peak is not None and _above(window.peak, window.peaks[P99])


def _above(peak: float, promise: float) -> bool:
    return peak > promise + ROUNDING * abs(promise)


def _reliability(judged: Sequence[Window]) -> tuple[Reliability, ...]:
    bins = sum(window.bins for window in judged)
    told = []
    for i, level in enumerate(LEVELS):
        kept = sum(_kept(window, i) for window in judged)
        below = sum(window.below[i] for window in judged)
        low, high = share_bounds(round(kept), len(judged))
        share = kept / len(judged) if judged else 0.0
        told.append(Reliability(level, share, low, high, below / bins if bins else 0.0))
    return tuple(told)


def _kept(window: Window, i: int) -> float:
    """1 at or below the quantile, 0 above it; ties up to the median half, as for steps."""
    peak, promise = window.peak or 0.0, window.peaks[i]
    return 0.5 if LEVELS[i] <= 0.5 and peak == promise else float(not _above(peak, promise))


def _losses(by_series: Sequence[Sequence[Window]]) -> tuple[Loss, ...]:
    """Over the windows that all models answered: what one leaves out must not flatter it."""
    tables = [_loss_table(windows) for windows in by_series]
    pooled = np.sum([table.sum(axis=0) for table, _, _ in tables], axis=0) + np.zeros(len(MODELS))
    scaled = np.array([
        np.mean(table[of] / (bins[of] * scales[of])[:, None], axis=0)
        for table, scales, bins in tables
        if (of := scales > 0).any()
    ]).reshape(-1, len(MODELS))  # fmt: skip
    naive = MODELS.index("seasonal naive")
    means = scaled.mean(axis=0) if len(scaled) else np.full(len(MODELS), np.nan)
    told = []
    for i, model in enumerate(MODELS):
        both = (scaled[:, i] > 0) & (scaled[:, naive] > 0)
        logs = np.log(scaled[both, i] / scaled[both, naive])
        told.append(Loss(
            model, _finite(means[i]), _ratio(means[i], means[naive]),
            float(np.exp(logs.mean())) if both.any() else None, _ratio(pooled[i], pooled[naive]),
        ))  # fmt: skip
    return tuple(told)


def _loss_table(windows: Sequence[Window]) -> tuple[Floats, Floats, Floats]:
    """Losses (n, n_models), scales (n,) and bins (n,) of the windows that all models answered."""
    usable = [w for w in windows if w.bins and all(loss is not None for loss in w.losses)]
    table = np.array([w.losses for w in usable], dtype=np.float64).reshape(-1, len(MODELS))
    scales = np.array([w.scale or 0.0 for w in usable])
    return table, scales, np.array([float(w.bins) for w in usable])


def _reserves(judged: Sequence[Window]) -> tuple[Reserve, ...]:
    complete = [window for window in judged if None not in window.maxima]
    promised = {"forecast p99": [window.peaks[P99] for window in complete]}
    for i, days in enumerate(MAXIMA_DAYS):
        promised[f"{days}-day maximum"] = [window.maxima[i] or 0.0 for window in complete]
    return tuple(_reserve(name, complete, np.array(of)) for name, of in promised.items())


def _reserve(policy: str, windows: Sequence[Window], promised: Floats) -> Reserve:
    peaks = np.array([window.peak for window in windows], dtype=np.float64)
    if len(peaks) == 0:
        return Reserve(policy, 0.0, None, None)
    missed = float(np.mean(peaks > promised + ROUNDING * np.abs(promised)))
    names = [window.series for window in windows]
    scales = np.array([window.scale or 0.0 for window in windows])
    usable = scales > 0
    equal = None
    if usable.any():
        scores = np.sort((peaks[usable] - promised[usable]) / scales[usable])
        allowed = int(EQUAL_RISK * len(scores))
        shifted = np.maximum(promised + scores[len(scores) - 1 - allowed] * scales, 0.0)
        equal = reserve_ratio(names, shifted, peaks)
    return Reserve(policy, missed, reserve_ratio(names, promised, peaks), equal)


def reserve_ratio(names: Sequence[str], promised: Floats, peaks: Floats) -> float | None:
    """Sum of promises over sum of peaks, geometric mean over series whose peaks are not all 0."""
    sums: dict[str, list[float]] = {}
    for name, promise, peak in zip(names, promised, peaks, strict=True):
        one = sums.setdefault(name, [0.0, 0.0])
        one[0] += float(promise)
        one[1] += float(peak)
    ratios = [promise / peak for promise, peak in sums.values() if peak > 0 and promise > 0]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def _series_verdict(name: str, windows: Sequence[Window]) -> SeriesVerdict:
    judged = [window for window in windows if window.counts]
    promised = np.array([window.peaks[P99] for window in judged])
    peaks = np.array([window.peak for window in judged], dtype=np.float64)
    table, _, _ = _loss_table(windows)
    totals = table.sum(axis=0)
    return SeriesVerdict(
        series=name,
        method=windows[-1].method,
        windows=len(judged),
        missed=sum(map(is_missed, judged)),
        reserve=reserve_ratio([name] * len(judged), promised, peaks),
        ratio=_ratio(totals[0], totals[MODELS.index("seasonal naive")]),
    )


def _ratio(value: float, of: float) -> float | None:
    return float(value / of) if np.isfinite(value) and of > 0 else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
