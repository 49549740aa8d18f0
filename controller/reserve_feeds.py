"""What a domain's feeds may carry now: all of them while all carry, the required ones after a loss.

    busiest feed's share of the load ──> feed rating / share        what all feeds carry together
    no reading, an old or a stuck one ──> the rating after the declared loss
    never more than curves bear, after a loss, until the load is shed

Off unless a domain declares ``useReserve``. I1 and I2 rest on the rating after the loss in any
case: guaranteed caps fit it, and it survives everything at its cap for T_fault. What follows from a
loss that is not known yet is bounded here: the load then is at most what breaker, UPS and
transformer of the feeds that are left bear from the loss until caps have acted.

Source: docs/adr/0033-heat-budget-and-reserve-feeds.md; Flex (ISCA 2021) sheds within about 10 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.breaker_heat import heat_limits
from controller.tick_values import PowerSettings, Tick
from wattpack.power.board_trust import STALE_AFTER_SAME
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray, ReserveFeeds
from wattpack.power.feasibility import LoadTree
from wattpack.power.recent_highest import RecentHighest, nothing_yet
from wattpack.units import NS_PER_SECOND

__all__ = [
    "FeedMemory",
    "Feeds",
    "borne_until_shed_watts",
    "initial_feeds",
    "reserve_missing",
    "take_feeds",
    "unseen_heat",
]

# A feed that is back is counted on after it has carried its part for so long. Assumed.
_BUCKET_NS = 5 * NS_PER_SECOND
_BACK_AFTER_NS = 30 * NS_PER_SECOND
# From a reading to the tick that sees it.
_TICK_SECONDS = 1.0
# Feeds never share a load to the per cent.
_CARRIES_SHARE = 0.95
# The busiest of N feeds carries an Nth or more; below that, but for rounding, nobody read it.
_OF_EVEN_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class FeedMemory:
    """Readings of how unevenly feeds carry.

    Attributes:
        last_share: Last reading, (n_domains,).
        last_time_ns: Its time stamp, -1 before the first, (n_domains,).
        same_count: Identical readings in a row, (n_domains,).
        highest: The busiest feed's highest share of late, (n_domains,).
    """

    last_share: FloatArray
    last_time_ns: IntArray
    same_count: IntArray
    highest: RecentHighest


@dataclass(frozen=True, slots=True)
class Feeds:
    """What the feeds carry at a tick, each (n_domains,).

    Attributes:
        available_watts: What the load may be for long, over phase imbalance.
        unseen_seconds: How long before the last tick a loss may have been that this one shows, or
            that it cannot rule out because nobody tells any more.
    """

    available_watts: FloatArray
    unseen_seconds: FloatArray


def initial_feeds(n_domains: int) -> FeedMemory:
    """Nothing was read yet."""
    return FeedMemory(
        np.zeros(n_domains),
        np.full(n_domains, -1, dtype=np.int64),
        np.zeros(n_domains, dtype=np.int64),
        nothing_yet(n_domains, _BUCKET_NS, _BACK_AFTER_NS),
    )


def take_feeds(
    tick: Tick, load: LoadTree, memory: FeedMemory, last_tick_ns: int
) -> tuple[FeedMemory, Feeds]:
    """Take in this tick's readings: the memory, and what the feeds carry.

    Five identical readings in a row are a stuck meter, as with domain meters. A feed's own meter
    may go with the feed, so where readings end the loss may be as old as they may be.
    """
    reserve, n = load.tree.reserve, len(load.tree)
    if reserve is None:
        return memory, Feeds(load.rating_watts, np.zeros(n))
    share, stamp_ns = _readings(tick, n)
    with np.errstate(invalid="ignore"):
        valid = reserve.used & (share >= _least_share(reserve)) & (share <= 1.0)
    valid &= stamp_ns <= tick.now_ns
    valid &= tick.now_ns - stamp_ns <= reserve.max_age_seconds * NS_PER_SECOND
    new = valid & (stamp_ns > memory.last_time_ns)
    same = np.where(share == memory.last_share, memory.same_count + 1, 1)
    same_count = np.where(new, same, memory.same_count)
    usable = valid & (same_count < STALE_AFTER_SAME)
    highest = memory.highest.with_watts(np.where(usable, share, np.nan), tick.now_ns)
    known = np.where(usable, highest.highest(), np.nan)
    risen = new & (memory.last_time_ns >= 0) & (share > memory.last_share)
    unseen_ns = np.where(risen, np.maximum(last_tick_ns - memory.last_time_ns, 0), 0)
    unseen = np.minimum(unseen_ns / NS_PER_SECOND, reserve.max_age_seconds)
    unseen = np.where(usable, unseen, reserve.max_age_seconds)
    taken = FeedMemory(
        np.where(new, share, memory.last_share),
        np.where(new, stamp_ns, memory.last_time_ns),
        same_count,
        highest,
    )
    most = _most_watts(load, tick.settings)
    carried = reserve.feed_watts / load.tree.phase_imbalance / np.where(usable, known, 1.0)
    available = np.where(usable, np.minimum(carried, most), load.rating_watts)
    return taken, Feeds(available, unseen)


def unseen_heat(
    load: LoadTree, before_watts: FloatArray, feeds: Feeds, draw_watts: FloatArray
) -> FloatArray:
    """Heat of the seconds before a loss was seen, that nobody counted, (n_domains,).

    Args:
        load: Tree and curves.
        before_watts: What the feeds were believed to carry, (n_domains,).
        feeds: What they are seen to carry.
        draw_watts: Of that time, (n_domains,).
    """
    counted = 1.0 / load.curves.trip_seconds(draw_watts / before_watts)
    real = 1.0 / load.curves.trip_seconds(draw_watts / feeds.available_watts)
    return np.asarray(feeds.unseen_seconds * np.maximum(real - counted, 0.0))


def reserve_missing(
    load: LoadTree, available_watts: FloatArray, settings: PowerSettings
) -> BoolArray:
    """Domains that may use their reserve and cannot now, (n_domains,)."""
    if load.tree.reserve is None:
        return np.zeros(len(load.tree), dtype=np.bool_)
    short = available_watts < _CARRIES_SHARE * _most_watts(load, settings)
    return np.asarray(load.tree.reserve.used & short)


def _most_watts(load: LoadTree, settings: PowerSettings) -> FloatArray:
    """What the load may be while all feeds carry, over phase imbalance, (n_domains,)."""
    all_feeds = load.tree.all_feeds_watts / load.tree.phase_imbalance
    return np.minimum(all_feeds, borne_until_shed_watts(load, settings))


def _least_share(reserve: ReserveFeeds) -> FloatArray:
    """The lowest share that the busiest of a domain's feeds can have, (n_domains,)."""
    return np.asarray(_OF_EVEN_SHARE * reserve.feed_watts / reserve.all_feeds_watts)


def _readings(tick: Tick, n_domains: int) -> tuple[FloatArray, IntArray]:
    """Shares and their stamps; NaN where nobody tells, (n_domains,) each."""
    observed = tick.observations
    if not len(observed.feed_share):
        return np.full(n_domains, np.nan), np.full(n_domains, -1, dtype=np.int64)
    return observed.feed_share, observed.feed_time_ns


def borne_until_shed_watts(load: LoadTree, settings: PowerSettings) -> FloatArray:
    """The load that the feeds left by the declared loss bear until it is shed, AC, (n_domains,).

    From the loss to a tick that knows of it, and until caps have acted; from a breaker at heat 0 to
    the limit of I2. At least the rating, which is borne for ever.
    """
    reserve = load.tree.reserve
    age = 0.0 if reserve is None else reserve.max_age_seconds
    seconds = age + _TICK_SECONDS + settings.reaction_seconds
    ratio = load.curves.ratio_borne_for(seconds / heat_limits(load, settings))
    borne = np.minimum(ratio, load.tree.max_load_ratio)
    return np.asarray(load.rating_watts * np.maximum(borne, 1.0), dtype=np.float64)
