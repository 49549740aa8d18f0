"""One tick of power control: the pure function between what is known and what is commanded.

    observations -> holdings, trust, draw, heat -> bands -> caps -> grants -> commands, decisions

Callers: the gRPC server's tick (``controller.app``) and the twin (``simulation.twin_run``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller import bands as band_rules
from controller.commitments import record, seen
from controller.controller_state import State, carry_over, initial_state
from controller.decide import Decided, Situation
from controller.grants import Grants, Permit, grant
from controller.guarantee import guaranteed_case, guaranteed_commands
from controller.judge import (
    base_watts,
    braked_gpus,
    decide_caps,
    enforced_situation,
    good_budget,
    move_bands,
    open_situation,
    raise_permit,
)
from controller.locks import lock_clocks, lockable
from controller.outcome import Judgement, report
from controller.picture import Picture, look
from controller.quiet import quieted
from controller.recovery import update_recovery
from controller.tick_values import Commands, Decisions, Observations, PowerSettings, Topology
from wattpack.errors import InputError
from wattpack.power.domain_tree import FloatArray
from wattpack.units import NS_PER_SECOND

__all__ = ["State", "carry_over", "initial_state", "step"]


def step(
    topology: Topology,
    state: State,
    observations: Observations,
    settings: PowerSettings,
    now_ns: int,
) -> tuple[State, Commands, Decisions]:
    """Decide every cap once; missing or wrong telemetry makes it careful, never fail.

    Args:
        topology: The one that ``state`` was made for (``initial_state`` or ``carry_over``).
        state: From the last tick.
        observations: What is known now.
        settings: Constants.
        now_ns: The controller's monotonic clock.

    Raises:
        InputError: if state, topology, observations and time do not belong together.
    """
    _require_match(topology, state, observations, now_ns)
    previous, everywhere = state, np.ones(topology.n_domains, dtype=np.bool_)
    seconds = 0.0 if state.now_ns < 0 else (now_ns - state.now_ns) / NS_PER_SECOND
    state = replace(
        state,
        first_ns=now_ns if state.first_ns < 0 else state.first_ns,
        budget_watts=good_budget(state, observations),
        commitments=seen(state.commitments, observations, now_ns),
    )
    state, picture = look(topology, state, observations, settings, now_ns)
    state = update_recovery(state, picture.holding.fresh_node, observations, settings, now_ns)
    situation = open_situation(topology, state, observations, picture, settings)
    cap_band = band_rules.cap_band_share(state.rises, settings)
    state, situation = move_bands(topology, state, picture, situation, cap_band, settings, now_ns)
    enforced = enforced_situation(topology, situation)
    decided, commanded = decide_caps(topology, state, observations, situation, enforced)
    permit = raise_permit(topology, state, observations, settings, seconds, now_ns)
    grants, commands, lock_watts, case_watts = _command(
        topology, state, observations, picture, enforced, commanded, permit, settings, now_ns
    )
    commands = quieted(topology, state.commitments, commands, observations, settings, now_ns)
    judgement = Judgement(
        previous=previous,
        state=state,
        picture=picture,
        situation=situation,
        decided=decided,
        grants=grants,
        guaranteed_watts=case_watts,
        cap_band_watts=cap_band * base_watts(state),
        forecast_watts=observations.forecast_p99_watts,
        braked=braked_gpus(state, everywhere),
        override_watts=observations.override_cap_watts,
    )
    decisions, alarms = report(topology, judgement)
    state = replace(state, now_ns=now_ns, draw_watts=picture.draw_watts, alarms=alarms)
    sent = record(state.commitments, topology, observations, commands, now_ns)
    decided_watts = commanded.cap_watts
    state = replace(state, decided_watts=decided_watts, lock_watts=lock_watts, commitments=sent)
    return state, commands, decisions


def _require_match(topology: Topology, state: State, observed: Observations, now_ns: int) -> None:
    if state.topology is not topology:
        raise InputError("state", "a state of this topology (see carry_over)", "another one")
    lengths = (len(observed.gpu_draw_watts), len(observed.host_watts), len(observed.meter_watts))
    expected = (topology.n_gpus, topology.n_nodes, topology.n_domains)
    if lengths != expected:
        raise InputError("observations", f"lengths {expected} of gpus, nodes, domains", lengths)
    if now_ns < state.now_ns:
        raise InputError("now_ns", f"a time from {state.now_ns} on", now_ns)


def _command(
    topology: Topology,
    state: State,
    observed: Observations,
    picture: Picture,
    now: Situation,
    commanded: Decided,
    permit: Permit,
    settings: PowerSettings,
    now_ns: int,
) -> tuple[Grants, Commands, FloatArray, FloatArray]:
    """What is granted and sent, the power of each clock lock, and I1's worst case."""
    writable = picture.holding.writable & topology.tree.enforce[topology.domain_of_gpu]
    grants = grant(
        state.load,
        topology,
        state.gang_kind,
        np.where(lockable(topology), topology.default_limit_watts, commanded.cap_watts),
        _may_ask_for(observed, picture, permit),
        replace(now, active=now.active & writable),
        permit,
    )
    locks_mhz, lock_watts = lock_clocks(
        topology, state, commanded.cap_watts, picture.holding.held_watts, permit.gpus
    )
    case_watts, fixed_nodes = guaranteed_case(topology, state.load, observed)
    commands = replace(
        _batches(topology, state, observed, picture, grants, settings, now_ns),
        lock_max_mhz=locks_mhz,
        guaranteed_watts=guaranteed_commands(
            topology, state, observed, case_watts, fixed_nodes, permit.gpus
        ),
    )
    return grants, commands, lock_watts, case_watts


def _may_ask_for(observed: Observations, picture: Picture, permit: Permit) -> FloatArray:
    """Caps that raise nothing: what may be held, or only what was read back where raising stops."""
    held = picture.holding.held_watts
    return np.where(permit.gpus, held, np.fmin(held, observed.gpu_limit_watts))


def _batches(
    topology: Topology,
    state: State,
    observed: Observations,
    picture: Picture,
    grants: Grants,
    settings: PowerSettings,
    now_ns: int,
) -> Commands:
    """One batch for every node whose report can be answered."""
    age_ns = now_ns - observed.node_received_ns
    answerable = picture.holding.fresh_node & (observed.node_nonce != 0)
    answerable &= age_ns <= settings.nonce_max_age_ns
    leads = observed.leading and observed.epoch > 0
    send = answerable & topology.tree.enforce[topology.domain_of_node] & leads
    held = picture.holding.held_watts
    # What takes no part is never raised: unreadable boards go to their guaranteed caps.
    careful = np.where(held > 0.0, np.minimum(grants.cap_watts, held), topology.guaranteed_watts)
    part = picture.holding.writable & state.trust.trusted
    caps = np.where(part, grants.cap_watts, careful)
    return Commands(
        epoch=observed.epoch,
        sequence=state.commitments.next_sequence,
        ttl_ms=settings.lease_ttl_ms,
        send=send,
        nonce=np.where(send, observed.node_nonce, 0).astype(np.uint64),
        cap_watts=np.maximum(caps, topology.min_limit_watts),
        lock_max_mhz=np.zeros(topology.n_gpus, dtype=np.int64),
        guaranteed_watts=np.zeros(topology.n_gpus),
    )
