"""One tick of power control: the pure function between what is known and what is commanded.

    observations -> holdings, trust, draw, heat -> bands -> caps -> grants -> commands, decisions

Callers: the gRPC server's tick (``controller.app``) and the twin (``simulation.app.twin_run``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.band_limits import move_bands
from controller.bands import cap_band_share
from controller.carry_over import carry_over
from controller.clock_shed import clocks_unseen, limit_room, shed_clocks
from controller.commitments import record, seen
from controller.controller_state import State, base_watts, initial_state
from controller.decide import Situation, enforced_situation
from controller.heat_budget import budgeted_band, spare_share
from controller.judge import (
    decide_caps,
    good_budget,
    measure_coincidence,
    open_situation,
)
from controller.judgement import Judgement
from controller.orders import give_orders
from controller.outcome import report
from controller.picture import look
from controller.recovery import update_recovery
from controller.reserve_feeds import take_feeds, unseen_heat
from controller.standing import still_standing
from controller.tick_values import Commands, Decisions, Tick
from controller.unled_time import cool_told_heat
from wattpack.errors import InputError
from wattpack.masks import some
from wattpack.power.domain_tree import FloatArray
from wattpack.units import NS_PER_SECOND

__all__ = ["State", "carry_over", "initial_state", "step"]


def step(tick: Tick, state: State) -> tuple[State, Commands, Decisions]:
    """Decide every cap once; missing or wrong telemetry makes it careful, never fail.

    Args:
        tick: What is known now; its topology is the one that ``state`` was made for
            (``initial_state`` or ``carry_over``).
        state: From the last tick.

    Raises:
        InputError: if state, topology, observations and time do not belong together.
    """
    _require_match(tick, state)
    previous = state
    state, picture = look(tick, _opened(tick, state))
    state = cool_told_heat(tick, state)
    state = update_recovery(tick, state, picture.holding.fresh_node)
    situation = open_situation(tick, state, picture)
    together, together_now, situation = measure_coincidence(tick, state, picture, situation)
    spare = spare_share(state.rated_load, state.heat, base_watts(state), tick.settings)
    cap_band = budgeted_band(cap_band_share(state.rises, tick.settings), spare)
    state, situation, loads = move_bands(tick, state, picture, situation, cap_band, spare)
    state, situation = _shed(tick, state, picture.draw_watts, situation)
    enforced = enforced_situation(tick.topology, situation)
    decided, commanded = decide_caps(tick, state, situation, enforced)
    orders = give_orders(tick, state, picture, enforced, commanded)
    judgement = Judgement(previous, state, picture, situation, loads, decided, commanded, orders)
    decisions, alarms = report(tick, judgement)
    state = replace(
        state,
        now_ns=tick.now_ns,
        draw_watts=picture.draw_watts,
        together=together,
        together_now=together_now,
        alarms=alarms,
        decided_watts=commanded.cap_watts,
        lock_watts=orders.lock_watts,
        saved_raise_seconds=orders.grants.saved_seconds,
        guaranteed=orders.guaranteed,
        commitments=record(tick, state.commitments, orders.commands),
    )
    return state, orders.commands, decisions


def _opened(tick: Tick, state: State) -> State:
    """The state with what this tick's epoch, feeds, budgets and leases say before anything."""
    memory, feeds = take_feeds(tick, state.load, state.feeds, state.now_ns)
    if some(feeds.unseen_seconds):
        unseen = unseen_heat(state.load, state.available_watts, feeds, state.draw_watts)
        state = replace(state, heat=np.minimum(state.heat + unseen, 1.0))
    return replace(
        state,
        feeds=memory,
        available_watts=feeds.available_watts,
        first_ns=tick.now_ns if state.first_ns < 0 else state.first_ns,
        budget_watts=good_budget(state, tick.observations),
        commitments=seen(tick, state.commitments),
        standing=still_standing(tick, state.standing),
    )


def _shed(
    tick: Tick, state: State, draw_watts: FloatArray, now: Situation
) -> tuple[State, Situation]:
    """Clocks lowered where an enforcing domain draws too much, and what limits then leave."""
    base, load, topology = base_watts(state), state.load, tick.topology
    if not some(topology.sheddable_gpu):
        return state, now
    limits = enforced_situation(topology, now).load_limit_watts
    excess = np.where(np.isfinite(limits), (draw_watts - limits) / base, -np.inf)
    seconds = 0.0 if state.now_ns < 0 else (tick.now_ns - state.now_ns) / NS_PER_SECOND
    if tick.observations.leading:
        share = shed_clocks(state.clock_share, topology, load, excess, seconds)
    else:
        share = clocks_unseen(topology, load, excess)
    room = limit_room(share, topology, load, excess) * base
    left = replace(now, load_limit_watts=now.load_limit_watts + room)
    return replace(state, clock_share=share), left


def _require_match(tick: Tick, state: State) -> None:
    topology, observed = tick.topology, tick.observations
    if state.topology is not topology:
        raise InputError("state", "a state of this topology (see carry_over)", "another one")
    lengths = (len(observed.gpu_draw_watts), len(observed.host_watts), len(observed.meter_watts))
    expected = (topology.n_gpus, topology.n_nodes, topology.n_domains)
    if lengths != expected:
        raise InputError("observations", f"lengths {expected} of gpus, nodes, domains", lengths)
    if tick.now_ns < state.now_ns:
        raise InputError("now_ns", f"a time from {state.now_ns} on", tick.now_ns)
