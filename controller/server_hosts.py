"""What each server draws beside its boards, as it was told last.

    its own meter (a BMC) is believed   what that shows
    a meter above has a new reading     it and its neighbours move towards what boards and metered
                                        servers leave of the reading
    neither                             what was told, more by 0.25 W for each watt that its boards
                                        have risen since, and slowly back to the declared worst
    never told, or silent               the declared worst

A reading tells a sum, so each server keeps its part of it: of a rack of busy CPUs beside one at
rest a meter above both knows no more than that. While boards swing nobody knows which of them a
reading has seen. It leaves an interval then, and moves what lies outside of it: readings of other
moments of the swing leave others, and what is in all of them is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

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
# A few readings, perhaps of a start, are nothing to count on.
_TELLINGS_TO_COUNT: Final = 10
# What its own meter showed is not averaged away by the first readings of one above.
_TOLD_BY_ITSELF: Final = 100
# Two thirds of the way back to the declared worst: nobody watches fans and CPUs. Assumed.
_FORGOTTEN_IN_SECONDS: Final = 600.0
# What boards draw is remembered of about as long as fans take to follow them. Assumed.
_BOARDS_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ServerHosts:
    """Of each server, (n_nodes,) each.

    Attributes:
        watts: What it was told to draw beside its boards, DC, NaN before the first time.
        boards_watts: What its boards drew then, about the mean of half a minute, DC, NaN before.
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
        worst_watts: Declared, DC.
        heard: Servers that are.
        nearest: Domain of the nearest meter above that is believed, -1 without one.
        spoken: Whether any meter above has ever been.
    """

    shown_watts: FloatArray
    boards_watts: FloatArray
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
    """

    new: BoolArray
    least_watts: FloatArray
    most_watts: FloatArray


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
    risen = HOST_PER_GPU_WATT * np.fmax(now.boards_watts - memory.boards_watts, 0.0)
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
    shown, watched = ~np.isnan(now.shown_watts), now.nearest >= 0
    watts = np.where(shown, now.shown_watts, memory.watts)
    tellings = np.where(shown, np.maximum(memory.tellings, _TOLD_BY_ITSELF), memory.tellings)
    untold = np.where(shown, 0.0, memory.untold_seconds + np.where(watched, 0.0, seconds))
    if some(lesson.new):
        told = ServerHosts(watts, memory.boards_watts, tellings, untold)
        watts, tellings, untold = _taught(told, now, lesson, load)
    then = np.where(np.isnan(memory.boards_watts), now.boards_watts, memory.boards_watts)
    step = (1.0 - np.exp(-seconds / _BOARDS_SECONDS)) * (now.boards_watts - then)
    follows = (shown | watched) & ~np.isnan(step)
    return ServerHosts(watts, np.where(follows, then + step, then), tellings, untold)


def _taught(
    memory: ServerHosts, now: Watched, lesson: HostLesson, load: LoadTree
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Draws, tellings and untold seconds after new readings, (n_nodes,) each."""
    n, nearest = len(load.tree), now.nearest
    unmetered = np.isnan(now.shown_watts) & now.heard
    taught = unmetered & np.append(lesson.new, False)[nearest]
    first = taught & (memory.tellings == 0)
    watts = np.where(memory.tellings > 0, memory.watts, now.worst_watts)
    group = nearest[taught]

    def of_groups(values: FloatArray) -> FloatArray:
        return np.bincount(group, values[taught], n).astype(np.float64, copy=False)

    others = load.sum_nodes(np.where(unmetered & ~first, watts, 0.0))
    if some(first):
        # Who is told for the first time gets what the others leave, for once.
        worst = of_groups(np.where(first, now.worst_watts, 0.0))
        left = np.divide(lesson.most_watts - others, worst, out=np.ones(n), where=worst > 0.0)
        share = np.append(np.minimum(np.maximum(left, 0.0), 1.0), 1.0)[nearest]
        watts = np.where(first, share * now.worst_watts, watts)
        taught = taught & ~np.append(worst > 0.0, False)[nearest]
        group = nearest[taught]
    missing = np.maximum(lesson.least_watts - others, 0.0)
    beyond = np.maximum(others - lesson.most_watts, 0.0)
    room = np.maximum(now.worst_watts - watts, 0.0)
    up = np.divide(missing, of_groups(room), out=np.zeros(n), where=of_groups(room) > 0.0)
    down = np.divide(beyond, of_groups(watts), out=np.zeros(n), where=of_groups(watts) > 0.0)
    falls = np.append(beyond > 0.0, False)[nearest]
    rate = np.maximum(np.where(falls, _FALL_RATE, _RISE_RATE), 1.0 / (memory.tellings + 1.0))
    up, down = (np.append(np.minimum(part, 1.0), 0.0)[nearest] for part in (up, down))
    moved = watts + rate * (up * room - down * watts)
    every_taught = taught | first
    return (
        np.where(taught, moved, np.where(first, watts, memory.watts)),
        memory.tellings + every_taught,
        np.where(every_taught, (1.0 - rate) * memory.untold_seconds, memory.untold_seconds),
    )
