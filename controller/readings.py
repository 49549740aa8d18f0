"""Which power readings are of this moment: what never changes, or hides energy, is not (I7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.tick_values import Tick
from wattpack.masks import some
from wattpack.power.board_trust import (
    READING_WINDOW_NS,
    STALE_AFTER_SAME,
    contradicted,
    stale_readings,
)
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.energy_trust import TRUSTED_AGAIN_NS
from wattpack.power.recent_highest import RecentHighest, nothing_yet
from wattpack.units import NS_PER_SECOND

__all__ = [
    "ReadingMemory",
    "initial_readings",
    "shown_hosts",
    "stale_boards",
    "stale_hosts",
    "take_readings",
]

# BMCs are to be read every five seconds at least (docs/power-estimates.md). Assumed.
_SHOWS_FOR_NS = 5 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class ReadingMemory:
    """What boards and servers said last.

    Attributes:
        received_ns: Of the newest report taken in, (n_nodes,).
        gpu_draw_watts: Its readings, (n_gpus,).
        gpu_same: How many reports in a row said exactly that, (n_gpus,).
        contradicted_ns: When a board's counter last said other than its reading, which stood still
            then and has not moved since; -1 if it did not, (n_gpus,).
        host_watts: The servers without GPUs, (n_nodes,).
        host_same: The same for them, (n_nodes,).
        host_time_ns: When they were read, (n_nodes,).
        highest: Readings of the last seconds.
    """

    received_ns: IntArray
    gpu_draw_watts: FloatArray
    gpu_same: IntArray
    contradicted_ns: IntArray
    host_watts: FloatArray
    host_same: IntArray
    host_time_ns: IntArray
    highest: RecentHighest


def initial_readings(n_gpus: int, n_nodes: int) -> ReadingMemory:
    """Nothing was read yet."""
    return ReadingMemory(
        np.full(n_nodes, -1, dtype=np.int64),
        np.full(n_gpus, np.nan),
        np.zeros(n_gpus, dtype=np.int64),
        np.full(n_gpus, -1, dtype=np.int64),
        np.full(n_nodes, np.nan),
        np.zeros(n_nodes, dtype=np.int64),
        np.full(n_nodes, -1, dtype=np.int64),
        nothing_yet(n_gpus, NS_PER_SECOND, READING_WINDOW_NS),
    )


def take_readings(
    tick: Tick, memory: ReadingMemory, readable_watts: FloatArray, energy_mean: FloatArray
) -> ReadingMemory:
    """The memory with every report that is newer than the last one.

    Args:
        tick: For the reports.
        memory: So far.
        readable_watts: Their readings without those that no board can give, (n_gpus,).
        energy_mean: 3 s means of their counters, NaN if unknown, (n_gpus,).
    """
    observed = tick.observations
    new = observed.node_received_ns > memory.received_ns
    new_gpu = new.take(tick.topology.node_of_gpu)
    watts, same = _counted(memory.gpu_draw_watts, memory.gpu_same, readable_watts, new_gpu)
    host_ns = observed.host_time_ns if observed.host_time_ns.size else observed.node_received_ns
    new_host = host_ns > memory.host_time_ns
    host = _counted(memory.host_watts, memory.host_same, observed.host_watts, new_host)
    readings = np.where(new_gpu, readable_watts, np.nan)
    return ReadingMemory(
        np.maximum(memory.received_ns, observed.node_received_ns),
        watts,
        same,
        _contradicted_ns(memory, (watts, same), energy_mean, tick.now_ns),
        *host,
        np.maximum(memory.host_time_ns, host_ns),
        memory.highest.with_watts(readings, tick.now_ns),
    )


def _counted(
    last: FloatArray, count: IntArray, watts: FloatArray, new: BoolArray
) -> tuple[FloatArray, IntArray]:
    """The newest values and how often each came in a row; NaN equals nothing."""
    same = np.where(watts == last, count + 1, 1)
    return np.where(new, watts, last), np.where(new, same, count)


def _contradicted_ns(
    memory: ReadingMemory,
    counted: tuple[FloatArray, IntArray],
    energy_mean: FloatArray,
    now_ns: int,
) -> IntArray:
    watts, same = counted
    stands = same >= STALE_AFTER_SAME
    if not some(stands):
        return np.full(len(same), -1, dtype=np.int64)
    since = np.where(stands, memory.contradicted_ns, -1)
    return np.where(stands & contradicted(watts, energy_mean), now_ns, since)


def stale_boards(memory: ReadingMemory, energy_mean: FloatArray, now_ns: int) -> BoolArray:
    """GPUs whose readings are not of this moment, (n_gpus,).

    A frozen reading that its counter contradicted is not believed for what the counter shows by
    chance a moment later: a draw that falls or swings passes every reading.
    """
    recent = memory.highest.since(now_ns - READING_WINDOW_NS)
    stale = stale_readings(memory.gpu_draw_watts, memory.gpu_same, recent, energy_mean)
    lately = (memory.contradicted_ns >= 0) & (now_ns - memory.contradicted_ns < TRUSTED_AGAIN_NS)
    return np.asarray(stale | lately)


def shown_hosts(memory: ReadingMemory, now_ns: int) -> BoolArray:
    """Servers whose own meter shows what they draw now, and not what they drew, (n_nodes,).

    A reading that is overdue, or that says what the one before it said, confirms no board.
    """
    young = now_ns - memory.host_time_ns <= _SHOWS_FOR_NS
    return np.asarray((memory.host_time_ns >= 0) & young & (memory.host_same <= 1))


def stale_hosts(memory: ReadingMemory) -> BoolArray:
    """Servers whose own meter gives one number for ever: no counter can confirm it, (n_nodes,)."""
    return memory.host_same >= STALE_AFTER_SAME
