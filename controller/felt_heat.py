"""The heat of each breaker: a record of what was drawn, put right as soon as its meter has spoken.

A tick advances heat by the draw that it believes in. When a meter's reading of that time arrives,
the heat of the seconds up to it is reckoned anew with the draws scaled to the reading, so that time
in which agents were silent neither hides heat nor leaves any that never was. A reading after a long
gap does not deny what was counted earlier in it: the row may have been hot then (``gap_heat``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from controller.breaker_heat import advance_heat
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree
from wattpack.units import NS_PER_SECOND

__all__ = ["SPEAKS_FOR_NS", "Felt", "FeltMemory", "feel_heat", "felt_less", "nothing_felt"]

_LONGEST_TICK_SECONDS = 60.0
# A breaker that tripped is replaced or reset by people; more heat than a trip means nothing.
_HIGHEST_HEAT = 1.0
_RING = 48
SPEAKS_FOR_NS = 5 * NS_PER_SECOND
"""Before its stamp; meters are read every two seconds, and one reading may be lost. Assumed."""


@dataclass(frozen=True, slots=True)
class FeltMemory:
    """Draws by which heat was advanced.

    Attributes:
        begins_ns: Ring of the times from which each draw counted, -1 for empty, (n_ring,).
        ends_ns: Until when, (n_ring,).
        watts: AC, (n_ring, n_domains).
        settled_ns: Up to when each domain's heat rests on its meter, -1 for never, (n_domains,).
    """

    begins_ns: IntArray
    ends_ns: IntArray
    watts: FloatArray
    settled_ns: IntArray


def nothing_felt(n_domains: int) -> FeltMemory:
    """No heat was felt yet."""
    none = np.full(_RING, -1, dtype=np.int64)
    return FeltMemory(
        none, none, np.zeros((_RING, n_domains)), np.full(n_domains, -1, dtype=np.int64)
    )


@dataclass(frozen=True, slots=True)
class Felt:
    """What heats the breakers at a tick, each (n_domains,).

    Attributes:
        watts: Draw since the last tick, AC.
        meter_watts: Readings, NaN where there is none that can be used.
        meter_time_ns: Their time stamps.
        news: Meters with a new reading.
    """

    watts: FloatArray
    meter_watts: FloatArray
    meter_time_ns: IntArray
    news: BoolArray


def feel_heat(
    load: LoadTree, memory: FeltMemory, heat: FloatArray, felt: Felt, span_ns: tuple[int, int]
) -> tuple[FloatArray, FeltMemory]:
    """Breaker heat after one more tick, and the memory with it.

    Args:
        load: Tree and members.
        memory: So far.
        heat: So far, (n_domains,).
        felt: Of this tick.
        span_ns: The last tick and this one.
    """
    begin_ns, now_ns = span_ns
    seconds = min((now_ns - begin_ns) / NS_PER_SECOND, _LONGEST_TICK_SECONDS)
    heat = advance_heat(load, heat, felt.watts, seconds)
    memory = _remembered(memory, felt.watts, now_ns - round(seconds * NS_PER_SECOND), now_ns)
    if some(felt.news):
        heat = heat + _correction(load, memory, felt)
        settled = np.where(felt.news, felt.meter_time_ns, memory.settled_ns)
        memory = replace(memory, settled_ns=settled)
    return np.minimum(np.maximum(heat, 0.0), _HIGHEST_HEAT), memory


def felt_less(memory: FeltMemory, ticks: Iterable[tuple[int, FloatArray]]) -> FeltMemory:
    """The memory with less at some ticks, so that no meter takes the same off once more.

    Args:
        memory: So far.
        ticks: When each ended, and by what heat was advanced in it as is known now, (n_domains,).
    """
    watts = memory.watts.copy()
    for end_ns, less in ticks:
        row = int(memory.ends_ns.searchsorted(end_ns))
        if row < _RING and memory.ends_ns[row] == end_ns:
            watts[row] = np.minimum(watts[row], less)
    return replace(memory, watts=watts)


def _remembered(memory: FeltMemory, watts: FloatArray, begin_ns: int, end_ns: int) -> FeltMemory:
    return replace(
        memory,
        begins_ns=np.concatenate((memory.begins_ns[1:], (begin_ns,))),
        ends_ns=np.concatenate((memory.ends_ns[1:], (end_ns,))),
        watts=np.concatenate((memory.watts[1:], watts[None, :])),
    )


def _correction(load: LoadTree, memory: FeltMemory, felt: Felt) -> FloatArray:
    """Heat to add for the time between each meter's last two readings, (n_domains,)."""
    stamps_ns = felt.meter_time_ns
    # The first tick that ends at or after each reading, which mostly lies inside it.
    tick = np.minimum(memory.ends_ns.searchsorted(stamps_ns), _RING - 1)
    known = felt.news & (memory.begins_ns[tick] < stamps_ns) & (stamps_ns <= memory.ends_ns[tick])
    then = memory.watts[tick, np.arange(len(stamps_ns))]
    shown = known & (then > 0.0)
    scale = np.where(known, felt.meter_watts, 0.0) / np.where(shown, then, 1.0)
    scale = np.where(shown, scale, 1.0)
    since = np.where(memory.settled_ns >= 0, memory.settled_ns, stamps_ns)
    begin = np.maximum(memory.begins_ns[:, None], since)
    seconds = (np.minimum(memory.ends_ns[:, None], stamps_ns) - begin) / NS_PER_SECOND
    seconds = np.where(known & (memory.ends_ns[:, None] >= 0), np.maximum(seconds, 0.0), 0.0)
    added: FloatArray = np.zeros(len(stamps_ns))
    for row in np.flatnonzero(seconds.any(axis=1)):
        ratio = memory.watts[row] / load.rating_watts
        early = memory.begins_ns[row] < stamps_ns - SPEAKS_FOR_NS
        scaled = ratio * np.where(early, np.maximum(scale, 1.0), scale)
        # Up to its rating nothing heats a breaker, by whatever reading.
        if some(np.maximum(ratio, scaled) > 1.0):
            felt_rate = 1.0 / load.curves.trip_seconds(ratio)
            added += seconds[row] * (1.0 / load.curves.trip_seconds(scaled) - felt_rate)
    return added
