"""When raising may begin again after many leases ran out at once (I6)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.controller_state import State
from controller.tick_values import Observations, PowerSettings
from wattpack.power.domain_tree import BoolArray
from wattpack.units import NS_PER_MS, NS_PER_SECOND

__all__ = ["update_recovery"]

_LOST_SHARE = 0.2
_FRESH_SHARE = 0.95
_FRESH_TICKS = 10
_COOL_HEAT = 0.1
# Agents that live reconnect within this time; until then silence is a start, not an incident.
_START_GRACE_NS = 30 * NS_PER_SECOND


def update_recovery(
    state: State,
    fresh_node: BoolArray,
    observed: Observations,
    settings: PowerSettings,
    now_ns: int,
) -> State:
    """Mark domains after a mass expiry and release those that have recovered.

    A mass expiry is a fifth of a domain's nodes silent at once, or a leader that sent nothing for
    one lease. It is over at heat below 0.1 and after 10 ticks in a row with nearly all reports.
    """
    load = state.load
    below = np.maximum(load.nodes_below, 1.0)
    fresh = load.sum_nodes(fresh_node.astype(np.float64))
    share = np.where(load.nodes_below > 0, fresh / below, 1.0)
    nearly_all = (share >= _FRESH_SHARE) | (fresh >= below - 1.0) & (share >= 0.5)
    last_sent = state.commitments.last_sent_ns
    paused = (
        observed.leading
        and last_sent >= 0
        and now_ns - last_sent > settings.lease_ttl_ms * NS_PER_MS
    )
    lost = (share < 1.0 - _LOST_SHARE) & ~nearly_all | paused
    ticks = np.where(nearly_all & ~lost, state.fresh_ticks + 1, 0)
    recovered = (ticks >= _FRESH_TICKS) & (state.heat < _COOL_HEAT)
    heard = state.heard | (share >= 1.0 - _LOST_SHARE)
    heard |= now_ns - state.first_ns >= _START_GRACE_NS
    return replace(
        state,
        recovering=(state.recovering | lost) & ~recovered,
        fresh_ticks=ticks,
        heard=heard,
    )
