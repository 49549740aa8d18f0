"""The rate of service that keeps waiting short: below the highest minute, above the mean."""

from __future__ import annotations

from collections.abc import Sequence

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
    before = [sums[place : place + count] for place in range(steps + 1)]
    needed = _needed(before, step_seconds, wait_seconds)
    return np.concatenate([needed, np.full(steps - 1, np.nan)])


def needed_in_windows(windows: Floats, step_seconds: float, wait_seconds: float) -> Floats:
    """The same of windows that share no step.

    Args:
        windows: Arrivals a second by step, shape (n, steps), at least one step.
        step_seconds: Width of a step.
        wait_seconds: Longest wait that is within the objective.

    Returns:
        Shape (n,).
    """
    sums = np.cumsum(windows, axis=1)
    return _needed([np.zeros(len(windows)), *sums.T], step_seconds, wait_seconds)


def _needed(before: Sequence[Floats], step_seconds: float, wait_seconds: float) -> Floats:
    """Of sums of the rates before each step and before the end, (steps + 1) of one shape."""
    steps = len(before) - 1
    needed: Floats = (before[-1] - before[0]) / steps
    for first in range(steps):
        for last in range(first + 1, steps + 1):
            arrived = (before[last] - before[first]) * step_seconds
            needed = np.maximum(needed, arrived / ((last - first) * step_seconds + wait_seconds))
    return needed
