"""One tick of power control: the pure function between what is known and what is commanded.

    observations -> holdings, trust, draw, heat -> bands -> caps -> grants -> commands, decisions

Callers: the gRPC server's tick (``controller.app``) and the twin (``simulation.runner``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller import bands as band_rules
from controller.breaker import fault_seconds, heat_limits, must_brake
from controller.commitments import record, seen
from controller.decide import Decided, Situation, decide, domain_load, effective_wants
from controller.demand import expected_draw
from controller.grants import RAISE_DEADBAND, Grants, Permit, grant
from controller.guarantee import guaranteed_case, guaranteed_commands
from controller.locks import lock_clocks, lockable
from controller.model import (
    Band,
    CapReason,
    Commands,
    Decisions,
    Observations,
    PowerSettings,
    Topology,
)
from controller.outcome import Judgement, report
from controller.picture import Picture, look
from controller.recovery import update_recovery
from controller.state import State, carry_over, initial_state
from wattpack.domains import BoolArray, FloatArray
from wattpack.errors import InputError
from wattpack.feasibility import survivable_watts
from wattpack.units import NS_PER_MS, NS_PER_SECOND

__all__ = ["State", "carry_over", "initial_state", "step"]

# A pause of the controller is not made up for by one large raise.
_LONGEST_RAISE_SECONDS = 1.0
# Caps that are still safe are kept while the ideal ones differ by less: boards live calmly (G6).
_KEEP_SHARE = 0.03
_KEEP_OVER_TARGET = 0.01


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
        InputError: if state, topology and observations do not belong together.
    """
    _require_match(topology, state, observations, now_ns)
    previous = state
    seconds = 0.0 if state.now_ns < 0 else (now_ns - state.now_ns) / NS_PER_SECOND
    state = replace(
        state,
        first_ns=now_ns if state.now_ns < 0 else state.first_ns,
        budget_watts=_good_budget(state, observations),
        commitments=seen(state.commitments, observations, now_ns),
    )
    state, picture = look(topology, state, observations, settings, now_ns)
    state = update_recovery(state, picture.holding.fresh_node, observations, settings, now_ns)
    situation = _situation(topology, state, observations, picture, settings)
    cap_band = band_rules.cap_band_share(state.rises, settings)
    state, situation = _bands(topology, state, picture, situation, cap_band, settings, now_ns)
    enforced = _enforced(topology, situation)
    decided, commanded = _decide(topology, state, observations, situation, enforced)
    permit = _permit(topology, state, observations, settings, seconds, now_ns)
    writable = picture.holding.writable & topology.tree.enforce[topology.domain_of_gpu]
    powered = np.where(lockable(topology), topology.default_limit_watts, commanded.cap_watts)
    grants = grant(
        state.load,
        topology,
        state.gang_kind,
        powered,
        _may_ask_for(observations, picture, permit),
        replace(enforced, active=enforced.active & writable),
        permit,
    )
    locks_mhz, lock_watts = lock_clocks(
        topology, state, commanded.cap_watts, picture.holding.held_watts, permit.gpus
    )
    case_watts, fixed_nodes = guaranteed_case(topology, state.load, observations)
    commands = _commands(topology, state, observations, picture, grants, settings, now_ns)
    commands = replace(
        commands,
        lock_max_mhz=locks_mhz,
        guaranteed_watts=guaranteed_commands(
            topology, state, observations, case_watts, fixed_nodes, permit.gpus
        ),
    )
    decisions, alarms = report(
        topology,
        Judgement(
            previous=previous,
            state=state,
            picture=picture,
            situation=situation,
            decided=decided,
            grants=grants,
            guaranteed_watts=case_watts,
            cap_band_watts=cap_band * _base_watts(state),
            forecast_watts=observations.forecast_p99_watts,
            braked=_braked(state, np.ones(topology.n_domains, dtype=np.bool_)),
            override_watts=observations.override_cap_watts,
        ),
    )
    following = replace(
        state,
        now_ns=now_ns,
        draw_watts=picture.draw_watts,
        decided_watts=commanded.cap_watts,
        lock_watts=lock_watts,
        alarms=alarms,
        commitments=record(state.commitments, topology, observations, commands, now_ns),
    )
    return following, commands, decisions


