"""Names for identifiers and the checks that every quantity passes at a boundary.

Quantities inside wattpack are plain floats in watts, joules, seconds, MHz and bytes; the unit is
the suffix of the name (I9). Times in cores are integer nanoseconds.
"""

from __future__ import annotations

import sys
from typing import NewType

from wattpack.errors import InputError

GpuUuid = NewType("GpuUuid", str)
NodeName = NewType("NodeName", str)

NS_PER_SECOND = 1_000_000_000

# A comparison also refuses NaN, infinities and integers that no float can hold.
_LARGEST = sys.float_info.max
NS_PER_MS = 1_000_000


def seconds_to_ns(seconds: float) -> int:
    """The nearest whole nanosecond."""
    return round(seconds * NS_PER_SECOND)


def ns_to_seconds(nanoseconds: int) -> float:
    """Seconds as a float; exact enough below 100 days."""
    return nanoseconds / NS_PER_SECOND


def require_number(
    field: str,
    value: object,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    exclusive_minimum: float | None = None,
    unit: str = "",
) -> float:
    """The value as a finite float within the bounds.

    Raises:
        InputError: naming the field, for anything else: booleans, strings, NaN, infinities.
    """
    # Thousands of readings a second pass here, so the words are only made for a refusal.
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -_LARGEST <= value <= _LARGEST
        and (minimum is None or value >= minimum)
        and (maximum is None or value <= maximum)
        and (exclusive_minimum is None or value > exclusive_minimum)
    ):
        return float(value)
    bounds = [
        f"> {exclusive_minimum:g}" if exclusive_minimum is not None else "",
        f">= {minimum:g}" if minimum is not None else "",
        f"<= {maximum:g}" if maximum is not None else "",
    ]
    within = " and ".join(bound for bound in bounds if bound)
    expected = " ".join(part for part in ("a finite number", within, unit) if part)
    raise InputError(field, expected, value)
