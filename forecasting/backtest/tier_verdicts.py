"""Which model behind a forecast earns its place: losses of each beside the whole's and naive's.

A model may have no answer for some windows (too short a history, no fit yet). So each is compared
over the windows that it answered itself, with what the forecast and seasonal naive lost there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from forecasting.backtest.window import MODELS, Window
from forecasting.series_source import Floats


@dataclass(frozen=True, slots=True)
class TierVerdict:
    """One model, over the windows that it answered.

    Attributes:
        model: Its name.
        windows: Answered by it, by the forecast and by seasonal naive.
        weight: Its mean share of the forecasts of all windows, those without its answer included.
        scaled: Mean over series of its loss in units of the mean change from day to day.
        geometric_ratio: Geometric mean of the series' ratios to seasonal naive's loss.
        pooled_ratio: Of the summed losses, as a share of seasonal naive's.
        over_forecast: Geometric mean of the series' ratios to the forecast's loss: above 1 it is
            worse alone than the models are together.
    """

    model: str
    windows: int
    weight: float
    scaled: float | None
    geometric_ratio: float | None
    pooled_ratio: float | None
    over_forecast: float | None


class _Answered(NamedTuple):
    """A window with a model's loss beside the forecast's and seasonal naive's."""

    series: str
    losses: tuple[float, float, float]
    unit: float


def tier_verdicts(windows: Sequence[Window]) -> tuple[TierVerdict, ...]:
    """Of each model behind the forecasts, the lowest loss over seasonal naive's first."""
    models = dict.fromkeys(tier.model for window in windows for tier in window.tiers)
    told = [_verdict(model, windows) for model in models]
    return tuple(sorted(told, key=lambda one: (one.geometric_ratio or np.inf, one.model)))


def _verdict(model: str, windows: Sequence[Window]) -> TierVerdict:
    behind = [window for window in windows if window.tiers]
    shares = [sum(t.weight for t in window.tiers if t.model == model) for window in behind]
    answered = [one for window in windows if (one := _answered(model, window)) is not None]
    by_series: dict[str, list[_Answered]] = {}
    for one in answered:
        by_series.setdefault(one.series, []).append(one)
    sums = np.array([np.sum([one.losses for one in of], axis=0) for of in by_series.values()])
    sums = sums.reshape(-1, 3)
    scaled = [
        np.mean([one.losses[0] / one.unit for one in of if one.unit > 0])
        for of in by_series.values()
        if any(one.unit > 0 for one in of)
    ]
    own, whole, naive = sums.T
    return TierVerdict(
        model=model,
        windows=len(answered),
        weight=float(np.mean(shares)),
        scaled=float(np.mean(scaled)) if scaled else None,
        geometric_ratio=_geometric(own, naive),
        pooled_ratio=float(own.sum() / naive.sum()) if naive.sum() > 0 else None,
        over_forecast=_geometric(own, whole),
    )


def _answered(model: str, window: Window) -> _Answered | None:
    own = next((tier.loss for tier in window.tiers if tier.model == model), None)
    whole, naive = (window.losses[MODELS.index(name)] for name in ("forecast", "seasonal naive"))
    if own is None or whole is None or naive is None or not window.bins:
        return None
    return _Answered(window.series, (own, whole, naive), window.bins * (window.scale or 0.0))


def _geometric(own: Floats, other: Floats) -> float | None:
    """Mean ratio of series where both have losses."""
    both = (own > 0) & (other > 0)
    return float(np.exp(np.mean(np.log(own[both] / other[both])))) if both.any() else None
