"""What each GPU would draw if it were allowed to: the highest recent draw, or its request.

A GPU that is held down by its cap shows nothing of its demand, so it counts at its request.
"""

from __future__ import annotations

import numpy as np

from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.power.recent_highest import RecentHighest, nothing_yet
from wattpack.units import NS_PER_SECOND

__all__ = ["expected_draw", "no_demand_yet"]

# Demand that went away frees its watts after the release dwell of 30 to 60 s.
_BUCKET_NS = 10 * NS_PER_SECOND
_SPAN_NS = 50 * NS_PER_SECOND
# At its cap: regulation and sensor gain (+-5 % a board) leave a throttled board above this share.
_THROTTLED_SHARE = 0.93


def no_demand_yet(n_gpus: int) -> RecentHighest:
    """Nothing was drawn yet."""
    return nothing_yet(n_gpus, _BUCKET_NS, _SPAN_NS)


def expected_draw(
    memory: RecentHighest,
    draw_watts: FloatArray,
    limit_watts: FloatArray,
    request_watts: FloatArray,
    slowed: BoolArray,
) -> FloatArray:
    """Draw to expect of each GPU at an open cap, (n_gpus,).

    Args:
        memory: Recent draws.
        draw_watts: Readable draw, NaN if unknown, (n_gpus,).
        limit_watts: Limit as read back, NaN if unknown, (n_gpus,).
        request_watts: What the work would like, (n_gpus,).
        slowed: Reduced by other means than the limit (clock lock), (n_gpus,).
    """
    recent = memory.highest()
    with np.errstate(invalid="ignore"):
        open_limit = draw_watts < _THROTTLED_SHARE * limit_watts
    return np.asarray(np.where(open_limit & ~slowed, recent, np.maximum(recent, request_watts)))
