"""The demand that a CapacityPlan is solved for, by what GPUs cost and what unserved demand costs.

A CapacityPlan whose bucket names prices (``forecast.prices``) asks it through ``plan_due``: a GPU
mix is bought for months, so it is a newsvendor's case, with ``prices.tail`` one who fears the worst
windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecasting.decisions.amounts import Prices, Tail, mean_and_tail
from forecasting.decisions.decision import Decision
from forecasting.quantile_samples import even_samples
from forecasting.risk_scale import between_levels
from forecasting.series_source import Floats
from wattpack.errors import InputError


def mix_demand(
    peaks: Floats, levels: Sequence[float], prices: Prices, tail: Tail | None = None
) -> Decision:
    """The demand at which one more GPU costs what it serves is worth.

    Args:
        peaks: Quantiles of the demand's peak, shape (n_levels,), as a forecast's status has them.
        levels: Theirs, rising.
        prices: Of capacity for one unit of demand over the plan's time, and of one that is not
            served over it.
        tail: How much the windows of the highest losses count beside the mean; None: not at all.

    Returns:
        Between the levels linear in the logarithm of the risk, as everybody else takes it; beyond
        them the outermost, and the reason says so.

    Raises:
        InputError: levels that do not rise, as many as there are peaks.
    """
    known = np.asarray(levels, dtype=np.float64)
    values = np.asarray(peaks, dtype=np.float64)
    if values.shape != known.shape or len(known) == 0 or np.any(np.diff(known) <= 0):
        raise InputError("levels", f"{len(values)} rising levels", tuple(levels))
    if tail is not None:
        return mean_and_tail(even_samples(levels, values[None])[:, 0], prices, tail)
    wanted = prices.critical_level
    amount = float(between_levels(np.array([wanted]), known, values)[0])
    told = f"{amount:.6g} is quantile {wanted:.4g}, where a GPU more costs what it serves"
    if not known[0] <= wanted <= known[-1]:
        nearest = known[0] if wanted < known[0] else known[-1]
        told += f" (the forecast ends at {nearest:g})"
        return Decision(amount, 1 - float(nearest), "limit", told)
    return Decision(amount, 1 - wanted, "cost", told)
