"""What our policy would save if it were told each ten minutes' total as they begin.

Totals of ten minutes are what was measured; their shapes within are drawn by chance. Who knows the
coming total, its minute's place in it and nothing else has all that any forecast of the series
could give within those ten minutes: forests as the product's, with two features more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks._replica_demand import BIN_MINUTES, Service
from benchmarks._replica_fleet import WAIT_SECONDS, Floats
from benchmarks._replica_ours import Told
from benchmarks._replica_process import STEP_SECONDS
from forecasting.prewarming.demand_features import FLOOR_SHARE, demand_features, usual_rate
from forecasting.prewarming.needed_quantiles import LEVELS, PARAMETERS, WARM_UP
from forecasting.prewarming.needed_rate import needed_rates


def told_totals(
    services: Sequence[Service], fitted: int, last: int, steps: int, rounds: int
) -> list[Told]:
    """Quantiles of the needed rate with the totals known, of minutes ``fitted`` to ``last``.

    Args:
        services: With demand from minute 0 on.
        fitted: Minutes that are learned from.
        last: Minute after those that are told.
        steps: Of the horizon.
        rounds: Trees of each level.
    """
    import lightgbm

    known = [_features(service, fitted) for service in services]
    learned, wanted = [], []
    for service, (features, level, floor) in zip(services, known, strict=True):
        needed = needed_rates(service.rates[:fitted], steps, STEP_SECONDS, WAIT_SECONDS)
        target = np.log(needed + floor) - level[:fitted]
        usable = np.isfinite(target)
        usable[:WARM_UP] = False
        learned.append(features[:fitted][usable])
        wanted.append(target[usable])
    data = lightgbm.Dataset(
        np.concatenate(learned), np.concatenate(wanted), free_raw_data=False
    )  # fmt: skip
    forests = [lightgbm.train({**PARAMETERS, "alpha": level}, data, rounds) for level in LEVELS]
    found = []
    for service, (features, level, floor) in zip(services, known, strict=True):
        part = slice(fitted, last)
        ratios = np.stack([f.predict(features[part]) for f in forests], axis=1)
        values = np.exp(np.sort(ratios, axis=1) + level[part, None]) - floor
        quantiles = np.zeros((len(service.rates), len(LEVELS)))
        quantiles[part] = np.maximum(values, 0.0)
        found.append(Told(quantiles, LEVELS))
    return found


def _features(service: Service, fitted: int) -> tuple[Floats, Floats, float]:
    """The product's, the total that each minute lies in, and its place there."""
    usual = usual_rate(service.rates[:fitted])
    features, level = demand_features(service.rates[:-1], usual)
    floor = FLOOR_SHARE * usual
    totals = np.repeat(service.rates.reshape(-1, BIN_MINUTES).mean(axis=1), BIN_MINUTES)
    place = np.arange(len(totals)) % BIN_MINUTES
    return np.column_stack([features, np.log(totals + floor) - level, place]), level, floor
