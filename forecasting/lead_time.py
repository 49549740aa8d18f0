"""What a series may need until a replica that is ordered now can work.

The lead time is a quantile of the start's distribution (``capacity.catalogue.startup_time``), not a
constant: demand after it can be answered by ordering later, demand before it only by what runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wattpack.errors import InputError
from wattpack.units import require_number


@dataclass(frozen=True, slots=True)
class StepWindow:
    """The steps of a forecast, Unix seconds."""

    start_seconds: float
    step_seconds: float


def needed_within(
    window: StepWindow, values: Sequence[float], now_seconds: float, lead_seconds: float
) -> float:
    """The highest step that begins before ``now + lead``.

    Args:
        values: One level's path, a value a step.

    Raises:
        InputError: a lead time beyond the window, or no step at all.
    """
    require_number("lead_seconds", lead_seconds, minimum=0)
    if not values:
        raise InputError("values", "at least one step", 0)
    ahead = now_seconds + lead_seconds - window.start_seconds
    steps = max(1, math.ceil(ahead / window.step_seconds))
    if steps > len(values):
        reach = window.start_seconds + len(values) * window.step_seconds - now_seconds
        raise InputError("lead_seconds", f"at most {reach:.0f} s, where the forecast ends",
                         lead_seconds)  # fmt: skip
    return max(values[:steps])
