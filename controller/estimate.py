"""What every domain draws now, when meters lag, reports are missing and devices lie (I7).

    domain draw = max( meter + change of its nodes since the meter's time stamp,
                       sum of nodes * learned gain + declared rest )

What cannot be read counts at the most it could draw, never at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.tick_values import Tick, Topology
from wattpack.power.board_trust import STALE_AFTER_SAME
from wattpack.power.domain_tree import OVERSHOOT_RATIO, BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = [
    "MeterMemory",
    "Metered",
    "domain_draw",
    "initial_meters",
    "node_draw",
    "readable_gpu_watts",
]

# No board draws more than this over its default limit, even for 100 ms (Acme A100: 600 of 400 W);
# a larger reading is in another unit or of another thing.
_CREDIBLE_OVER_DEFAULT = 2.0
_HISTORY = 16
_METER_LOST_MARGIN = 1.05  # assumed: board sensors are good to 5 % (arXiv 2312.02741)
_GAIN_RATE = 0.05
_GAIN_BOUNDS = (1.0, 1.25)
_CREDIBLE_OVER_RATING = 3.0


@dataclass(frozen=True, slots=True)
class MeterMemory:
    """What the domain meters taught.

    Attributes:
        last_watts: Last fresh reading, (n_domains,).
        last_time_ns: Its time stamp, -1 before the first, (n_domains,).
        same_count: Identical readings in a row, (n_domains,).
        gain: Learned meter over sum of nodes, (n_domains,).
        times_ns: Ring of the last ticks, (n_ring,).
        nodes_watts: Sum of nodes at those ticks, (n_ring, n_domains).
    """

    last_watts: FloatArray
    last_time_ns: IntArray
    same_count: IntArray
    gain: FloatArray
    times_ns: IntArray
    nodes_watts: FloatArray


def initial_meters(n_domains: int) -> MeterMemory:
    """No meter was heard yet."""
    return MeterMemory(
        np.zeros(n_domains),
        np.full(n_domains, -1, dtype=np.int64),
        np.zeros(n_domains, dtype=np.int64),
        np.ones(n_domains),
        np.full(_HISTORY, -1, dtype=np.int64),
        np.zeros((_HISTORY, n_domains)),
    )


def readable_gpu_watts(topology: Topology, watts: FloatArray, fresh_gpu: BoolArray) -> FloatArray:
    """The readings that can be believed at all, NaN for the others, (n_gpus,).

    Refused: negative, non-finite, of a silent node, or more than any board draws (milliwatts).
    """
    with np.errstate(invalid="ignore"):
        credible = (watts >= 0.0) & (watts <= _CREDIBLE_OVER_DEFAULT * topology.default_limit_watts)
    return np.asarray(np.where(credible & fresh_gpu, watts, np.nan), dtype=np.float64)


def node_draw(
    topology: Topology,
    gpu_draw_watts: FloatArray,
    host_watts: FloatArray,
    highest_cap_watts: FloatArray,
    fresh_node: BoolArray,
) -> FloatArray:
    """DC watts of each server; what is unreadable counts at the most it could draw, (n_nodes,)."""
    most = highest_cap_watts * OVERSHOOT_RATIO
    gpus = np.where(np.isnan(gpu_draw_watts), most, gpu_draw_watts)
    with np.errstate(invalid="ignore"):
        host_known = fresh_node & (host_watts >= 0.0)
        host_known &= host_watts <= _CREDIBLE_OVER_DEFAULT * topology.node_worst_watts + 1000.0
    host = np.where(host_known, host_watts, topology.node_worst_watts)
    by_node = np.bincount(topology.node_of_gpu, weights=gpus, minlength=topology.n_nodes)
    return np.asarray(by_node + host, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Metered:
    """What meters and nodes say together, each (n_domains,).

    Attributes:
        draw_watts: AC draw by the better informed of the two.
        meter_watts: Usable readings, NaN for the others.
        modelled_watts: Nodes and declared load at the time of each reading.
    """

    draw_watts: FloatArray
    meter_watts: FloatArray
    modelled_watts: FloatArray


def domain_draw(
    tick: Tick, load: LoadTree, memory: MeterMemory, nodes_watts: FloatArray, complete: BoolArray
) -> tuple[Metered, MeterMemory]:
    """AC draw of each domain and the memory with what was learned of the gains.

    Args:
        tick: For the readings.
        load: Tree and members.
        memory: Of the last tick.
        nodes_watts: AC watts of the nodes below each domain, (n_domains,).
        complete: Domains all of whose nodes reported; only they teach, (n_domains,).
    """
    memory, usable = _taken(tick, load, memory, nodes_watts)
    then = _nodes_at(memory, tick.observations.meter_time_ns)
    modelled = then + load.external_watts
    meter = np.where(usable, tick.observations.meter_watts, 0.0)
    teaches = usable & complete & (modelled > 0)
    ratio = np.divide(meter, modelled, out=np.ones_like(meter), where=teaches)
    gain = np.where(teaches, memory.gain + _GAIN_RATE * (ratio - memory.gain), memory.gain)
    gain = np.clip(gain, *_GAIN_BOUNDS)
    lost = ~usable & (memory.last_time_ns >= 0)
    by_nodes = nodes_watts * gain * np.where(lost, _METER_LOST_MARGIN, 1.0) + load.external_watts
    by_meter = np.where(usable, meter + nodes_watts - then, 0.0)
    metered = Metered(np.maximum(by_meter, by_nodes), np.where(usable, meter, np.nan), modelled)
    return metered, replace(memory, gain=gain)


def _taken(
    tick: Tick, load: LoadTree, memory: MeterMemory, nodes_watts: FloatArray
) -> tuple[MeterMemory, BoolArray]:
    """Take in this tick's meter readings and node sums; also which meters can be used now.

    Five identical readings in a row are a stuck meter; so is one without a new reading.
    """
    watts, stamp = tick.observations.meter_watts, tick.observations.meter_time_ns
    with np.errstate(invalid="ignore"):
        valid = (watts >= 0.0) & (watts <= _CREDIBLE_OVER_RATING * load.rating_watts)
    valid &= stamp <= tick.now_ns
    new = valid & (stamp > memory.last_time_ns)
    same = np.where(new, np.where(watts == memory.last_watts, memory.same_count + 1, 1), 0)
    same_count = np.where(new, same, memory.same_count)
    usable = valid & (same_count < STALE_AFTER_SAME)
    ring_times = np.append(memory.times_ns[1:], tick.now_ns)
    ring_watts = np.concatenate((memory.nodes_watts[1:], nodes_watts[None, :]))
    updated = replace(
        memory,
        last_watts=np.where(new, watts, memory.last_watts),
        last_time_ns=np.where(new, stamp, memory.last_time_ns),
        same_count=same_count,
        times_ns=ring_times,
        nodes_watts=ring_watts,
    )
    return updated, np.asarray(usable)


def _nodes_at(memory: MeterMemory, when_ns: IntArray) -> FloatArray:
    """Sum of nodes at a past time, the lowest known before the ring begins, (n_domains,)."""
    known = memory.times_ns >= 0
    times, watts = memory.times_ns[known], memory.nodes_watts[known]
    position = np.searchsorted(times, when_ns, side="right") - 1
    inside = watts[np.maximum(position, 0), np.arange(watts.shape[1])]
    return np.asarray(np.where(position >= 0, inside, watts.min(axis=0)), dtype=np.float64)
