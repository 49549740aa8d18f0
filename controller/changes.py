"""How much the readable part of each domain has changed since a meter's time stamp.

A meter speaks of a moment some seconds ago. What boards and metered servers drew more since then is
known from their own readings; only those that could be read all the time count, and of one that
comes back after a silence only a rise counts: its fall may lie before the meter's moment. Where no
more than a report or two was lost, a fall counts from the report before that: it lies after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree
from wattpack.units import NS_PER_MS, NS_PER_SECOND

__all__ = [
    "READINGS_LAG_NS",
    "SILENCE_NS",
    "Change",
    "ChangeMemory",
    "changed_since",
    "changes_taken",
    "least_change",
    "new_rise",
    "no_changes_yet",
]

_RING = 48
# Ticks between two entries (on a large rise) are seen by the next one.
_SPACING_NS = 500 * NS_PER_MS

READINGS_LAG_NS = NS_PER_SECOND
"""A reading is the mean of a second and reaches a tick up to a second later, so boards show later
what the meter has shown already; counting a fall twice would hide load."""

SILENCE_NS = 1500 * NS_PER_MS
"""Reports come each second and up to 0.1 s later: after this long at least one was lost. Until
the next one nothing is known of that server."""


@dataclass(frozen=True, slots=True)
class ChangeMemory:
    """Running sums of changes.

    Attributes:
        gpu_watts: Last readable draw, NaN before the first, (n_gpus,).
        gpu_seen: Whether the last tick had one, (n_gpus,).
        host_watts: The same of metered servers, (n_nodes,).
        host_seen: (n_nodes,).
        total_watts: Sum of all changes up to now, AC, (n_domains,).
        times_ns: Ring of ticks, -1 for empty, (n_ring,).
        totals_watts: ``total_watts`` at those ticks, (n_ring, n_domains).
    """

    gpu_watts: FloatArray
    gpu_seen: BoolArray
    host_watts: FloatArray
    host_seen: BoolArray
    total_watts: FloatArray
    times_ns: IntArray
    totals_watts: FloatArray


def no_changes_yet(n_gpus: int, n_nodes: int, n_domains: int) -> ChangeMemory:
    """Nothing was read yet."""
    return ChangeMemory(
        np.full(n_gpus, np.nan),
        np.zeros(n_gpus, dtype=np.bool_),
        np.full(n_nodes, np.nan),
        np.zeros(n_nodes, dtype=np.bool_),
        np.zeros(n_domains),
        np.full(_RING, -1, dtype=np.int64),
        np.zeros((_RING, n_domains)),
    )


def changes_taken(
    memory: ChangeMemory,
    load: LoadTree,
    gpu_watts: FloatArray,
    host_watts: FloatArray,
    before_ns: IntArray,
    now_ns: int,
) -> ChangeMemory:
    """The memory after this tick's readings.

    Args:
        memory: So far.
        load: Tree and members.
        gpu_watts: Readable draws, NaN for the others, (n_gpus,).
        host_watts: Metered servers without GPUs, NaN for the others, (n_nodes,).
        before_ns: When each server that has a new report was heard last, now for the others,
            (n_nodes,).
        now_ns: Now.
    """
    gpu, gpu_last, gpu_seen = _change(memory.gpu_watts, memory.gpu_seen, gpu_watts)
    host, host_last, host_seen = _change(memory.host_watts, memory.host_seen, host_watts)
    changed = load.sum_gpus(gpu)
    if some(host):
        changed = changed + load.sum_nodes(host)
    changed = changed / load.efficiency
    total = memory.total_watts + changed
    memory = _with_a_pause(memory, now_ns)
    times = memory.times_ns
    totals = _with_falls(memory, load, np.minimum(gpu, 0.0), np.minimum(host, 0.0), before_ns)
    if now_ns - times[-1] >= _SPACING_NS or times[-1] < 0:
        times = np.concatenate((times[1:], (now_ns,)))
        totals = np.concatenate((totals[1:], total[None, :]))
    return ChangeMemory(gpu_last, gpu_seen, host_last, host_seen, total, times, totals)


def _with_a_pause(memory: ChangeMemory, now_ns: int) -> ChangeMemory:
    """The memory with a moment in a time without ticks: what fell may have fallen by then."""
    last_ns = int(memory.times_ns[-1])
    if last_ns < 0 or now_ns - last_ns <= SILENCE_NS:
        return memory
    times = np.concatenate((memory.times_ns[1:], (last_ns + READINGS_LAG_NS,)))
    totals = np.concatenate((memory.totals_watts[1:], memory.totals_watts[-1:]))
    return replace(memory, times_ns=times, totals_watts=totals)


def _with_falls(
    memory: ChangeMemory,
    load: LoadTree,
    gpu_falls: FloatArray,
    host_falls: FloatArray,
    before_ns: IntArray,
) -> FloatArray:
    """Past totals, with falls as of the first report that could have shown them."""
    begin_ns = before_ns + READINGS_LAG_NS
    if len(begin_ns) == 0:
        return memory.totals_watts
    (rows,) = (memory.times_ns >= max(int(begin_ns.min()), 0)).nonzero()
    if len(rows) == 0:
        return memory.totals_watts
    totals = memory.totals_watts.copy()
    for row in rows:
        shown = begin_ns <= memory.times_ns[row]
        falls = load.sum_gpus(np.where(shown.take(load.node_of_gpu), gpu_falls, 0.0))
        if some(host_falls):
            falls = falls + load.sum_nodes(np.where(shown, host_falls, 0.0))
        totals[row] += falls / load.efficiency
    return totals


def _change(
    last: FloatArray, seen: BoolArray, watts: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The change of each reading, the last known ones, and which are known now."""
    known = ~np.isnan(watts)
    change = np.where(known & ~np.isnan(last), watts - last, 0.0)
    change = np.where(seen, change, np.maximum(change, 0.0))
    return change, np.where(known, watts, last), known


