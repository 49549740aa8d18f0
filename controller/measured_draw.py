"""One tick's draw of every domain: what is read, and what meters show of it.

    boards ────────────┬──────────────────────────────────> sum of nodes ─┐
    BMCs ──────────────┼─> what servers draw beside them ─────┘           ├─> draw, between what
    meters of domains ─┴──────────────────────────────────────────────────┘   meters show

What nothing shows counts at the most that it may draw (I7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.beside_meters import beside_meters_watts, nearest_of_nodes
from controller.board_sums import sums_by_node
from controller.changes import SILENCE_NS, Change, ChangeMemory, changed_since, least_change
from controller.controller_state import State
from controller.estimate import (
    CROSS_CHECK_SHARE,
    Hosts,
    Metered,
    NodeDraw,
    NodeReadings,
    bounds_of,
    lost_margin_watts,
    node_draw,
    readings_of,
    sum_of_nodes,
    unconfirmed_watts,
)
from controller.meters import (
    Lesson,
    MeterMemory,
    has_spoken,
    learned,
    take_meters,
    valid_meters,
)
from controller.server_hosts import (
    HostLesson,
    ServerHosts,
    Watched,
    counted_watts,
    hosts_after,
    is_told,
)
from controller.tick_values import Tick
from wattpack.masks import some
from wattpack.power.domain_tree import OVERSHOOT_RATIO, BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["Known", "MeasuredDraw", "draw_measured"]

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
        server_hosts: What was told of servers beside their boards.
        host_watts: What they count at, DC, (n_nodes,).
        metered: Draw of each domain.
        news: Domains whose meter said something new that is believed, (n_domains,).
    """

    meters: MeterMemory
    server_hosts: ServerHosts
    host_watts: FloatArray
    metered: Metered
    news: BoolArray


@dataclass(frozen=True, slots=True)
class _Shown:
    """Meters of this tick, each (n_domains,).

    Attributes:
        watts: Usable readings, AC, NaN for the others.
        filled_watts: The same with 0 for the others.
        usable: Domains with one.
        credible: Those that show what is read below them at least.
        news: Those of them that are new.
        teaches: Those of which nearly everything is read.
        steady: Domains of which it is known what a reading has seen: their draws have not moved.
        stamp_ns: Of which moment, now without one.
        change: Of what is read since then.
        then_watts: What was read of nodes at that moment, AC.
    """

    watts: FloatArray
    filled_watts: FloatArray
    usable: BoolArray
    credible: BoolArray
    news: BoolArray
    teaches: BoolArray
    steady: BoolArray
    stamp_ns: IntArray
    change: Change
    then_watts: FloatArray


def draw_measured(tick: Tick, state: State, known: Known) -> MeasuredDraw:
    """AC draw of each domain, and what is remembered of it."""
    load = state.load
    read = readings_of(tick.topology, load, known.gpu_watts, known.host_watts)
    memory, shown = _taken(tick, state, known, read)
    seconds = 0.0 if state.now_ns < 0 else (tick.now_ns - state.now_ns) / NS_PER_SECOND
    memory = learned(memory, _lesson(state, read, shown), seconds)
    spoken = has_spoken(memory)
    now = _watched(tick, state, known, shown.credible, spoken)
    lesson = _host_lesson(state, read, shown)
    server_hosts = hosts_after(state.server_hosts, now, lesson, load, seconds)
    hosts = _hosts(server_hosts, now)
    nodes = node_draw(tick.topology, load, read, known.highest_watts, hosts)
    lost_seconds = np.where(spoken & ~shown.usable, memory.unused_seconds, np.nan)
    margin = lost_margin_watts(load, read, nodes, hosts, known.shown_node, lost_seconds)
    by_nodes = sum_of_nodes(load, nodes, margin, memory)
    unmetered = np.isnan(known.host_watts)
    room = np.where(unmetered, np.maximum(now.worst_watts - hosts.watts, 0.0), 0.0)
    told = np.where(shown.credible, shown.watts + shown.change.lagged_watts, np.nan)
    beside = beside_meters_watts(load, by_nodes, told, room, shown.usable, now.nearest)
    confirmed = np.where(shown.usable, shown.credible, spoken)
    unconfirmed = unconfirmed_watts(load, read, hosts.told, nodes.at_worst_watts, confirmed)
    metered = _bounded(tick, state, known, nodes, shown, (by_nodes, beside, unconfirmed))
    return MeasuredDraw(memory, server_hosts, hosts.watts, metered, shown.news)


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
    moved = np.abs(change.stamped_watts - change.lagged_watts)
    return memory, _Shown(
        watts=taken.watts,
        filled_watts=watts,
        usable=taken.usable,
        credible=credible,
        news=news,
        teaches=news & known.complete,
        steady=np.asarray(moved <= _STEADY_SHARE * watts),
        stamp_ns=stamp,
        change=change,
        then_watts=then,
    )


def _lesson(state: State, read: NodeReadings, shown: _Shown) -> Lesson:
    """What this tick's readings tell of domains."""
    return Lesson(
        usable=shown.credible,
        new=shown.teaches,
        steady=shown.steady,
        meter_watts=shown.filled_watts,
        known_watts=shown.then_watts + state.load.external_watts,
        unknown_worst_watts=read.unmetered_worst_watts,
    )


def _host_lesson(state: State, read: NodeReadings, shown: _Shown) -> HostLesson:
    """What they leave for servers without a meter of their own."""
    load = state.load
    least, most = shown.change.ends_watts
    left = shown.filled_watts - load.external_watts - read.known_watts
    return HostLesson(
        new=shown.teaches,
        least_watts=(left + least) * load.efficiency,
        most_watts=(left + most) * load.efficiency,
        steady=shown.steady,
    )


def _watched(
    tick: Tick, state: State, known: Known, credible: BoolArray, spoken: BoolArray
) -> Watched:
    load = state.load
    unread = np.isnan(known.gpu_watts)
    most = np.where(unread, known.highest_watts * OVERSHOOT_RATIO, known.gpu_watts)
    return Watched(
        shown_watts=known.host_watts,
        boards_watts=sums_by_node(tick.topology, known.gpu_watts),
        boards_most_watts=sums_by_node(tick.topology, most),
        worst_watts=tick.topology.node_worst_watts,
        heard=known.fresh_node,
        nearest=nearest_of_nodes(load, credible),
        spoken=np.asarray(np.append(spoken, False)[load.node_domains].any(axis=0)),
    )


def _hosts(memory: ServerHosts, now: Watched) -> Hosts:
    """What servers count at."""
    told = is_told(memory, now)
    unwatched = told & np.isnan(now.shown_watts) & (now.nearest < 0)
    return Hosts(counted_watts(memory, now), told, now.heard, unwatched)


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
