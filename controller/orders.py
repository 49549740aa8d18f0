"""From caps that were decided to batches that are sent: grants, locks, guaranteed caps, silence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.cap_reason import CapReason
from controller.controller_state import State
from controller.decide import Decided, Situation
from controller.grants import Grants, Permit, grant
from controller.guarantee import guaranteed_commands
from controller.guaranteed_case import GuaranteedCase, guaranteed_case
from controller.judge import raise_permit
from controller.locks import lock_clocks
from controller.picture import Picture
from controller.quiet import quieted
from controller.tick_values import Commands, Tick
from wattpack.masks import every
from wattpack.power.domain_tree import BoolArray, FloatArray

__all__ = ["Orders", "give_orders"]


@dataclass(frozen=True, slots=True)
class Orders:
    """What is granted and sent.

    Attributes:
        grants: Caps, and why some are lower than decided.
        commands: The batches.
        lock_watts: Cap that each clock lock follows, infinite without one, (n_gpus,).
        guaranteed: I1's worst case.
        raises_stopped: What keeps this replica from raising anything, NOT_CAPPED for nothing.
    """

    grants: Grants
    commands: Commands
    lock_watts: FloatArray
    guaranteed: GuaranteedCase
    raises_stopped: CapReason


def give_orders(
    tick: Tick, state: State, picture: Picture, now: Situation, commanded: Decided
) -> Orders:
    """What is sent for the caps that the enforcing domains decided.

    Args:
        tick: What is known.
        state: With this tick's bands and heat.
        picture: What was made of it.
        now: The limits of the enforcing domains.
        commanded: What they decided.
    """
    topology = tick.topology
    permit = raise_permit(tick, state, picture.draw_watts)
    writable = picture.holding.writable & topology.enforced_gpu
    grants = grant(
        state,
        commanded.cap_watts,
        _free_watts(tick, picture, permit),
        replace(now, active=now.active & writable),
        permit,
    )
    caps = _batch_caps(tick, state, picture, grants)
    held = np.isfinite(now.load_limit_watts)
    locks_mhz, lock_watts = lock_clocks(topology, state.load, caps, held, state.clock_share)
    case = guaranteed_case(topology, state.load, tick.observations, state.guaranteed)
    send, observed = _answered(tick, picture), tick.observations
    commands = Commands(
        epoch=observed.epoch,
        sequence=state.commitments.next_sequence,
        ttl_ms=tick.settings.lease_ttl_ms,
        send=send,
        nonce=np.where(send, observed.node_nonce, 0).astype(np.uint64, copy=False),
        cap_watts=caps,
        lock_max_mhz=locks_mhz,
        guaranteed_watts=guaranteed_commands(tick, state, case, permit.gpus),
        decided_ns=tick.now_ns,
    )
    commands = quieted(tick, state.commitments, commands)
    return Orders(grants, commands, lock_watts, case, permit.stopped)


def _free_watts(tick: Tick, picture: Picture, permit: Permit) -> FloatArray:
    """Caps that raise nothing: what may be held, or only what was read back where raising stops.

    The guaranteed cap counts in every worst case, so going up to it raises nothing either (I6).
    """
    observed, held = tick.observations, picture.holding.held_watts
    free = np.where(permit.gpus, held, np.fmin(held, observed.gpu_limit_watts))
    return np.fmax(free, np.fmin(observed.gpu_guaranteed_watts, tick.topology.guaranteed_watts))


def _answered(tick: Tick, picture: Picture) -> BoolArray:
    """Nodes that enforce and whose report can be answered, (n_nodes,)."""
    topology, observed = tick.topology, tick.observations
    answerable = picture.holding.fresh_node & (observed.node_nonce != 0)
    answerable &= tick.now_ns - observed.node_received_ns <= tick.settings.nonce_max_age_ns
    leads = observed.leading and observed.epoch > 0
    return np.asarray(answerable & topology.tree.enforce[topology.domain_of_node] & leads)


def _batch_caps(tick: Tick, state: State, picture: Picture, grants: Grants) -> FloatArray:
    """The caps of batches, also of what takes no part, (n_gpus,)."""
    part, caps = picture.holding.writable & state.trust.trusted, grants.cap_watts
    if not every(part):
        caps = np.where(part, caps, _careful(tick, picture, caps))
    return np.maximum(caps, tick.topology.min_limit_watts)


def _careful(tick: Tick, picture: Picture, granted_watts: FloatArray) -> FloatArray:
    """Caps of what takes no part, (n_gpus,)."""
    topology, observed = tick.topology, tick.observations
    held = picture.holding.held_watts
    # What takes no part is never raised: not to what was sent before a reboot either, and boards
    # of which nothing was ever known go to their guaranteed caps.
    read_back = np.fmax(observed.gpu_limit_watts, topology.guaranteed_watts)
    at_most = np.where(np.isfinite(observed.gpu_limit_watts), read_back, held)
    return np.where(held > 0.0, np.minimum(granted_watts, at_most), topology.guaranteed_watts)
