"""Boosted trees alone: one LightGBM model a quantile over all series, with plain settings.

Nothing here is tuned; rows are divided by the mean of their last three days. The time of day is in
the values of earlier days at the same time, not a number of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["BoostedAlone"]

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

DAY: Final = 144
LOOK_BACK: Final = 3 * DAY
MOST_ROWS: Final = 50_000
STEPS_OF_AN_ORIGIN: Final = 8
MOST_SCALES: Final = 20.0
"""Targets beyond so many means are cut; a client that was idle for days has almost no mean."""

SEED: Final = 1
SETTINGS: Final = {
    "objective": "quantile",
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 50,
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "seed": SEED,
}
ROUNDS: Final = 200
WINDOWS: Final = (3, 6, 18, 36, 72, 144, 432)


class BoostedAlone:
    """A global model; series share its trees."""

    def __init__(self) -> None:
        self._models: dict[float, Any] = {}
        self._past = np.empty((0, 0))

    def fit(self, past: Floats) -> None:
        """Remember the data; the models of the levels are made when levels are first asked."""
        self._past, self._models = past, {}

    def quantiles(self, past: Floats, horizon: int, levels: Sequence[float]) -> Floats:
        """Shape (n_series, horizon, n_levels), sorted over levels."""
        missing = [level for level in levels if level not in self._models]
        if missing:
            self._models |= _trained(self._past, horizon, missing)
        rows, series = np.divmod(np.arange(len(past) * horizon), horizon)
        at = np.full(len(rows), past.shape[1] - 1)
        features, scale = _features(past, rows, at, series + 1)
        found = np.stack([self._models[level].predict(features) for level in levels], axis=1)
        shaped = np.sort(found * scale[:, None], axis=1)
        return shaped.reshape(len(past), horizon, len(levels))


def _trained(past: Floats, horizon: int, levels: Sequence[float]) -> dict[float, Any]:
    import lightgbm

    random = np.random.default_rng(SEED)
    origins = np.arange(LOOK_BACK, past.shape[1] - horizon)
    each = STEPS_OF_AN_ORIGIN * len(past)
    origins = origins[:: -(-len(origins) * each // MOST_ROWS)]
    rows, at = (part.ravel() for part in np.meshgrid(np.arange(len(past)), origins))
    rows, at = (np.repeat(part, STEPS_OF_AN_ORIGIN) for part in (rows, at))
    steps = random.integers(1, horizon + 1, len(rows))
    features, scale = _features(past, rows, at, steps)
    target = np.minimum(past[rows, at + steps] / scale, MOST_SCALES)
    return {
        level: lightgbm.train(
            {**SETTINGS, "alpha": level}, lightgbm.Dataset(features, target), ROUNDS
        )
        for level in levels
    }


def _features(past: Floats, rows: Places, at: Places, steps: Places) -> tuple[Floats, Floats]:
    """What is known at bin ``at`` of ``rows`` about ``steps`` later, and the scales of the rows."""
    sums = np.concatenate([np.zeros((len(past), 1)), np.cumsum(past, axis=1)], axis=1)
    squares = np.concatenate([np.zeros((len(past), 1)), np.cumsum(past**2, axis=1)], axis=1)
    busy = np.concatenate([np.zeros((len(past), 1)), np.cumsum(past > 0, axis=1)], axis=1)

    def mean(cumulated: Floats, length: int) -> Floats:
        found: Floats = (cumulated[rows, at + 1] - cumulated[rows, at + 1 - length]) / length
        return found

    overall = past.mean(axis=1)[rows]
    scale = np.maximum(np.maximum(mean(sums, LOOK_BACK), 0.05 * overall), 1e-9)
    target = at + steps
    columns = [past[rows, at - lag] / scale for lag in (0, 1, 2, 5)]
    columns += [mean(sums, length) / scale for length in WINDOWS]
    columns += [
        np.sqrt(np.maximum(mean(squares, length) - mean(sums, length) ** 2, 0.0)) / scale
        for length in (36, 144)
    ]
    days = [past[rows, target - count * DAY] / scale for count in (1, 2, 3)]
    around = [(sums[rows, target - DAY + 4] - sums[rows, target - DAY - 3]) / 7 / scale]
    columns += [*days, *around, np.mean(days, axis=0)]
    columns += [mean(busy, length) for length in (36, 144, 432)]
    columns.append(steps.astype(np.float64))
    return np.stack(columns, axis=1), scale
