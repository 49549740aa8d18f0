"""What one tick knows about the world before anything is decided: holdings, trust, draw, heat."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.board_sums import sums_by_node
from controller.changes import changes_taken
from controller.commitments import Holding, held_by_silent, holding, sole_since_ns
from controller.controller_state import State
from controller.estimate import Metered, readable_gpu_watts, readable_host_watts
from controller.felt_heat import SPEAKS_FOR_NS, Felt, FeltMemory, feel_heat, felt_less
from controller.gap_heat import (
    GapRow,
    Heard,
    highest_host,
    kept_rows,
    reckoned_again,
    settled_rows,
)
from controller.measured_draw import Known, draw_measured
from controller.readings import (
    ReadingMemory,
    shown_hosts,
    stale_boards,
    stale_hosts,
    take_readings,
)
from controller.server_hosts import Watched, counted_watts
from controller.tick_values import Tick
from wattpack.masks import every, some
from wattpack.power.board_trust import judged
from wattpack.power.domain_tree import OVERSHOOT_RATIO, BoolArray, FloatArray
from wattpack.power.feasibility import LoadTree, largest_nodes
from wattpack.units import NS_PER_SECOND

__all__ = ["Picture", "look"]

_CREDIBLE_ENERGY_OVER_DEFAULT = 2.5
_BEYOND_NODES_SECONDS = 5.0
# Of the rating, what may be drawn unseen beside what is read. Assumed.
_HIDDEN_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Picture:
    """The world at this tick.

    Attributes:
        holding: What each GPU may hold by command and read-back.
        highest_watts: The same with untrusted devices at their maximum, (n_gpus,).
        gpu_draw_watts: Readable draws, NaN for the others, (n_gpus,).
        used_watts: Readable draws and for the others the most they could draw, (n_gpus,).
        metered: AC draw (I7), and what the meters say.
        host_watts: What servers count at beside their boards, DC, (n_nodes,).
        rest_watts: What is drawn beside ``used_watts``, AC; negative where a meter says that boards
            which cannot be read draw less than their most, (n_domains,).
        complete: Domains of which nearly everything is known, (n_domains,).
        stale_gpu: Readings that came but are not of this moment, (n_gpus,).
    """

    holding: Holding
    highest_watts: FloatArray
    gpu_draw_watts: FloatArray
    used_watts: FloatArray
    metered: Metered
    host_watts: FloatArray
    rest_watts: FloatArray
    complete: BoolArray
    stale_gpu: BoolArray

    @property
    def draw_watts(self) -> FloatArray:
        """AC draw (I7), (n_domains,)."""
        return self.metered.draw_watts


def look(tick: Tick, state: State) -> tuple[State, Picture]:
    """Take in a tick's observations; the returned state remembers them."""
    load, topology = state.load, tick.topology
    hold = holding(tick, state.commitments)
    fresh_gpu = hold.fresh_node.take(topology.node_of_gpu)
    energy = _energy(tick, fresh_gpu)
    trust = judged(
        state.trust,
        energy,
        hold.until_now_watts,
        tick.settings.reaction_seconds,
        tick.now_ns,
        sole_since_ns(tick, state.commitments),
    )
    most = np.maximum(topology.default_limit_watts, hold.highest_watts)
    highest = np.where(trust.trusted, hold.highest_watts, most)
    readings, stale = _readings(tick, state, fresh_gpu, energy)
    watts = np.where(fresh_gpu & ~stale, readings.gpu_draw_watts, np.nan)
    unreadable = np.isnan(watts)
    hosts = np.where(stale_hosts(readings), np.nan, tick.observations.host_watts)
    hosts = readable_host_watts(topology, hosts, hold.fresh_node)
    complete = _complete(tick, load, highest, hold.fresh_node, unreadable)
    heard_ns, before_ns = tick.observations.node_received_ns, state.readings.received_ns
    before_ns = np.where(heard_ns > before_ns, before_ns, tick.now_ns)
    changes = changes_taken(state.changes, load, watts, hosts, before_ns, tick.now_ns)
    shown = shown_hosts(readings, tick.now_ns)
    known = Known(watts, hosts, shown, highest, hold.fresh_node, complete, changes)
    measured = draw_measured(tick, state, known)
    metered, news = measured.metered, measured.news
    planned, beyond = _planned(tick, state, metered)
    used = np.where(unreadable, highest * OVERSHOOT_RATIO, watts)
    picture = Picture(
        holding=hold,
        highest_watts=highest,
        gpu_draw_watts=watts,
        used_watts=used,
        metered=metered,
        host_watts=measured.host_watts,
        rest_watts=planned - load.sum_gpus(used) / load.efficiency,
        complete=complete,
        stale_gpu=stale,
    )
    heat, felt, row = _heated(tick, state, picture, trust.trusted, news)
    rows = _still_open(tick, state.gap_rows, felt, news)
    if rows and tick.observations.gpu_gap_watts.size:
        heard = _told(tick, state, trust.trusted & ~stale, hosts)
        heat, felt, rows = _reckoned(state, heat, felt, rows, heard)
    state = replace(
        state,
        trust=trust,
        readings=readings,
        demand=state.demand.with_watts(watts, tick.now_ns),
        changes=changes,
        meters=measured.meters,
        server_hosts=measured.server_hosts,
        beyond_nodes_watts=beyond,
        heat=heat,
        felt=felt,
        gap_rows=() if row is None else kept_rows(rows, row),
    )
    return state, picture


