"""What a policy may cost the requests of the inference row: limits as data.

A loss is a quantile of a time over the same quantile of the uncapped row, less 1. Limits of POLCA
(arXiv 2308.12908, read second-hand: p50 and p99 by priority over six weeks, p50 of low priority up
to 25 % in peak hours); it counts whole requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

KINDS: Final = ("whole", "first", "token")
PEAK_HOURS: Final[Mapping[str, float]] = {
    "high_p50": 0.01,
    "high_p99": 0.05,
    "low_p50": 0.25,
    "low_p99": 0.50,
}
SIX_WEEKS: Final[Mapping[str, float]] = {**PEAK_HOURS, "low_p50": 0.05}


def broken(
    loss: Mapping[str, float], kinds: Sequence[str], limits: Mapping[str, float] = PEAK_HOURS
) -> list[str]:
    """Names of the losses that are not within their limits; what is not known is not."""
    names = [(f"{g}_{kind}_{q}", limits[f"{g}_{q}"]) for kind in kinds
             for g, q in (name.split("_") for name in limits)]  # fmt: skip
    return [name for name, limit in names if not loss[name] < limit]
