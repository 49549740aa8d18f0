"""Samples of what quantiles tell, for decisions that look at whole distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from forecasting.peak_policy.coupling import path_levels
from forecasting.risk_scale import between_levels
from forecasting.series_source import Floats

SAMPLES: Final = 400
"""Evenly over the levels: a risk of 1 % is four of them."""

MEDIAN: Final = 0.5


def even_samples(levels: Sequence[float], quantiles: Floats) -> Floats:
    """Values that are equally likely, rising, by ``risk_scale``; the highest level's beyond it.

    Nothing is published below the median unless it is asked for: there a value is as far below the
    median, as a factor, as it is above it at the opposite level (assumed).

    Args:
        levels: Rising, of the last axis.
        quantiles: Shape (n, n_levels).

    Returns:
        Shape (``SAMPLES``, n).
    """
    at, known = path_levels(SAMPLES), np.asarray(levels, dtype=np.float64)
    samples = np.stack([between_levels(at, known, row) for row in quantiles], axis=1)
    low = at < known[0]
    if known[0] == MEDIAN and low.any():
        median, above = quantiles[:, 0], samples[::-1][low]
        samples[low] = np.where(above > 0, median * median / np.where(above > 0, above, 1.0), 0.0)
    return samples