def _planned(tick: Tick, state: State, metered: Metered) -> tuple[FloatArray, FloatArray]:
    """The draw to plan with, and what meters show beyond the nodes, smoothed, (n_domains,) each.

    It rests on boards and on what servers are known to draw: a single reading, with its noise and
    lag, would move every cap. What a meter shows beyond that counts as it lasts; brake and bands
    see it at once, and what lasts is learned.
    """
    nodes = metered.by_nodes_watts
    seconds = 0.0 if state.now_ns < 0 else (tick.now_ns - state.now_ns) / NS_PER_SECOND
    # A domain without a meter is bounded, and told of, by those of other levels.
    shown = metered.followed_watts
    beyond = np.where(np.isnan(shown), metered.draw_watts, shown) - nodes
    rate = 1.0 - np.exp(-seconds / _BEYOND_NODES_SECONDS)
    beyond = state.beyond_nodes_watts + rate * (beyond - state.beyond_nodes_watts)
    excess = metered.draw_watts - nodes
    lasting = np.minimum(np.maximum(beyond, 0.0), excess)
    return nodes + np.where(excess > 0.0, lasting, excess), beyond


def _readings(
    tick: Tick, state: State, fresh_gpu: BoolArray, energy: FloatArray
) -> tuple[ReadingMemory, BoolArray]:
    """The newest readings, and which of them are not of this moment, (n_gpus,)."""
    draws = tick.observations.gpu_draw_watts
    readable = readable_gpu_watts(tick.topology, draws, fresh_gpu)
    readings = take_readings(tick, state.readings, readable, energy)
    return readings, stale_boards(readings, energy, tick.now_ns) & fresh_gpu


def _energy(tick: Tick, fresh_gpu: BoolArray) -> FloatArray:
    """Energy means of fresh reports; a counter that was reset gives an incredible one."""
    energy = tick.observations.gpu_energy_mean_watts
    with np.errstate(invalid="ignore"):
        credible = energy <= _CREDIBLE_ENERGY_OVER_DEFAULT * tick.topology.default_limit_watts
    return np.where(fresh_gpu & credible, energy, np.nan)


def _heated(
    tick: Tick, state: State, picture: Picture, trusted: BoolArray, news: BoolArray
) -> tuple[FloatArray, FeltMemory, GapRow | None]:
    """Breaker heat advanced over the time since the last tick, and what it was advanced by.

    Before most nodes were heard for the first time nothing is recorded.
    """
    if state.now_ns < 0:
        return state.heat, state.felt, None
    metered, observed, load = picture.metered, tick.observations, state.load
    watts = metered.draw_watts + metered.unconfirmed_watts
    held = held_by_silent(tick, state.commitments, picture.holding, picture.highest_watts, trusted)
    by_sums = metered.unbounded_watts
    if held is not picture.highest_watts:
        fallen = (picture.highest_watts - held) * OVERSHOOT_RATIO
        rebooted = largest_nodes(load, sums_by_node(tick.topology, fallen))
        by_sums = by_sums - (load.sum_gpus(fallen) - rebooted) / load.efficiency
        # What a meter has taken off already is not taken off once more.
        watts = np.minimum(watts, by_sums)
    felt = Felt(metered.bounds.applied_to(watts), metered.meter_watts, observed.meter_time_ns, news)
    span_ns = (state.now_ns, tick.now_ns)
    heat, memory = feel_heat(state.rated_load, state.felt, state.heat, felt, span_ns)
    heat = np.where(state.heard, heat, state.heat)
    if every(picture.holding.fresh_node):
        return heat, memory, None
    silent = ~picture.holding.fresh_node.take(tick.topology.node_of_gpu)
    counted = np.where(silent, held * OVERSHOOT_RATIO, 0.0)
    hosts = np.where(picture.holding.fresh_node, 0.0, tick.topology.node_worst_watts)
    row = GapRow(
        *span_ns,
        state.heat,
        felt.watts,
        by_sums,
        metered.bounds.lower_watts,
        sums_by_node(tick.topology, counted),
        hosts,
    )
    return heat, memory, row


