"""Rehearsal on the history: what would have been promised at each earlier window, and was it kept?

A restarted forecaster has no record. Before its first answer it goes through the windows of its
history in order, each with only what was known then, so that calibration, coverage and the choice
between forecasters rest on out-of-sample windows and not on a hope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.clean_history import observed
from forecasting.forecast_choice import DAY_SECONDS, Method, forecast
from forecasting.series_source import Floats, History

MIN_TRAINING_DAYS: Final = 4
MIN_WINDOWS: Final = 8
CHOICE_MARGIN: Final = 0.95
"""A simple method wins only when its loss is 5 % lower; 24 windows tell no finer difference."""

CANDIDATES: Final[tuple[Method, ...]] = ("ridge", "last-value", "last-24h-max")


@dataclass(frozen=True, slots=True)
class Replay:
    """What earlier windows teach.

    Attributes:
        methods: The method chosen for each series.
        scores: (peak - promise) / scale of the method that earlier windows chose, oldest first,
            shape (n_windows, n_series, n_levels); NaN where a window had too little data.
    """

    methods: tuple[Method, ...]
    scores: Floats


def pinball_loss(level: float, promised: Floats, realised: Floats) -> Floats:
    """Loss of a quantile forecast; lower is better, 0 only for the exact value."""
    miss = realised - promised
    return np.maximum(level * miss, (level - 1) * miss)


def realised_peaks(window: Floats) -> Floats:
    """Highest value of each window, NaN if under half of it was observed; shape (n_series,)."""
    known = observed(window)
    enough = known.mean(axis=1) >= 0.5
    return np.where(enough, np.max(np.where(known, window, -np.inf), axis=1), np.nan)


def replay(
    history: History,
    *,
    horizon: int,
    levels: tuple[float, ...],
) -> Replay:
    """Go through all non-overlapping windows of the history.

    Args:
        history: What was observed.
        horizon: Steps of a window.
        levels: Ascending.
    """
    series, n_bins = history.series, history.values.shape[1]
    first = MIN_TRAINING_DAYS * DAY_SECONDS // history.step_seconds
    cuts = np.arange(n_bins - horizon, first - 1, -horizon)[::-1]
    scores = {m: np.full((len(cuts), len(series), len(levels)), np.nan) for m in CANDIDATES}
    losses = {m: np.full((len(cuts), len(series)), np.nan) for m in CANDIDATES}
    for w, cut in enumerate(cuts):
        peaks = realised_peaks(history.values[:, cut : cut + horizon])
        for method in CANDIDATES:
            made = forecast(
                history.before(int(cut)),
                horizon=horizon,
                levels=levels,
                prefer=dict.fromkeys(series, method),
            )
            ready = np.array([m != "limit" for m in made.methods])
            gap = (peaks[:, None] - made.peaks) / made.scale[:, None]
            scores[method][w] = np.where(ready[:, None], gap, np.nan)
            loss = np.mean(
                [pinball_loss(q, made.peaks[:, i], peaks) for i, q in enumerate(levels)], axis=0
            )
            losses[method][w] = np.where(ready, loss, np.nan)
    chosen = np.full((len(cuts), len(series), len(levels)), np.nan)
    for i in range(len(series)):
        for w in range(len(cuts)):
            chosen[w, i] = scores[_choose(losses, i, before=w)][w, i]
    methods = tuple(_choose(losses, i, before=len(cuts)) for i in range(len(series)))
    return Replay(methods, chosen)


def _choose(losses: dict[Method, Floats], i: int, before: int) -> Method:
    """Ridge, unless a simple method was clearly better over enough windows."""
    table = np.array([losses[method][:before, i] for method in CANDIDATES])
    complete = np.all(np.isfinite(table), axis=0)
    if complete.sum() < MIN_WINDOWS:
        return CANDIDATES[0]
    means = table[:, complete].mean(axis=1)
    means[0] *= CHOICE_MARGIN
    return CANDIDATES[int(np.argmin(means))]
