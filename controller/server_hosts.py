"""What each server draws beside its boards, as it was told last.

    its own meter (a BMC) is believed   what that shows
    a meter above has a new reading     it and its neighbours move towards what boards and metered
                                        servers leave of the reading
    neither                             what was told, more by 0.25 W for each watt that its boards
                                        have risen since, and slowly back to the declared worst
    never told, or silent               the declared worst

A reading tells a sum, and all move by the same measure up and down, so that noise leaves each its
part. While boards swing nobody knows which of them a reading has seen: it leaves an interval then,
and moves what lies outside. What nearer meters account for may be off by as much as they may be,
and no sum falls for it: a row's meter that is 1 % low would take all of it off the one rack that
has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.estimate import CROSS_CHECK_SHARE
from controller.host_draws import HOST_PER_GPU_WATT
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = [
    "HostLesson",
    "ServerHosts",
    "Watched",
    "counted_watts",
    "hosts_after",
    "is_told",
    "no_hosts_yet",
]

# Fans follow a load within a minute; a draw that fell is believed more slowly, so that noise errs
# to the safe side. More asymmetry makes noise a load: at ten to one 3 % of a rating. Assumed.
_RISE_RATE: Final = 0.02
_FALL_RATE: Final = 0.01
# Of these while draws move: at the full rate caps of a row with random work moved twice as often
# (`calm`). A row that swings for days is known within half an hour. Assumed.
_SWINGING_RATE: Final = 0.2
# A few readings, perhaps of a start, are nothing to count on; the first count as their mean does.
_TELLINGS_TO_COUNT: Final = 10
# What its own meter showed is not averaged away by the first readings of one above.
_TOLD_BY_ITSELF: Final = 100
# Two thirds of the way back to the declared worst: nobody watches fans and CPUs. Assumed.
_FORGOTTEN_IN_SECONDS: Final = 600.0
_LEAST_PART: Final = 0.01
# What boards draw is remembered of about as long as fans take to follow them. Assumed.
_BOARDS_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ServerHosts:
    """Of each server, (n_nodes,) each.

    Attributes:
        watts: What it was told to draw beside its boards, DC, NaN before the first time.
        boards_watts: What its boards drew when it was, about the mean of half a minute, DC, NaN
            before.
        tellings: How often it was told.
        untold_seconds: How long no meter has watched it; each telling takes some of it off.
    """

    watts: FloatArray
    boards_watts: FloatArray
    tellings: IntArray
    untold_seconds: FloatArray


@dataclass(frozen=True, slots=True)
class Watched:
    """What can be seen of servers at a tick, (n_nodes,) each.

    Attributes:
        shown_watts: What their own meters show beside boards, DC, NaN where none is believed.
        boards_watts: What is read of their boards, DC, NaN where some cannot be read.
        boards_most_watts: The same with those at the most that they may draw.
        worst_watts: Declared, DC.
        heard: Servers that are.
        nearest: Domain of the nearest meter above that is believed, -1 without one.
        spoken: Whether any meter above has ever spoken.
    """

    shown_watts: FloatArray
    boards_watts: FloatArray
    boards_most_watts: FloatArray
    worst_watts: FloatArray
    heard: BoolArray
    nearest: IntArray
    spoken: BoolArray


@dataclass(frozen=True, slots=True)
class HostLesson:
    """What readings leave for servers without a meter of their own, (n_domains,) each.

    Attributes:
        new: Domains with a new reading that is believed, of which nearly all boards are read.
        least_watts: What is left at least, DC.
        most_watts: At most: the same where draws stand still.
        steady: Domains of which it is known what a reading has seen: their draws stand still.
    """

    new: BoolArray
    least_watts: FloatArray
    most_watts: FloatArray
    steady: BoolArray


def no_hosts_yet(n_nodes: int) -> ServerHosts:
    """Nobody has told anything yet."""
    return ServerHosts(
        np.full(n_nodes, np.nan),
        np.full(n_nodes, np.nan),
        np.zeros(n_nodes, dtype=np.int64),
        np.zeros(n_nodes),
    )


def is_told(memory: ServerHosts, now: Watched) -> BoolArray:
    """Servers that count at what they were told, not at their declared worst, (n_nodes,)."""
    told = now.heard & now.spoken & (memory.tellings >= _TELLINGS_TO_COUNT)
    return np.asarray(told | ~np.isnan(now.shown_watts))


def counted_watts(memory: ServerHosts, now: Watched) -> FloatArray:
    """What each server counts at beside its boards, DC, (n_nodes,)."""
    shown = ~np.isnan(now.shown_watts)
    most = np.fmax(now.worst_watts, memory.watts)
    kept = np.exp(-memory.untold_seconds / _FORGOTTEN_IN_SECONDS)
    forgotten = most - (most - memory.watts) * kept
    risen = HOST_PER_GPU_WATT * np.fmax(now.boards_most_watts - memory.boards_watts, 0.0)
    followed = np.minimum(memory.watts + np.where(now.nearest >= 0, 0.0, risen), most)
    watts = np.maximum(followed, forgotten)
    told = np.where(is_told(memory, now), watts, now.worst_watts)
    return np.where(shown, now.shown_watts, told)


def hosts_after(
    memory: ServerHosts, now: Watched, lesson: HostLesson, load: LoadTree, seconds: float
) -> ServerHosts:
    """The memory after a tick.

    Args:
        memory: So far.
        now: What can be seen.
        lesson: What new readings leave.
        load: Tree and members.
        seconds: Since the last tick.
    """
    shown = ~np.isnan(now.shown_watts)
    aged = np.where(now.nearest >= 0, 0.0, seconds)
    after = ServerHosts(
        np.where(shown, now.shown_watts, memory.watts),
        memory.boards_watts,
        np.where(shown, np.maximum(memory.tellings, _TOLD_BY_ITSELF), memory.tellings),
        np.where(shown, 0.0, memory.untold_seconds + aged),
    )
    told = shown
    if some(lesson.new):
        group = ~shown & now.heard & np.append(lesson.new, False)[now.nearest]
        after = _taught(after, now, group, lesson, load)
        told = shown | group
    then = np.where(np.isnan(memory.boards_watts), now.boards_watts, memory.boards_watts)
    step = (1.0 - np.exp(-seconds / _BOARDS_SECONDS)) * (now.boards_watts - then)
    follows = told & ~np.isnan(step)
    return replace(after, boards_watts=np.where(follows, then + step, then))


def _of_nearest(values: FloatArray, now: Watched, nobody: float) -> FloatArray:
    """Of each server's nearest believed meter, ``nobody`` without one, (n_nodes,)."""
    return np.append(values, nobody)[now.nearest]


