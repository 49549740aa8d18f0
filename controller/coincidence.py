"""How much of the summed draws of its boards a domain really draws at one time.

Boards do not reach their highest draws together, and one at its cap draws what it draws, not 1.05
times as much. The factor closes the loop: measured over modelled draw, its highest of a minute. A
peak that is over before a lowered cap could have acted on it teaches nothing: what lasts counts,
and what comes near the limit.
"""

from __future__ import annotations

import numpy as np

from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.power.recent_highest import RecentHighest, nothing_yet
from wattpack.units import NS_PER_SECOND

__all__ = ["LOWEST_COINCIDENCE", "coincidence", "lasting", "no_coincidence_yet"]

_BUCKET_NS = 10 * NS_PER_SECOND
_SPAN_NS = 50 * NS_PER_SECOND
# So many buckets must have been seen before less than the whole sum is expected.
_KNOWN_BUCKETS = 3

LOWEST_COINCIDENCE = 0.5
"""Idle rows teach little about busy ones."""


def no_coincidence_yet(n_domains: int) -> RecentHighest:
    """Everything at once is expected."""
    return nothing_yet(n_domains, _BUCKET_NS, _SPAN_NS)


def lasting(
    before: FloatArray, ratio: FloatArray, near: BoolArray, time_constants: float
) -> FloatArray:
    """The ratio without what is over before caps can act, (n_domains,).

    Args:
        before: At the last tick, NaN where nothing was measured yet, (n_domains,).
        ratio: Measured over modelled draw of boards now, (n_domains,).
        near: Most of what a domain keeps free is used up: a peak counts at once, (n_domains,).
        time_constants: Time since the last tick over that from a command to its effect.
    """
    # NaN is nowhere more: what was not measured yet is not kept either.
    with np.errstate(invalid="ignore"):
        keeps = ~(near & (ratio > before)) & ~np.isnan(before)
    kept = np.where(keeps, before - ratio, 0.0)
    return np.asarray(ratio + np.exp(-time_constants) * kept)


def coincidence(memory: RecentHighest) -> FloatArray:
    """Share of the modelled draw of boards to expect, 1 before anything is known, (n_domains,).

    Args:
        memory: Measured over modelled draw of boards of the last minute.
    """
    highest = memory.highest()
    if len(memory.begins_ns) < _KNOWN_BUCKETS:
        return np.ones(len(highest))
    return np.minimum(np.maximum(highest, LOWEST_COINCIDENCE), 1.0)
