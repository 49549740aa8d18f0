"""What breakers have cooled while nobody led, for a controller that begins without memory.

    heat as the last leader told it ──> cooled for the time in which no server was answered

A server whose reports nobody answers is at its guaranteed caps once its lease has run out (I3), and
everything at guaranteed caps is at most the rating (I1), where a breaker cools. Each agent tells on
its own clock when it was answered last, so no clocks are compared, and a leader that lived on where
the API did not is seen. What heated a breaker after its heat was told last stays unknown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.controller_state import State
from controller.recovery import FRESH_TICKS
from controller.tick_values import Tick
from wattpack.masks import some
from wattpack.power.domain_tree import FloatArray, IntArray
from wattpack.power.feasibility import NODES_AT_DEFAULT_SHARE
from wattpack.units import NS_PER_SECOND

__all__ = ["cool_told_heat"]

_WAIT_SECONDS = 10.0


def cool_told_heat(tick: Tick, state: State) -> State:
    """The state with its told heat cooled once, as soon as nearly all servers have been heard."""
    told, observed = state.told_heat, tick.observations
    if not some(told) or not observed.node_unanswered_ns.size:
        return state
    tree = state.load.tree
    # Only until our own first answers are servers asked for how long they had none.
    unanswered_ns = np.maximum(state.unanswered_ns, observed.node_unanswered_ns)
    unled = _unled_seconds(tick, state, unanswered_ns)
    # Of what was told, that much is left by now, whatever was drawn since it is on top of it.
    since_first = (tick.now_ns - state.first_ns) / NS_PER_SECOND
    left = told * np.exp(-since_first / tree.cooling_seconds)
    gone = left * (1.0 - np.exp(-unled / tree.cooling_seconds))
    waiting = (unled == 0.0) & (state.fresh_ticks < FRESH_TICKS) & (since_first < _WAIT_SECONDS)
    return replace(
        state,
        unanswered_ns=unanswered_ns,
        heat=np.maximum(state.heat - gone, 0.0),
        told_heat=np.where(waiting, told, 0.0),
    )


def _unled_seconds(tick: Tick, state: State, unanswered_ns: IntArray) -> FloatArray:
    """For how long every lease below had run out when its servers were heard, (n_domains,).

    As many servers as I1 allows at their default limits may tell less, or nothing.
    """
    load, case = state.load, state.guaranteed
    none = np.zeros(len(load.tree))
    if case is None or not len(unanswered_ns):
        return none
    rest = int(NODES_AT_DEFAULT_SHARE * len(unanswered_ns))
    shortest_ns = int(np.partition(unanswered_ns, rest)[rest])
    lapse_ns = tick.lease_ns + tick.settings.nonce_max_age_ns
    seconds = (shortest_ns - lapse_ns) / NS_PER_SECOND - tick.settings.settle_seconds
    if seconds <= 0.0:
        return none
    fewer = load.sum_nodes((unanswered_ns < shortest_ns).astype(np.float64))
    excused = np.maximum(1.0, NODES_AT_DEFAULT_SHARE * load.nodes_below)
    cooled = load.tree.enforce & (fewer <= excused) & (case.watts <= state.available_watts + 1e-6)
    return np.where(cooled, seconds, none)
