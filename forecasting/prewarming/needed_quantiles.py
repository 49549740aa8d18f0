"""Quantiles of the rate that a start's horizon needs: boosted trees, one forest a level.

Trees are small and strongly held back (Ke et al., "LightGBM", NeurIPS 2017): a few days of minutes
are few independent surprises, and larger trees lost to smaller ones beyond level 0.95 on days 7-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forecasting.lightgbm_library import lightgbm_at_work
from forecasting.prewarming.demand_features import (
    FLOOR_SHARE,
    REACH,
    demand_features,
    usual_rate,
)
from forecasting.prewarming.needed_rate import needed_rates
from forecasting.series_source import Floats
from wattpack.errors import InputError

LEVELS: Final = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
ROUNDS: Final = 200
PARAMETERS: Final = {
    "objective": "quantile", "learning_rate": 0.05, "num_leaves": 7, "min_data_in_leaf": 500,
    "feature_fraction": 0.5, "bagging_fraction": 0.5, "bagging_freq": 1,
    "num_threads": 1, "seed": 1, "deterministic": True, "force_row_wise": True, "verbose": -1,
}  # fmt: skip
"""Chosen on days 1-10 of ServeGen's totals: fitted on the first six, compared on the others."""

WARM_UP: Final = 1440
"""Steps at the start of each service that are not learned from: their day before is not known."""

MOST_ROWS: Final = 60_000
"""Moments that are learned from, of all services together: about 15 seconds of one core."""


@dataclass(frozen=True, slots=True)
class NeededQuantiles:
    """Fitted forests; the same data give the same ones, bit for bit.

    Attributes:
        forests: One a level.
        levels: Rising.
        usual: Usual rate of each service that was learned from, by place.
    """

    forests: tuple[Any, ...]
    levels: tuple[float, ...]
    usual: tuple[float, ...]

    def quantiles(self, rates: Floats, usual: float) -> Floats:
        """Of the needed rate at every place, from the steps before it.

        Args:
            rates: Arrivals a second by step, shape (n_bins,).
            usual: The service's usual rate.

        Returns:
            Shape (n_bins + 1, n_levels), never falling over levels, none negative; the last row is
            for what comes next.
        """
        return self._told(*demand_features(rates, usual), usual)

    def newest(self, rates: Floats, usual: float) -> Floats:
        """The last row of ``quantiles`` alone, shape (n_levels,)."""
        features, level = demand_features(rates[-REACH:], usual)
        row: Floats = self._told(features[-1:], level[-1:], usual)[0]
        return row

    def _told(self, features: Floats, level: Floats, usual: float) -> Floats:
        ratios = np.stack([forest.predict(features) for forest in self.forests], axis=1)
        values = np.exp(ratios + level[:, None]) - FLOOR_SHARE * usual
        result: Floats = np.maximum(np.sort(values, axis=1), 0.0)
        return result


def fit_needed_quantiles(
    services: Sequence[Floats],
    steps: int,
    step_seconds: float,
    wait_seconds: float,
    rounds: int = ROUNDS,
) -> NeededQuantiles:
    """Learn from all services together.

    Args:
        services: Arrivals a second by step of each, shape (n_bins,).
        steps: Of the start's horizon, ``StartTimes.steps``.
        step_seconds: Width of a step.
        wait_seconds: Longest wait that is within the objective.
        rounds: Trees of each level.

    Raises:
        InputError: no service with more than a day of steps.
        ForestsError: LightGBM cannot be loaded, or refuses the steps.
    """
    usual = tuple(usual_rate(rates) for rates in services)
    rows, wanted = [], []
    for rates, ordinary in zip(services, usual, strict=True):
        features, level = demand_features(rates, ordinary)
        needed = needed_rates(rates, steps, step_seconds, wait_seconds)
        target = np.log(needed + FLOOR_SHARE * ordinary) - level[:-1]
        known = np.isfinite(target)
        known[:WARM_UP] = False
        rows.append(features[:-1][known])
        wanted.append(target[known])
    if not sum(map(len, wanted)):
        raise InputError("services", f"one with more than {WARM_UP + steps} steps", len(services))
    every = max(1, -(-sum(map(len, wanted)) // MOST_ROWS))
    learned, targets = np.concatenate(rows)[::every], np.concatenate(wanted)[::every]
    with lightgbm_at_work() as lightgbm:
        data = lightgbm.Dataset(learned, targets, free_raw_data=False)
        forests = tuple(
            lightgbm.train({**PARAMETERS, "alpha": level}, data, rounds) for level in LEVELS
        )
    return NeededQuantiles(forests, LEVELS, usual)
