"""I7 for boards: who draws more than it was allowed, and whose power readings cannot be believed.

    energy counter ── mean over 3 s ──┬── against every cap it could hold ──> trusted
    power readings, their highest ────┘── against each other ───────────────> stale

Source: docs/architecture.md, Promises, I7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.energy_trust import (
    AGREES_WITHIN,
    AGREES_WITHIN_WATTS,
    OFFENDS_FOR_NS,
    STALE_AFTER_SAME,
    TRUSTED_AGAIN_NS,
    UNTRUSTED_OVER_CAP,
    trust_window_ns,
)
from wattpack.power.recent_highest import RecentHighest, nothing_yet
from wattpack.units import NS_PER_MS, NS_PER_SECOND

__all__ = [
    "READING_WINDOW_NS",
    "STALE_AFTER_SAME",
    "BoardTrust",
    "all_trusted",
    "contradicted",
    "judged",
    "stale_readings",
]

READING_WINDOW_NS = 5 * NS_PER_SECOND
"""Readings of the energy window, with one report lost and one on its way."""

_CAP_BUCKET_NS = 500 * NS_PER_MS
_LONGEST_WINDOW_NS = 20 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class BoardTrust:
    """Which boards keep their caps.

    Attributes:
        trusted: (n,).
        began_ns: First look at each board, -1 before it, (n,).
        over_since_ns: Since when its mean is too high, -1 while it is not, (n,).
        doubted_ns: When each board last offended or its mean was unknown, (n,).
        caps: The highest caps that could have held lately.
    """

    trusted: BoolArray
    began_ns: IntArray
    over_since_ns: IntArray
    doubted_ns: IntArray
    caps: RecentHighest


def all_trusted(n: int) -> BoardTrust:
    """Everybody is trusted until it offends."""
    return BoardTrust(
        np.ones(n, dtype=np.bool_),
        np.full(n, -1, dtype=np.int64),
        np.full(n, -1, dtype=np.int64),
        np.full(n, -1, dtype=np.int64),
        nothing_yet(n, _CAP_BUCKET_NS, _LONGEST_WINDOW_NS),
    )


def judged(
    memory: BoardTrust,
    energy_mean: FloatArray,
    cap_watts: FloatArray,
    reaction_seconds: float,
    now_ns: int,
    caps_known_since_ns: int | None = None,
) -> BoardTrust:
    """The trust after one more look: over 110 % of every cap of that time loses it.

    Where somebody else could give a cap and take it back between two looks, a mean must stay too
    high for longer than such a cap explains.

    Args:
        memory: So far.
        energy_mean: 3 s means, NaN if unknown, (n,).
        cap_watts: Highest cap that could hold now, NaN if unknown, (n,).
        reaction_seconds: Actuation and settling.
        now_ns: Now.
        caps_known_since_ns: Since when nobody else can have given a cap; None: for ever.
    """
    window_ns = trust_window_ns(reaction_seconds)
    caps = memory.caps.spanning(window_ns).with_watts(cap_watts, now_ns)
    reference = caps.since(now_ns - window_ns)
    began_ns = np.where(memory.began_ns < 0, now_ns, memory.began_ns)
    known = (now_ns - began_ns >= window_ns) & (reference > 0.0)
    with np.errstate(invalid="ignore"):
        over = energy_mean > reference * UNTRUSTED_OVER_CAP
    began_over_ns = np.where(memory.over_since_ns < 0, now_ns, memory.over_since_ns)
    over_since_ns = np.where(over, began_over_ns, -1)
    offends = over & (now_ns - over_since_ns >= OFFENDS_FOR_NS) & known
    if caps_known_since_ns is not None and some(offends):
        unseen = over_since_ns < caps_known_since_ns + window_ns
        offends &= ~unseen | (now_ns - over_since_ns >= OFFENDS_FOR_NS + window_ns)
    calm = ~offends & ~np.isnan(energy_mean)
    doubted_ns = np.where(calm, memory.doubted_ns, now_ns)
    again = now_ns - doubted_ns >= TRUSTED_AGAIN_NS
    return BoardTrust(
        (memory.trusted | again) & ~offends, began_ns, over_since_ns, doubted_ns, caps
    )


def stale_readings(
    watts: FloatArray, same_count: IntArray, recent_watts: FloatArray, energy_mean: FloatArray
) -> BoolArray:
    """Readings that are not of this moment, whatever their time stamps say, (n,).

    Five identical ones, unless a counter that moves confirms them (an idle board may be that
    steady); and any that stays below what the energy counter shows to have been drawn.

    Args:
        watts: Newest reading, (n,).
        same_count: How often it came in a row, (n,).
        recent_watts: Highest reading of the last ``READING_WINDOW_NS``, (n,).
        energy_mean: 3 s means, NaN if unknown, (n,).
    """
    with np.errstate(invalid="ignore"):
        frozen = same_count >= STALE_AFTER_SAME
        if some(frozen):
            frozen &= ~(np.abs(energy_mean - watts) <= _margin(watts))
        hidden = energy_mean > (1.0 + AGREES_WITHIN) * recent_watts + AGREES_WITHIN_WATTS
    return np.asarray(frozen | hidden)


def contradicted(watts: FloatArray, energy_mean: FloatArray) -> BoolArray:
    """Readings of which a counter that is known says otherwise, (n,)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(energy_mean - watts) > _margin(watts))


def _margin(watts: FloatArray) -> FloatArray:
    return AGREES_WITHIN * watts + AGREES_WITHIN_WATTS
