"""The rate of service that keeps waiting short: below the highest minute, above the mean."""

from __future__ import annotations

import numpy as np

from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.units import require_number


def needed_rates(rates: Floats, steps: int, step_seconds: float, wait_seconds: float) -> Floats:
    """The lowest constant rate with which no request of the next steps waits longer than allowed.

    Of a queue that is empty at first: over every run of steps, what arrives is served within the
    run and the wait that is allowed after it; over all steps together within them, since a queue
    that is left is the next steps' burden.

    Args:
        rates: Arrivals a second by step, shape (n_bins,).
        steps: Looked ahead, the step at each place included.
        step_seconds: Width of a step.
        wait_seconds: Longest wait that is within the objective.

    Returns:
        Shape (n_bins,); NaN where fewer than ``steps`` steps follow.

    Raises:
        InputError: naming what is out of its range.
    """
    require_number("stepSeconds", step_seconds, exclusive_minimum=0)
    require_number("waitSeconds", wait_seconds, minimum=0)
    values = np.asarray(rates, dtype=np.float64)
    if values.ndim != 1 or not 1 <= steps <= len(values):
        raise InputError("steps", f"1 to {len(values)}", steps)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    count = len(values) - steps + 1
    needed = (sums[steps:] - sums[:count]) / steps
    for first in range(steps):
        for last in range(first + 1, steps + 1):
            arrived = (sums[last : last + count] - sums[first : first + count]) * step_seconds
            needed = np.maximum(needed, arrived / ((last - first) * step_seconds + wait_seconds))
    return np.concatenate([needed, np.full(steps - 1, np.nan)])
