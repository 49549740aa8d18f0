"""When raising may begin again, after a mass expiry and after a change of leader (I6).

A mass expiry is a fifth of a domain's nodes silent at once, or a leader that sent nothing for one
lease. A change of leader lets leases end too, but nothing is unknown then: a standby hears every
report, so what it saw held under the last lease may come back in one step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.controller_state import State
from controller.tick_values import Tick
from wattpack.masks import every
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.units import NS_PER_SECOND

__all__ = ["FRESH_TICKS", "restorable_watts", "update_recovery"]

_LOST_SHARE = 0.2
_FRESH_SHARE = 0.95
FRESH_TICKS = 10
_COOL_HEAT = 0.1
# Agents that live reconnect within this time; until then silence is a start, not an incident, and
# after it a server is off or broken: it counts at the most it may draw (I2), and is waited for by
# nobody.
_START_GRACE_NS = 30 * NS_PER_SECOND
# Who said nothing for so long is no part of the domain that was lost and is heard again. Assumed.
_OFF_AFTER_NS = 600 * NS_PER_SECOND
# The old leader's end, an election and one lease before the first raise lie within this time.
_RESTORE_WITHIN_NS = 30 * NS_PER_SECOND


def update_recovery(tick: Tick, state: State, fresh_node: BoolArray) -> State:
    """Mark domains after a mass expiry and release those that have recovered.

    It is over at heat below 0.1 and after 10 ticks in a row with nearly all reports of servers that
    were heard lately, and with those of four fifths of all that were heard in the last ten minutes.
    """
    share, nearly_all = _heard_share(tick, state, fresh_node)
    last_sent = state.commitments.last_sent_ns
    paused = (
        tick.observations.leading and last_sent >= 0 and tick.now_ns - last_sent > tick.lease_ns
    )
    lost = (share < 1.0 - _LOST_SHARE) & ~nearly_all | paused
    ticks = np.where(nearly_all & ~lost, state.fresh_ticks + 1, 0)
    recovered = (ticks >= FRESH_TICKS) & (state.heat < _COOL_HEAT)
    heard = state.heard | (share >= 1.0 - _LOST_SHARE)
    heard |= tick.now_ns - state.first_ns >= _START_GRACE_NS
    recovering = (state.recovering | lost) & ~recovered
    knows_all = (ticks >= FRESH_TICKS) & (state.heat < _COOL_HEAT) & ~recovering
    begins = state.commitments.since_ns == tick.now_ns
    return replace(
        state,
        recovering=recovering,
        fresh_ticks=ticks,
        heard=heard,
        seamless=knows_all & (state.seamless | begins),
    )


def _heard_share(tick: Tick, state: State, fresh_node: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Share of each domain's nodes that are heard, and where that is nearly all, (n_domains,).

    Servers that are off for good are in neither: they count at their most (I2).
    """
    load = state.load
    if every(fresh_node):
        return np.ones(len(load.tree)), np.ones(len(load.tree), dtype=np.bool_)
    below, fresh = np.maximum(load.nodes_below, 1.0), load.sum_nodes(fresh_node.astype(np.float64))
    silent_ns = tick.now_ns - np.maximum(tick.observations.node_received_ns, state.first_ns)
    off = load.sum_nodes((~fresh_node & (silent_ns > _OFF_AFTER_NS)).astype(np.float64))
    gone = load.sum_nodes((~fresh_node & (silent_ns > _START_GRACE_NS)).astype(np.float64))
    share = np.where(load.nodes_below > 0, fresh / np.maximum(below - off, 1.0), 1.0)
    expected = np.maximum(below - gone, 1.0)
    nearly_all = (fresh / expected >= _FRESH_SHARE) & (share >= 1.0 - _LOST_SHARE)
    nearly_all |= (load.nodes_below == 0.0) | (fresh >= below - 1.0) & (share >= 0.5)
    return share, nearly_all


def restorable_watts(tick: Tick, state: State) -> FloatArray:
    """What each GPU held under the last lease before a change of leader, 0 for nothing, (n_gpus,).

    Only below domains that this replica had heard for 10 ticks in a row when its term began, and
    that have been cool and heard ever since: what was unknown then is a fall like any other.
    """
    none = np.zeros(tick.topology.n_gpus)
    if tick.now_ns - state.commitments.since_ns > _RESTORE_WITHIN_NS:
        return none
    known = ~state.load.any_above_gpu(~state.seamless)
    recent = tick.now_ns - state.standing.seen_ns <= _RESTORE_WITHIN_NS
    recent &= state.standing.seen_ns >= 0
    return np.where(known & recent, state.standing.watts, none)