@dataclass(frozen=True, slots=True)
class Change:
    """Change of what is readable since a past time, AC, (n_domains,) each.

    Attributes:
        stamped_watts: By the time stamps of ticks and reading.
        lagged_watts: By what readings showed when they had followed up to that time.
        between_watts: By what they showed half-way.
    """

    stamped_watts: FloatArray
    lagged_watts: FloatArray
    between_watts: FloatArray

    @property
    def largest_watts(self) -> FloatArray:
        """The larger of both: a rise counts at once, a fall where it is counted once."""
        return np.maximum(self.stamped_watts, self.lagged_watts)

    @property
    def ends_watts(self) -> tuple[FloatArray, FloatArray]:
        """Between what it lies, whatever of it the reading has seen."""
        ends = np.minimum(self.stamped_watts, self.lagged_watts), self.largest_watts
        return np.minimum(ends[0], self.between_watts), np.maximum(ends[1], self.between_watts)


def changed_since(memory: ChangeMemory, when_ns: IntArray) -> Change:
    """Change of what is readable since a past time of each domain, (n_domains,)."""
    total = memory.total_watts
    # The ring rises: what is empty stands first.
    first = memory.times_ns.searchsorted(0)
    times, totals = memory.times_ns[first:], memory.totals_watts[first:]
    if not len(times):
        none = np.zeros_like(total)
        return Change(none, none, none)
    every = np.arange(len(total))

    def since(then_ns: IntArray) -> FloatArray:
        position = times.searchsorted(then_ns, side="right") - 1
        then = totals[np.maximum(position, 0), every]
        if some(position < 0):
            # From before the first entry nothing is known: the lowest of all.
            then = np.where(position >= 0, then, totals.min(axis=0))
        return np.asarray(total - then)

    return Change(
        since(when_ns), since(when_ns + READINGS_LAG_NS), since(when_ns + READINGS_LAG_NS // 2)
    )


def new_rise(memory: ChangeMemory, now_ns: int) -> FloatArray:
    """Rise of what is readable above all that it was until a second ago, AC, (n_domains,).

    0 until a quarter of the memory is filled; full, it reaches back 23 to 47 s.
    """
    begin = memory.times_ns.searchsorted(0)
    end = memory.times_ns.searchsorted(now_ns - READINGS_LAG_NS, side="right")
    if end - begin < _RING // 4:
        return np.zeros_like(memory.total_watts)
    risen = memory.total_watts - memory.totals_watts[begin:end].max(axis=0)
    return np.asarray(np.maximum(risen, 0.0), dtype=np.float64)


def least_change(watts: FloatArray, unread_watts: FloatArray) -> FloatArray:
    """The change with that of what could not be read: it may have risen while the rest fell.

    Args:
        watts: Change of what is readable, AC, (n_domains,).
        unread_watts: The most that the rest could draw, AC, (n_domains,).
    """
    return np.where(watts < 0.0, np.minimum(watts + unread_watts, 0.0), watts)