def _still_open(
    tick: Tick, rows: tuple[GapRow, ...], felt: FeltMemory, news: BoolArray
) -> tuple[GapRow, ...]:
    """Ticks with silent servers, without what meters have put right at this one."""
    if not rows or not some(news):
        return rows
    settled_ns = np.where(news, tick.observations.meter_time_ns, -1)
    begin_ns = np.maximum(settled_ns - SPEAKS_FOR_NS, felt.begins_ns[0])
    return settled_rows(rows, begin_ns, settled_ns)


def _reckoned(
    state: State, heat: FloatArray, felt: FeltMemory, rows: tuple[GapRow, ...], heard: Heard
) -> tuple[FloatArray, FeltMemory, tuple[GapRow, ...]]:
    """Heat, what was felt and the ticks of a gap, without what servers tell that it never was."""
    false, rows = reckoned_again(state.rated_load, rows, heard)
    if some(false):
        heat = np.maximum(heat - np.where(state.heard, false, 0.0), 0.0)
        felt = felt_less(felt, ((one.end_ns, one.watts) for one in rows))
    return heat, felt, rows


def _told(tick: Tick, state: State, believed: BoolArray, host_watts: FloatArray) -> Heard:
    """What servers that are heard tell of the time before.

    Args:
        tick: For what they tell.
        state: From the last tick.
        believed: Boards that are, (n_gpus,).
        host_watts: What BMCs show of servers beside their boards now, (n_nodes,).
    """
    observed, before_ns = tick.observations, state.readings.received_ns
    highest = sums_by_node(tick.topology, np.where(believed, observed.gpu_gap_watts, np.nan))
    highest = np.where(observed.node_received_ns > before_ns, highest, np.nan)
    host_before = np.where(stale_hosts(state.readings), np.nan, state.readings.host_watts)
    n_nodes = tick.topology.n_nodes
    boards = sums_by_node(tick.topology, np.where(believed, observed.gpu_draw_watts, np.nan))
    unread = Watched(
        shown_watts=host_watts,
        boards_watts=boards,
        boards_most_watts=boards,
        worst_watts=tick.topology.node_worst_watts,
        heard=np.ones(n_nodes, dtype=np.bool_),
        nearest=np.full(n_nodes, -1, dtype=np.int64),
        spoken=np.ones(n_nodes, dtype=np.bool_),
    )
    counted = counted_watts(state.server_hosts, unread)
    host = highest_host((host_before, host_watts), counted, tick.topology.node_worst_watts)
    return Heard(highest, host, before_ns)


def _complete(
    tick: Tick,
    load: LoadTree,
    highest_watts: FloatArray,
    fresh_node: BoolArray,
    unreadable: BoolArray,
) -> BoolArray:
    """Domains of which nearly everything is read, (n_domains,).

    One board off the bus must not end what a row learns. What it draws unseen counts as its
    servers' own draw where a meter teaches, so that this errs to the safe side.
    """
    if every(fresh_node) and not some(unreadable):
        return np.ones(len(load.tree), dtype=np.bool_)
    hidden = load.sum_gpus(np.where(unreadable, highest_watts * OVERSHOOT_RATIO, 0.0))
    hidden += load.sum_nodes(np.where(fresh_node, 0.0, tick.topology.node_worst_watts))
    return np.asarray(hidden / load.efficiency <= _HIDDEN_SHARE * load.rating_watts)
