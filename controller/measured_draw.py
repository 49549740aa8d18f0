"""One tick's draw of every domain: what is read, what meters show of it, and what both taught.

boards, BMCs ─────────────┐
meters of domains ─┬─> taught shares ─┬─> sum of nodes ─┐
│   lost BMCs ─────┘                 ├─> draw, between what meters show
└───────────────────────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.beside_meters import beside_meters_watts
from controller.changes import SILENCE_NS, Change, ChangeMemory, changed_since, least_change
from controller.controller_state import State
from controller.estimate import (
    CROSS_CHECK_SHARE,
    Metered,
    NodeDraw,
    NodeReadings,
    bounds_of,
    followed_boards_watts,
    lost_margin_watts,
    node_draw,
    readings_of,
    sum_of_nodes,
    unconfirmed_watts,
)
from controller.last_hosts import LastHosts, beyond_taught_watts, hosts_taken
from controller.meters import (
    Lesson,
    MeterMemory,
    has_spoken,
    learned,
    lessons_of_nodes,
    node_host_share,
    remembered,
    shown_share,
    take_meters,
    valid_meters,
)
from controller.tick_values import Tick
from wattpack.masks import some
from wattpack.power.domain_tree import OVERSHOOT_RATIO, BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["Known", "MeasuredDraw", "draw_measured", "sums_by_node"]

_STEADY_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Known:
    """Readings and what stands in for them.

    Attributes:
        gpu_watts: Believed readings, NaN for the others, (n_gpus,).
        host_watts: What servers draw beside them by a meter of their own, DC, NaN without one that
            is believed, (n_nodes,).
        shown_node: Servers whose own meter shows them now, (n_nodes,).
        highest_watts: What each board may hold, (n_gpus,).
        fresh_node: Servers that are heard, (n_nodes,).
        complete: Domains of which nearly everything is read, (n_domains,).
        changes: What boards drew over the last seconds.
    """

    gpu_watts: FloatArray
    host_watts: FloatArray
    shown_node: BoolArray
    highest_watts: FloatArray
    fresh_node: BoolArray
    complete: BoolArray
    changes: ChangeMemory


@dataclass(frozen=True, slots=True)
class MeasuredDraw:
    """What a tick makes of it.

    Attributes:
        meters: What meters taught.
        last_hosts: What servers drew whose own meter is lost.
        metered: Draw of each domain.
        news: Domains whose meter said something new that is believed, (n_domains,).
    """

    meters: MeterMemory
    last_hosts: LastHosts
    metered: Metered
    news: BoolArray


@dataclass(frozen=True, slots=True)
class _Shown:
    """Meters of this tick, each (n_domains,).

    Attributes:
        watts: Usable readings, AC, NaN for the others.
        usable: Domains with one.
        credible: Those that show what is read below them at least.
        news: Those of them that are new.
        stamp_ns: Of which moment, now without one.
        change: Of what is read since then.
        then_watts: What was read of nodes at that moment, AC.
    """

    watts: FloatArray
    usable: BoolArray
    credible: BoolArray
    news: BoolArray
    stamp_ns: IntArray
    change: Change
    then_watts: FloatArray


def draw_measured(tick: Tick, state: State, known: Known) -> MeasuredDraw:
    """AC draw of each domain, and what is remembered of it."""
    load = state.load
    read = readings_of(tick.topology, load, known.gpu_watts, known.host_watts)
    memory, shown = _taken(tick, state, known, read)
    boards = sums_by_node(tick, np.where(np.isnan(known.gpu_watts), 0.0, known.gpu_watts))
    memory, last_hosts = _learned(tick, state, known, (read, boards), (memory, shown))
    share = np.where(known.fresh_node, node_host_share(shown_share(memory), load), 1.0)
    nodes = node_draw(tick.topology, load, read, known.highest_watts, share, known.fresh_node)
    spoken = has_spoken(memory)
    lost = spoken & ~shown.usable
    lost_seconds = np.where(lost, memory.unused_seconds, np.nan)
    margin = lost_margin_watts(load, read, nodes, known.shown_node, lost_seconds)
    by_nodes = sum_of_nodes(load, nodes, margin, memory)
    followed = shown.watts + shown.change.lagged_watts
    unmetered = np.where(np.isnan(known.host_watts), tick.topology.node_worst_watts, 0.0)
    room = (1.0 - share) * unmetered
    told = np.where(shown.credible, followed, np.nan)
    beside = beside_meters_watts(load, by_nodes, told, room, shown.usable)
    # What nobody taught is part of what meters of domains show beyond what they taught.
    hosts = beyond_taught_watts(
        last_hosts, known.host_watts, boards, share * unmetered, known.fresh_node
    )
    risen = _risen_watts(state, read, memory, lost, load.sum_nodes(room))
    untaught = memory.gain * np.maximum(load.sum_nodes(hosts), risen) / load.efficiency
    by_nodes, beside = by_nodes + untaught, np.maximum(beside - untaught, 0.0)
    shown_node = ~np.isnan(known.host_watts) | (share < 1.0)
    confirmed = np.where(shown.usable, shown.credible, spoken)
    unconfirmed = unconfirmed_watts(load, read, shown_node, nodes.at_worst_watts, confirmed)
    metered = _bounded(tick, state, known, nodes, shown, (by_nodes, beside, unconfirmed))
    return MeasuredDraw(memory, last_hosts, metered, shown.news)


def _taken(
    tick: Tick, state: State, known: Known, read: NodeReadings
) -> tuple[MeterMemory, _Shown]:
    """What meters show, beside what was read at the moments of their readings."""
    valid, stamps = valid_meters(tick, state.load), tick.observations.meter_time_ns
    stamp = np.where(valid, stamps, tick.now_ns)
    change = changed_since(known.changes, stamp)
    then = read.known_watts - change.lagged_watts
    read_then = np.where(known.complete, then, np.nan)
    memory, taken = take_meters(tick, state.load, state.meters, valid, read_then)
    if some(taken.usable != valid):
        stamp = np.where(taken.usable, stamps, tick.now_ns)
        change = changed_since(known.changes, stamp)
        then = read.known_watts - change.lagged_watts
    # What is read below it and a meter that shows less cannot both be right: it teaches nothing.
    watts = np.where(np.isnan(taken.watts), 0.0, taken.watts)
    credible = taken.usable & (then <= (1.0 + CROSS_CHECK_SHARE) * watts)
    news = taken.new & credible
    return memory, _Shown(taken.watts, taken.usable, credible, news, stamp, change, then)


def _learned(
    tick: Tick,
    state: State,
    known: Known,
    nodes: tuple[NodeReadings, FloatArray],
    meters: tuple[MeterMemory, _Shown],
) -> tuple[MeterMemory, LastHosts]:
    """What this tick's readings teach of servers."""
    (read, boards), (memory, shown) = nodes, meters
    watts = np.where(np.isnan(shown.watts), 0.0, shown.watts)
    # While draws move it is not known which of them a reading has seen.
    moved = np.abs(shown.change.stamped_watts - shown.change.lagged_watts)
    lesson = Lesson(
        usable=shown.credible,
        new=shown.news & known.complete,
        steady=moved <= _STEADY_SHARE * watts,
        meter_watts=watts,
        known_watts=shown.then_watts + state.load.external_watts,
        unknown_worst_watts=read.unmetered_worst_watts,
        boards_watts=read.boards_watts,
    )
    seconds = 0.0 if state.now_ns < 0 else (tick.now_ns - state.now_ns) / NS_PER_SECOND
    memory = learned(memory, lesson, seconds)
    lessons = lessons_of_nodes(memory, state.meters, state.load)
    hosts = hosts_taken(state.last_hosts, known.host_watts, boards, lessons, seconds)
    return memory, hosts


