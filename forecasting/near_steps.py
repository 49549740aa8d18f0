"""The median of the first step: between the last value and what the models say.

Ten minutes ahead the last value is hard to beat, and weights by the loss of whole distributions
are no help: the model with the best spread need not have the best median. So the first step is
moved: as far from the last value towards the mean of the models' medians as would lately have been
best, per series, shrunk to its pool, and rather too little than too much. What each share would
have lost is kept beside the tiers' losses, under names of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from forecasting.combination import BAND_ENDS, POOL_WINDOWS, LossRecord, carried, step_bands
from forecasting.series_source import Floats

NEAR_BANDS: Final = 1
NEAR_STEPS: Final = BAND_ENDS[NEAR_BANDS - 1]
"""Steps that are moved: the combination tells the second and third better (bins 0-1439: SQL of the
clients 0.740 with three, 0.738 with one)."""

SHARES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Of the way from the last value to the mean of the models."""

NAMES: Final = tuple(f"near/{share:g}" for share in SHARES)

DOUBT_WINDOWS: Final = 3.0
"""So many windows in which the models lost twice as much as the last value count beside those that
were seen. WAPE of the first step over the last value's in four runs over bins 0-1439: clients 0.97
to 1.00, totals 0.99 to 1.00; with one 0.96 to 1.01 and 0.97 to 1.01."""

MOST: Final = 3.0
"""Times the last value's loss that a share's may count: calm series would else decide for all."""

ANCHOR: Final = "last-value"


def candidates(by_tier: np.ndarray, tiers: Sequence[str], median: int) -> Floats | None:
    """The medians of the first steps by every share, shape (n_shares, n_series, n_near).

    Args:
        by_tier: Each tier's quantiles, NaN where it has none, (n_tiers, n_series, n_steps, n).
        tiers: Their names.
        median: Place of the median on the last axis.

    Returns:
        None without the last value's tier; NaN where it has no answer.
    """
    anchors = [i for i, name in enumerate(tiers) if name.split("/")[0] == ANCHOR]
    if not anchors:
        return None
    near = by_tier[:, :, :NEAR_STEPS, median].astype(np.float64)
    there = np.isfinite(near)
    mean = np.sum(near, axis=0, where=there) / np.maximum(there.sum(axis=0), 1)
    anchor = near[anchors[0]]
    result: Floats = anchor + np.array(SHARES)[:, None, None] * (mean - anchor)
    return result


def shares(record: LossRecord, series: Sequence[str], pools: np.ndarray) -> Floats:
    """How far each series' first steps go towards the models, (n_series, ``NEAR_BANDS``).

    Args:
        record: Recent losses, of these names among others.
        series: Names.
        pools: Class of each series, whole numbers, shape (n_series,).
    """
    known = carried(record, NAMES, tuple(series))
    sums, seen = known.sums[..., :NEAR_BANDS], known.windows[0, :, :NEAR_BANDS]
    idle = sums[0] <= 1e-9 * sums[-1]
    relative = np.where(idle, 1.0, np.minimum(sums / np.where(idle, 1.0, sums[0]), MOST))
    losses = np.empty_like(relative)
    for pool in np.unique(pools).tolist():
        rows = pools == pool
        n, own = seen[rows], relative[:, rows]
        pooled = np.sum(n * own, axis=1) / np.maximum(np.sum(n, axis=0), 1e-12)
        pooled = np.where(np.sum(n, axis=0) > 0, pooled, 1.0)
        losses[:, rows] = (n * own + POOL_WINDOWS * pooled[:, None]) / (n + POOL_WINDOWS)
    doubt = DOUBT_WINDOWS * np.array(SHARES)[:, None, None] / np.maximum(seen, 1.0)
    result: Floats = np.array(SHARES)[np.argmin(losses + doubt, axis=0)]
    return result


def with_near_medians(
    steps: Floats, answers: Floats, tiers: Sequence[str], median: int, share: Floats
) -> Floats:
    """Step quantiles with the first steps' medians moved, and all their levels along.

    Args:
        steps: Of the combination, shape (n_series, horizon, n_levels).
        answers: Of the tiers, shape (n_tiers, n_series, horizon, n_levels).
        tiers: Their names.
        median: Place of the median on the last axis.
        share: From ``shares``.
    """
    made = candidates(answers, tiers, median)
    if made is None:
        return steps
    horizon = made.shape[2]
    wanted = made[0] + share[:, step_bands(horizon)] * (made[-1] - made[0])
    shift = wanted - steps[:, :horizon, median]
    moved = steps.copy()
    moved[:, :horizon] += np.where(np.isfinite(shift), shift, 0.0)[..., None]
    result: Floats = np.maximum(moved, 0.0, out=moved)
    return result