def _require_match(topology: Topology, state: State, observed: Observations, now_ns: int) -> None:
    if state.topology is not topology:
        raise InputError("state", "a state of this topology (see carry_over)", "another one")
    lengths = (len(observed.gpu_watts), len(observed.host_watts), len(observed.meter_watts))
    expected = (topology.n_gpus, topology.n_nodes, topology.n_domains)
    if lengths != expected:
        raise InputError("observations", f"lengths {expected} of gpus, nodes, domains", lengths)
    if now_ns < state.now_ns:
        raise InputError("now_ns", f"a time from {state.now_ns} on", now_ns)


def _good_budget(state: State, observed: Observations) -> FloatArray:
    """A budget that is zero or no number is refused: the last good one rules on (I8)."""
    budget = observed.budget_watts
    good = np.isfinite(budget) & (budget > 0.0)
    return np.where(good, budget, state.budget_watts)


def _base_watts(state: State) -> FloatArray:
    """What the bands are shares of: the rating or a lower budget, (n_domains,)."""
    return np.minimum(state.load.rating_watts, state.budget_watts)


def _braked(state: State, domains: BoolArray) -> BoolArray:
    return state.load.any_above_gpu((state.bands.band == Band.BRAKE) & domains)


def _situation(
    topology: Topology,
    state: State,
    observed: Observations,
    picture: Picture,
    settings: PowerSettings,
) -> Situation:
    """The limits and counts of this tick, with the bands still open."""
    load = state.load
    fresh_gpu = picture.holding.fresh_node[topology.node_of_gpu]
    dry = ~topology.tree.enforce[topology.domain_of_gpu]
    trusted = state.trust.trusted
    worst_rest = load.sum_nodes(topology.node_worst_watts) / load.efficiency
    return Situation(
        survivable_watts=survivable_watts(
            load, state.heat, fault_seconds(settings), heat_limits(load, settings)
        ),
        load_limit_watts=np.full(topology.n_domains, np.inf),
        worst_rest_watts=worst_rest + load.external_watts,
        rest_watts=picture.rest_watts,
        highest_watts=picture.highest_watts,
        expected_watts=expected_draw(
            state.demand,
            picture.gpu_watts,
            observed.gpu_cap_watts,
            topology.request_watts,
            np.isfinite(state.lock_watts),
        ),
        active=(picture.holding.writable | (dry & fresh_gpu)) & trusted,
        doubtful=~fresh_gpu | ~trusted | np.isnan(picture.gpu_watts),
    )


def _bands(
    topology: Topology,
    state: State,
    picture: Picture,
    situation: Situation,
    cap_band: FloatArray,
    settings: PowerSettings,
    now_ns: int,
) -> tuple[State, Situation]:
    """Each domain's next band, and the situation with the load limits that follow."""
    load, base = state.load, _base_watts(state)
    # Raises below the deadband are not made, so what is nearly there has arrived.
    wanted = state.decided_watts - RAISE_DEADBAND * topology.default_limit_watts - 1.0
    short = situation.active & (picture.holding.held_watts < wanted)
    uncapped = domain_load(load, topology.request_watts, situation)
    bands = band_rules.update_bands(
        state.bands,
        np.where(state.heard, picture.draw_watts / base, 0.0),
        uncapped / base,
        cap_band,
        state.heard & must_brake(load, state.heat, picture.draw_watts, settings),
        load.sum_gpus(short.astype(np.float64)) > 0,
        now_ns,
        settings,
    )
    usable = (bands.band == Band.NORMAL) & picture.complete & state.heard
    rises = band_rules.update_rises(
        state.rises, picture.draw_watts / load.rating_watts, usable, now_ns, settings
    )
    limited = (bands.band == Band.CAPPING) | (bands.band == Band.BRAKE)
    target = (cap_band - settings.target_margin) * base
    return (
        replace(state, bands=bands, rises=rises),
        replace(situation, load_limit_watts=np.where(limited, target, np.inf)),
    )