def _taught(
    memory: ServerHosts, now: Watched, group: BoolArray, lesson: HostLesson, load: LoadTree
) -> ServerHosts:
    """The memory after new readings.

    Args:
        memory: So far.
        now: What can be seen.
        group: Servers without a meter of their own below a domain with a new reading that is the
            nearest to them, (n_nodes,).
        lesson: What it leaves.
        load: Tree and members.
    """
    n, nearest = len(load.tree), now.nearest[group]

    def of_group(watts: FloatArray) -> FloatArray:
        return np.bincount(nearest, watts[group], n).astype(np.float64, copy=False)

    known = memory.tellings > 0
    counted = np.where(known | ~now.heard, np.nan_to_num(memory.watts), now.worst_watts)
    counted = np.where(now.heard, counted, 0.0)
    boards = np.nan_to_num(now.boards_watts)
    accounted = load.sum_nodes(np.where(now.heard, counted + boards, 0.0))
    accounted = accounted - of_group(counted + boards)
    unmetered = np.isnan(now.shown_watts)
    least, most = lesson.least_watts, lesson.most_watts + CROSS_CHECK_SHARE * accounted
    first = group & ~known
    if some(first):
        others = load.sum_nodes(np.where(unmetered & ~first, counted, 0.0))
        counted = _first_told(now, first, counted, (least - others, most - others), load)
    total = load.sum_nodes(np.where(unmetered, counted, 0.0))
    missing = np.maximum(least - total, 0.0) - np.maximum(total - most, 0.0)
    # The same measure up and down; whoever has no room, or nothing, still has a little.
    worst = np.maximum(now.worst_watts, 1.0)
    room = np.maximum(worst - counted, 0.0)
    part = counted * room / worst + _LEAST_PART * worst
    sums = of_group(part)
    each = np.divide(missing, sums, out=np.zeros(n), where=sums > 0.0)
    rate = np.where(_of_nearest(missing, now, 0.0) < 0.0, _FALL_RATE, _RISE_RATE)
    rate = rate * _of_nearest(np.where(lesson.steady, 1.0, _SWINGING_RATE), now, 1.0)
    rate = np.maximum(rate, 1.0 / (memory.tellings + 1.0))
    moved = rate * np.clip(_of_nearest(each, now, 0.0) * part, -counted, room)
    return ServerHosts(
        np.where(group, counted + np.where(first, 0.0, moved), memory.watts),
        memory.boards_watts,
        memory.tellings + group,
        np.where(group, (1.0 - rate) * memory.untold_seconds, memory.untold_seconds),
    )


def _first_told(
    now: Watched,
    first: BoolArray,
    counted: FloatArray,
    left: tuple[FloatArray, FloatArray],
    load: LoadTree,
) -> FloatArray:
    """Draws with those who are told for the first time: like the others, as far as that fits.

    Args:
        now: What can be seen.
        first: Who is, (n_nodes,).
        counted: What servers draw as far as was told, DC, (n_nodes,).
        left: What the others leave for them at least and at most, DC, (n_domains,).
        load: Tree and members.
    """
    worst = load.sum_nodes(np.where(first, now.worst_watts, 0.0))
    of_others = load.sum_nodes(np.where(now.heard & ~first, now.worst_watts, 0.0))
    alike = np.divide(
        load.sum_nodes(np.where(now.heard & ~first, counted, 0.0)),
        of_others,
        out=np.ones_like(worst),
        where=of_others > 0.0,
    )
    least, most = (
        np.clip(np.divide(watts, worst, out=np.ones_like(worst), where=worst > 0.0), 0.0, 1.0)
        for watts in left
    )
    share = np.maximum(np.minimum(alike, most), least)
    return np.where(first, _of_nearest(share, now, 1.0) * now.worst_watts, counted)
