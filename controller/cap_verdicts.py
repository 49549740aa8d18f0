"""Why each GPU is held below its request, and which domain is meant: what ``explain`` rests on.

A cap is decided, then granted: what held the decision is told before what holds the grant. Of
causes of one kind the one is told that lasts longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation import even_gangs
from controller.cap_reason import CapReason
from controller.decide import Decided
from controller.judgement import Judgement
from controller.tick_values import Band, Tick
from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

__all__ = ["CapVerdicts", "cap_verdicts"]

# What is short by less is short of no whole watt.
_SHORT_WATTS = 1.0


@dataclass(frozen=True, slots=True)
class CapVerdicts:
    """What is told of each GPU's cap, (n_gpus,) each.

    Attributes:
        reason: ``CapReason`` values.
        binding_domain: The domain that the reason speaks of, -1 for none.
    """

    reason: IntArray
    binding_domain: IntArray


def cap_verdicts(tick: Tick, j: Judgement) -> CapVerdicts:
    """The verdict on every GPU."""
    topology, grants = tick.topology, j.orders.grants
    decided, would_be_short = j.decided, _short(tick, j.decided)
    all_enforce = every(topology.tree.enforce)
    short = would_be_short
    if not all_enforce:
        short = _short(tick, j.commanded) & topology.enforced_gpu
        decided = _either(short, j.commanded, j.decided)
    reason = np.where(short, int(CapReason.DOMAIN_BAND), grants.reason)
    reason[short & decided.held_by_jump] = CapReason.SURVIVABLE_JUMP
    binding = np.where(short, decided.binding_domain, grants.binding_domain)
    if not all_enforce:
        only_dry = would_be_short & ~short & (reason == int(CapReason.NOT_CAPPED))
        reason[only_dry] = CapReason.DRY_RUN
        binding[only_dry] = decided.binding_domain[only_dry]
    _mark_overridden(tick, j, decided.cap_watts, short, reason)
    _mark_braked(tick, j, short, reason, binding)
    recovering = j.state.recovering & topology.tree.enforce
    if some(recovering):
        waits = reason == int(CapReason.RECOVERING)
        binding = np.where(waits, j.state.load.lowest_above_gpu(recovering), binding)
    inactive = ~j.situation.active
    if some(inactive):
        heard = j.picture.holding.fresh_node.take(topology.node_of_gpu)
        heard &= j.picture.holding.writable | ~topology.enforced_gpu
        untrusted = heard & ~j.state.trust.trusted
        reason[inactive] = CapReason.UNCONTROLLED
        reason[inactive & untrusted] = CapReason.UNTRUSTED
        binding[inactive] = -1
    return CapVerdicts(reason, binding)


def _short(tick: Tick, decided: Decided) -> BoolArray:
    return np.asarray(decided.cap_watts < tick.topology.request_watts - _SHORT_WATTS)


def _either(first: BoolArray, one: Decided, other: Decided) -> Decided:
    """Of each GPU the one decision or the other."""
    return Decided(
        np.where(first, one.cap_watts, other.cap_watts),
        np.where(first, one.binding_domain, other.binding_domain),
        np.where(first, one.held_by_jump, other.held_by_jump),
    )


def _mark_overridden(
    tick: Tick, j: Judgement, caps: FloatArray, short: BoolArray, reason: IntArray
) -> None:
    """Who is as low as a manual cap of his own or of his gang says, into ``reason``."""
    override = tick.observations.override_cap_watts
    with np.errstate(invalid="ignore"):
        by_hand = override > 0.0
    if some(by_hand):
        lowest = np.where(by_hand, override, np.inf)
        lowest = even_gangs(lowest, j.state.calm_wants.gang_kinds, j.situation.active)
        reason[short & (caps >= lowest - _SHORT_WATTS)] = CapReason.OVERRIDE


def _mark_braked(
    tick: Tick, j: Judgement, short: BoolArray, reason: IntArray, binding: IntArray
) -> None:
    """Who is at his lowest limit for a brake, of his own or of a board of his gang."""
    topology, state = tick.topology, j.state
    enforce = topology.tree.enforce
    braking = (state.bands.band == int(Band.BRAKE)) & enforce
    if not some(braking):
        return
    braked = state.load.any_above_gpu(braking) & topology.enforced_gpu
    nobody = topology.n_domains
    holder = np.where(braked, state.load.lowest_above_gpu(braking), nobody).astype(np.float64)
    of_gang = even_gangs(holder, state.calm_wants.gang_kinds, j.situation.active)
    holder = np.where(braked, holder, of_gang).astype(np.int64)
    held = braked | (short & (holder < nobody))
    reason[held] = CapReason.BRAKE
    binding[held] = holder[held]