def _enforced(topology: Topology, situation: Situation) -> Situation:
    """The situation as the enforcing domains see it: those that only watch limit nothing."""
    enforce = topology.tree.enforce
    return replace(
        situation,
        survivable_watts=np.where(enforce, situation.survivable_watts, np.inf),
        load_limit_watts=np.where(enforce, situation.load_limit_watts, np.inf),
        active=situation.active & enforce[topology.domain_of_gpu],
    )


def _decide(
    topology: Topology,
    state: State,
    observed: Observations,
    situation: Situation,
    enforced: Situation,
) -> tuple[Decided, Decided]:
    """What would be decided if every domain enforced, and what the enforcing domains decide."""
    enforce = topology.tree.enforce
    everywhere = np.ones(topology.n_domains, dtype=np.bool_)
    decided = _decide_for(topology, state, observed, situation, everywhere)
    if enforce.all() or not enforce.any():
        return decided, decided
    return decided, _decide_for(topology, state, observed, enforced, enforce)


def _decide_for(
    topology: Topology,
    state: State,
    observed: Observations,
    now: Situation,
    domains: BoolArray,
) -> Decided:
    wants = effective_wants(topology, state.gang_kind, observed, _braked(state, domains))
    ideal = decide(state.load, topology, wants, now)
    kept = state.decided_watts
    near = np.abs(ideal.cap_watts - kept) <= _KEEP_SHARE * topology.default_limit_watts
    same_rank = (ideal.cap_watts >= wants.request_watts) == (kept >= wants.request_watts)
    same_rank &= (ideal.cap_watts > wants.floor_watts) == (kept > wants.floor_watts)
    if not np.all((near & same_rank) | ~now.active):
        return ideal
    caps = np.where(now.active, kept, ideal.cap_watts)
    load = state.load
    slack = _KEEP_OVER_TARGET * _base_watts(state)
    fits = domain_load(load, caps, now) <= now.load_limit_watts + slack
    counted = np.where(now.active & ~topology.clock_lock, caps, now.highest_watts)
    worst = load.sum_gpus(counted) * load.gpu_factor + now.worst_rest_watts
    ideal_counted = np.where(now.active & ~topology.clock_lock, ideal.cap_watts, now.highest_watts)
    ideal_worst = load.sum_gpus(ideal_counted) * load.gpu_factor + now.worst_rest_watts
    fits &= worst <= np.maximum(now.survivable_watts, ideal_worst) + 1e-6
    return replace(ideal, cap_watts=caps) if fits.all() else ideal


def _permit(
    topology: Topology,
    state: State,
    observed: Observations,
    settings: PowerSettings,
    seconds: float,
    now_ns: int,
) -> Permit:
    """Who may raise now (I4, I6)."""
    ttl_ns = settings.lease_ttl_ms * NS_PER_MS
    starting = now_ns - state.commitments.since_ns < ttl_ns
    fenced = observed.highest_epoch_seen > observed.epoch
    may = observed.leading and observed.may_raise and not starting and not fenced
    enforce = topology.tree.enforce
    free = ~state.load.any_above_gpu(state.recovering & enforce)
    rate = topology.tree.max_raise_watts_per_second * min(seconds, _LONGEST_RAISE_SECONDS)
    rate = np.where(enforce, rate, np.inf)
    refused = CapReason.RAISE_RATE if may else CapReason.STARTING
    return Permit(free & may, rate, refused)


def _may_ask_for(observed: Observations, picture: Picture, permit: Permit) -> FloatArray:
    """Caps that raise nothing: what may be held, or only what was read back where raising stops."""
    held = picture.holding.held_watts
    return np.where(permit.gpus, held, np.fmin(held, observed.gpu_cap_watts))


def _commands(
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
