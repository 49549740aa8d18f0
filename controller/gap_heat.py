"""Heat over a gap in telemetry, reckoned again once agents tell the highest reading of the gap.

A server that is silent counts at the most that it may draw, so a row that nobody could hear for
half a minute seems to have heated its breaker. Its agent went on reading: when it is heard again it
tells the highest reading since its last heard report. A breaker's heat rises faster than its load
(I²t and steeper), so of all courses that its boards can have taken none heats more than the one in
which every board drew its highest all the time:

    silent boards' watts of a tick  <-  min(what was counted, highest readings · 1.05)
    the same of servers beside them <-  min(declared worst, higher reading of before and after
                                            + a tenth of the worst)

The second rests on a server's own meter, or on the share that a domain's meter taught: fans follow
boards within a minute, and CPUs are left that tenth. Where nothing is known of servers their
declared worst stays; domain meters bound from below. The energy counter only checks the reading
here: a mean over the gap above the highest reading is no mean of what was read. Readings are means
of a second, taken several times a second: shorter peaks are in them by their mean, and what falls
between two of them is what ``OVERSHOOT_RATIO`` is for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.breaker_heat import advance_heat
from wattpack.masks import some
from wattpack.power.domain_tree import OVERSHOOT_RATIO, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree
from wattpack.units import NS_PER_SECOND

__all__ = [
    "GapRow",
    "Heard",
    "believable_highest",
    "highest_host",
    "kept_rows",
    "reckoned_again",
    "settled_rows",
]

_ROWS = 256
"""Ticks that are remembered; of a longer gap only these are reckoned again."""

_COUNTER_RATIO, _COUNTER_WATTS = 1.05, 10.0
"""A counter and a power reading of one board agree within 1.5 % over a minute (own H200); more is a
reading that stood still, or missed what lasted."""

_HOST_RISE_SHARE = 0.1
"""Of its declared worst, what a server may have drawn in a gap beyond what both its ends show.
Assumed."""


@dataclass(frozen=True, slots=True)
class GapRow:
    """One tick in which somebody was silent.

    Attributes:
        begin_ns: The tick before it.
        heat: Of each domain then, (n_domains,).
        watts: By which heat was advanced, AC, (n_domains,).
        sum_watts: What it would have been without bounds of meters, AC, (n_domains,).
        least_watts: Of that, what meters saw, AC; all of it once they put its heat right,
            (n_domains,).
        silent_watts: What the boards of each silent server counted, 0 for others, DC, (n_nodes,).
        silent_host_watts: The same of what it draws beside them, DC, (n_nodes,).
    """

    begin_ns: int
    end_ns: int
    heat: FloatArray
    watts: FloatArray
    sum_watts: FloatArray
    least_watts: FloatArray
    silent_watts: FloatArray
    silent_host_watts: FloatArray


@dataclass(frozen=True, slots=True)
class Heard:
    """Servers that were heard at this tick, (n_nodes,) each.

    Attributes:
        highest_watts: Sum over their boards of the highest readings since the report before, NaN
            where one of them is unknown or not to be trusted.
        highest_host_watts: The most that they can have drawn beside these.
        before_ns: When each was heard last before this tick.
    """

    highest_watts: FloatArray
    highest_host_watts: FloatArray
    before_ns: IntArray


def believable_highest(
    highest_watts: FloatArray, joules: tuple[FloatArray, FloatArray], seconds: FloatArray
) -> FloatArray:
    """Highest readings since the last report, NaN where the energy counter says otherwise.

    Args:
        highest_watts: As told; NaN where untold.
        joules: Counters at the last report and now, NaN where there are none.
        seconds: Between the two.
    """
    before, now = joules
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (now - before) / seconds
        agrees = (mean > 0.0) & (mean <= _COUNTER_RATIO * highest_watts + _COUNTER_WATTS)
    return np.where(agrees & (seconds > 0.0), highest_watts, np.nan)


def highest_host(
    readings: tuple[FloatArray, FloatArray], unread_watts: FloatArray, worst_watts: FloatArray
) -> FloatArray:
    """What servers drew in a gap beside their boards at most, (n_nodes,).

    Args:
        readings: By their own meters the last before it and the first after, NaN without.
        unread_watts: What they count at without the one after.
        worst_watts: Declared.
    """
    before, now = readings
    seen = np.where(np.isnan(now), unread_watts, np.maximum(before, now))
    return np.where(np.isnan(seen), worst_watts, seen) + _HOST_RISE_SHARE * worst_watts


def kept_rows(rows: tuple[GapRow, ...], row: GapRow) -> tuple[GapRow, ...]:
    """The rows with one more; none once nobody is silent any more."""
    if not some(row.silent_watts):
        return ()
    return (*rows[1 - _ROWS :], row)


def settled_rows(
    rows: tuple[GapRow, ...], begin_ns: IntArray, settled_ns: IntArray
) -> tuple[GapRow, ...]:
    """The rows without what can still be taken off where a meter has put the heat right.

    Args:
        rows: Ticks with silent servers.
        begin_ns: How far back it could do so, (n_domains,).
        settled_ns: Up to when, -1 for domains without a new reading, (n_domains,).
    """
    spoken = settled_ns >= 0
    first_ns = begin_ns[spoken].min(initial=settled_ns.max())
    changed = list(rows)
    for i, row in enumerate(rows):
        if first_ns <= row.begin_ns < settled_ns.max():
            settled = (begin_ns <= row.begin_ns) & (row.begin_ns < settled_ns)
            changed[i] = replace(row, least_watts=np.where(settled, row.watts, row.least_watts))
    return tuple(changed)


def reckoned_again(
    load: LoadTree, rows: tuple[GapRow, ...], heard: Heard
) -> tuple[FloatArray, tuple[GapRow, ...]]:
    """Heat to take off each domain, (n_domains,), and the rows with what they count now.

    Args:
        load: Tree and members.
        rows: Ticks with silent servers, oldest first.
        heard: Who was heard now, and what they tell.
    """
    told = np.isfinite(heard.highest_watts)
    if not some(told) or not rows:
        return np.zeros(len(load.tree)), rows
    lower = tuple(_lowered(load, row, heard) for row in rows)
    first = next((i for i, row in enumerate(rows) if lower[i] is not row), len(rows))
    if first == len(rows):
        return np.zeros(len(load.tree)), rows
    false = _heat_of(load, rows[first:]) - _heat_of(load, lower[first:])
    return np.maximum(false, 0.0), lower


def _lowered(load: LoadTree, row: GapRow, heard: Heard) -> GapRow:
    """The row with the servers whose silence it belongs to at the most that they can have drawn."""
    of_this_gap = (heard.before_ns <= row.begin_ns) & np.isfinite(heard.highest_watts)
    boards = row.silent_watts - heard.highest_watts * OVERSHOOT_RATIO
    hosts = row.silent_host_watts - heard.highest_host_watts
    boards, hosts = (np.where(of_this_gap, np.maximum(w, 0.0), 0.0) for w in (boards, hosts))
    excess = boards + hosts
    if not some(excess):
        return row
    # Counted they were by a learned gain of 1 or more.
    sums = row.sum_watts - load.sum_nodes(excess) / load.efficiency
    # What a meter of another level has taken off already is not taken off once more.
    watts = np.maximum(np.minimum(row.watts, sums), np.minimum(row.least_watts, row.watts))
    return replace(
        row,
        watts=watts,
        sum_watts=sums,
        silent_watts=row.silent_watts - boards,
        silent_host_watts=row.silent_host_watts - hosts,
    )


def _heat_of(load: LoadTree, rows: tuple[GapRow, ...]) -> FloatArray:
    """Heat after the rows from what it was at the first, cooling between them, (n_domains,)."""
    heat, at_ns = rows[0].heat, rows[0].begin_ns
    rest = np.zeros(len(heat))
    for row in rows:
        if row.begin_ns > at_ns:
            heat = advance_heat(load, heat, rest, (row.begin_ns - at_ns) / NS_PER_SECOND)
        seconds = (row.end_ns - row.begin_ns) / NS_PER_SECOND
        heat = np.minimum(advance_heat(load, heat, row.watts, seconds), 1.0)
        at_ns = row.end_ns
    return heat