def sums_by_node(tick: Tick, gpu_watts: FloatArray) -> FloatArray:
    """Sums over each server's boards, (n_nodes,)."""
    sums = np.bincount(tick.topology.node_of_gpu, gpu_watts, tick.topology.n_nodes)
    return sums.astype(np.float64, copy=False)


def _risen_watts(
    state: State,
    read: NodeReadings,
    memory: MeterMemory,
    lost: BoolArray,
    room_watts: FloatArray,
) -> FloatArray:
    """What servers draw more since their meter was lost, as their boards do, DC, (n_domains,).

    What was forgotten since is counted already.
    """
    if not some(lost):
        return np.zeros(len(lost))
    room_then = room_watts / np.maximum(remembered(memory), 1e-9)
    boards_then = np.where(lost, memory.boards_watts, np.nan)
    risen = followed_boards_watts(state.load, read, boards_then, room_then)
    return np.fmax(risen - (room_then - room_watts), 0.0)


def _bounded(
    tick: Tick,
    state: State,
    known: Known,
    nodes: NodeDraw,
    shown: _Shown,
    sums: tuple[FloatArray, FloatArray, FloatArray],
) -> Metered:
    """The draw between what meters show.

    Args:
        tick: For its moment.
        state: For the tree.
        known: What is read.
        nodes: Sums over servers.
        shown: Meters.
        sums: Sum of nodes, what meters beside it show of it, and what no meter confirms, AC,
            (n_domains,) each.
    """
    load = state.load
    by_nodes, beside, unconfirmed = sums
    age = (tick.now_ns - shown.stamp_ns) / NS_PER_SECOND
    since = least_change(shown.change.largest_watts, _unheard_watts(tick, state, known))
    bounds = bounds_of(load, nodes, by_nodes, shown.watts + since, age)
    draw = bounds.applied_to(by_nodes + beside)
    return Metered(
        draw_watts=draw,
        by_nodes_watts=by_nodes,
        meter_watts=shown.watts,
        followed_watts=shown.watts + shown.change.lagged_watts,
        modelled_watts=nodes.most_watts - shown.change.stamped_watts + load.external_watts,
        bounds=bounds,
        at_worst_watts=nodes.at_worst_watts,
        unconfirmed_watts=bounds.applied_to(draw + unconfirmed) - draw,
        unbounded_watts=by_nodes + beside + unconfirmed,
    )


def _unheard_watts(tick: Tick, state: State, known: Known) -> FloatArray:
    """The most that those could draw of which nothing was read for a moment, AC, (n_domains,)."""
    load, topology = state.load, tick.topology
    unheard = tick.now_ns - tick.observations.node_received_ns > SILENCE_NS
    unheard |= ~known.fresh_node
    unread = unheard.take(load.node_of_gpu) | np.isnan(known.gpu_watts)
    if not some(unheard) and not some(unread):
        return np.zeros(len(load.tree))
    boards = load.sum_gpus(np.where(unread, known.highest_watts * OVERSHOOT_RATIO, 0.0))
    hosts = load.sum_nodes(np.where(unheard, topology.node_worst_watts, 0.0))
    return (boards + hosts) / load.efficiency
