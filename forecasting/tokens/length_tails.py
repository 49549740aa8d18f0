"""Heavy tails of output lengths: the log-normal with a mean and a p99."""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.series_source import Floats
from wattpack.errors import InputError

Z99: Final = 2.3263478740408408
"""Standard normal quantile of 0.99."""


def lognormal_from_p99(mean: Floats, p99: Floats) -> tuple[Floats, Floats]:
    """Location and spread of the log-normal with this mean and p99, for where only these are known.

    A p99 of more than 15 times the mean has no such log-normal; it gets the widest there is.

    Returns:
        ``mu`` and ``sigma`` of the logarithm, of the shape that came in.

    Raises:
        InputError: a mean that is not positive, a p99 below it.
    """
    low, high = np.asarray(mean, dtype=np.float64), np.asarray(p99, dtype=np.float64)
    if not (np.all(np.isfinite(low)) and np.all(low > 0)):
        raise InputError("mean", "tokens above 0", low.ravel()[:5].tolist())
    if not (np.all(np.isfinite(high)) and np.all(high >= low)):
        raise InputError("p99", "tokens, at least the mean", high.ravel()[:5].tolist())
    # p99 / mean = exp(Z99 sigma - sigma^2 / 2): of both solutions the lesser.
    sigma = Z99 - np.sqrt(np.maximum(Z99**2 - 2 * np.log(high / low), 0.0))
    return np.log(low) - sigma**2 / 2, sigma
