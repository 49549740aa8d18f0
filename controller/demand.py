"""What each GPU would draw if it were allowed to: the highest recent draw, or its request.

A GPU that is held down by its cap shows nothing of its demand, so it counts at its request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.units import NS_PER_SECOND

__all__ = ["DemandMemory", "expected_draw", "initial_demand", "update_demand"]

# Six buckets of 10 s: demand that went away frees its watts after the release dwell of 30 to 60 s.
_BUCKETS = 6
_BUCKET_NS = 10 * NS_PER_SECOND
# At its cap: regulation and sensor gain (+-5 % a board) leave a throttled board above this share.
_THROTTLED_SHARE = 0.93


@dataclass(frozen=True, slots=True)
class DemandMemory:
    """Highest draws of the last minute.

    Attributes:
        bucket_ns: When the newest bucket began.
        highest_watts: Per bucket, (n_buckets, n_gpus).
    """

    bucket_ns: int
    highest_watts: FloatArray


def initial_demand(n_gpus: int) -> DemandMemory:
    """Nothing was drawn yet."""
    return DemandMemory(0, np.zeros((_BUCKETS, n_gpus)))


def update_demand(memory: DemandMemory, draw_watts: FloatArray, now_ns: int) -> DemandMemory:
    """Take in this tick's readable draws; unreadable ones (NaN) change nothing."""
    highest = memory.highest_watts
    bucket_ns = memory.bucket_ns
    if now_ns - bucket_ns >= _BUCKET_NS:
        highest = np.concatenate((highest[1:], np.zeros((1, highest.shape[1]))))
        bucket_ns = now_ns
    else:
        highest = highest.copy()
    highest[-1] = np.fmax(highest[-1], draw_watts)
    return DemandMemory(bucket_ns, highest)


def expected_draw(
    memory: DemandMemory,
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
    recent = memory.highest_watts.max(axis=0)
    with np.errstate(invalid="ignore"):
        open_limit = draw_watts < _THROTTLED_SHARE * limit_watts
    return np.asarray(np.where(open_limit & ~slowed, recent, np.maximum(recent, request_watts)))
