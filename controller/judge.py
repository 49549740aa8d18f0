"""What a tick makes of its picture: the limits, caps, and who may be raised."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from controller.allocation import even_gangs
from controller.breaker_heat import survivable_for
from controller.cap_reason import RAISES_STOPPED, CapReason
from controller.changes import new_rise
from controller.coincidence import coincidence, lasting
from controller.controller_state import State, base_watts
from controller.decide import (
    Decided,
    Situation,
    below_bands,
    boards_load,
    decide,
    domain_load,
    effective_wants,
    worst_watts,
)
from controller.demand import expected_draw
from controller.grants import Permit
from controller.locks import most_drawn
from controller.picture import Picture
from controller.raise_rate import RaiseRate
from controller.recovery import restorable_watts
from controller.tick_values import Band, Observations, Tick
from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree
from wattpack.power.recent_highest import RecentHighest
from wattpack.units import NS_PER_SECOND

__all__ = [
    "braked_gpus",
    "decide_caps",
    "good_budget",
    "measure_coincidence",
    "open_situation",
    "raise_permit",
    "raises_stopped",
]

# As plain numbers: comparing arrays with an enum takes five times as long.
_NORMAL, _, _CAPPING, _BRAKE = (int(band) for band in Band)

# A pause of the controller is not made up for by one large raise.
_LONGEST_RAISE_SECONDS = 1.0
# The last share of L below a capping domain's target is closed with this time constant. Chosen
# (docs/power-control.md, "Raises that take their time"): slower ones leave more watts unused.
_NEAR_TARGET_SHARE = 0.01
_CLOSING_SECONDS = 10.0
# Caps that are still safe are kept while the ideal ones differ by less: boards live calmly (G6).
_KEEP_SHARE = 0.03
_KEEP_OVER_TARGET = 0.01
# And while boards that no band holds leave no more than this share of a rating unused.
_KEEP_UNUSED_SHARE = 0.0025
# A peak that ends above this share of L counts at once, however short it is.
_PEAKS_COUNT_FROM_SHARE = 0.985
# What boards rise in a second beyond all that was before, and beyond this share of L, is expected
# to come once more: readings are means of a second, so they show a step bit by bit.
_EVERYDAY_RISE_SHARE = 0.02


def good_budget(state: State, observed: Observations) -> FloatArray:
    """A budget that is zero or no number is refused: the last good one rules on (I8)."""
    budget = observed.budget_watts
    good = np.isfinite(budget) & (budget > 0.0)
    return np.where(good, budget, state.budget_watts)


def braked_gpus(state: State, domains: BoolArray) -> BoolArray:
    """GPUs below any of these domains that brakes, (n_domains,) -> (n_gpus,)."""
    return state.load.any_above_gpu((state.bands.band == _BRAKE) & domains)


def open_situation(tick: Tick, state: State, picture: Picture) -> Situation:
    """The limits and counts of this tick, with the bands still open."""
    load, topology = state.load, tick.topology
    fresh_gpu = picture.holding.fresh_node[topology.node_of_gpu]
    dry = ~topology.enforced_gpu
    trusted = state.trust.trusted
    worst_rest = load.sum_nodes(topology.node_worst_watts) / load.efficiency
    survivable = survivable_for(state.load, state.heat, tick.settings)
    return Situation(
        survivable_watts=survivable,
        jump_limit_watts=survivable,
        load_limit_watts=np.full(topology.n_domains, np.inf),
        worst_rest_watts=worst_rest + load.external_watts,
        rest_watts=picture.rest_watts,
        coincidence=np.ones(topology.n_domains),
        highest_watts=picture.highest_watts,
        expected_watts=expected_draw(
            state.demand,
            picture.gpu_draw_watts,
            tick.observations.gpu_limit_watts,
            most_drawn(topology),
            np.isfinite(state.lock_watts),
        ),
        active=(picture.holding.writable | (dry & fresh_gpu)) & trusted,
        doubtful=~fresh_gpu | ~trusted | np.isnan(picture.gpu_draw_watts),
    )


def measure_coincidence(
    tick: Tick, state: State, picture: Picture, situation: Situation
) -> tuple[RecentHighest, FloatArray, Situation]:
    """What of the boards' draws comes together: lately, now, and the situation with it.

    What comes new counts in the situation, too.
    """
    load, settings = state.load, tick.settings
    reaction_ns = round((1.0 + settings.reaction_seconds) * NS_PER_SECOND)
    # A lowered cap is read back before the draw has followed it: the caps of that time count.
    caps = state.trust.caps.since(tick.now_ns - reaction_ns)
    modelled = boards_load(load, caps, situation)
    measured = load.sum_gpus(picture.used_watts) / load.efficiency
    ratio = np.divide(measured, modelled, out=np.ones_like(measured), where=modelled > 0.0)
    seconds = 0.0 if state.now_ns < 0 else (tick.now_ns - state.now_ns) / NS_PER_SECOND
    near = picture.draw_watts > _PEAKS_COUNT_FROM_SHARE * base_watts(state)
    ratio = lasting(state.together_now, ratio, near, seconds / settings.reaction_seconds)
    together = state.together.with_watts(ratio, tick.now_ns)
    everyday = _EVERYDAY_RISE_SHARE * base_watts(state)
    still_to_come = np.maximum(new_rise(state.changes, tick.now_ns) - everyday, 0.0)
    idle = np.maximum(tick.topology.request_watts - situation.expected_watts, 0.0)
    still_to_come = np.minimum(still_to_come, load.sum_gpus(idle) * load.gpu_factor)
    now = replace(
        situation,
        coincidence=coincidence(together),
        rest_watts=situation.rest_watts + still_to_come,
    )
    return together, ratio, now


def decide_caps(
    tick: Tick, state: State, situation: Situation, enforced: Situation
) -> tuple[Decided, Decided]:
    """What would be decided if every domain enforced, and what the enforcing domains decide."""
    enforce = tick.topology.tree.enforce
    decided = _decide_for(tick, state, situation, np.ones(len(enforce), dtype=np.bool_))
    if every(enforce) or not some(enforce):
        return decided, decided
    return decided, _decide_for(tick, state, enforced, enforce)


def _decide_for(tick: Tick, state: State, now: Situation, domains: BoolArray) -> Decided:
    topology = tick.topology
    braked = braked_gpus(state, domains)
    wants = effective_wants(state.calm_wants, tick.observations, braked)
    ideal = decide(state.load, topology, wants, now)
    kept = state.decided_watts
    near = np.abs(ideal.cap_watts - kept) <= _KEEP_SHARE * topology.default_limit_watts
    # A manual cap is obeyed to the watt, also where it changes little.
    near &= kept <= wants.slack_watts
    # Boards take whole watts: one that holds all of them of its request is short of nothing.
    request = np.floor(wants.request_watts + 1e-6)
    same_rank = (ideal.cap_watts >= request) == (kept >= request)
    same_rank &= (ideal.cap_watts > wants.floor_watts) == (kept > wants.floor_watts)
    if not every((near & same_rank) | ~now.active):
        return ideal
    caps = np.where(now.active, kept, ideal.cap_watts)
    # Who is heard again was decided apart from its gang.
    if some(even_gangs(caps, wants.gang_kinds, now.active) != caps):
        return ideal
    load = state.load
    slack = _KEEP_OVER_TARGET * base_watts(state)
    fits = domain_load(load, caps, now) <= now.load_limit_watts + slack
    worst = worst_watts(load, caps, now)
    ideal_worst = worst_watts(load, ideal.cap_watts, now)
    fits &= worst <= np.maximum(now.jump_limit_watts, ideal_worst) + 1e-6
    if not every(fits) or _wastes(load, caps, ideal.cap_watts, now):
        return ideal
    return replace(ideal, cap_watts=caps)


def _wastes(load: LoadTree, kept: FloatArray, ideal: FloatArray, now: Situation) -> bool:
    """Whether kept caps of boards that no band holds leave watts unused that I2 would give."""
    if not some(ideal > kept):
        return False
    more = np.where(now.active & ~below_bands(load, now), ideal - kept, 0.0)
    unused = load.sum_gpus(more) * load.gpu_factor
    return some(unused > _KEEP_UNUSED_SHARE * load.rating_watts)


def raise_permit(tick: Tick, state: State, draw_watts: FloatArray) -> Permit:
    """Who may raise now (I4, I6).

    Args:
        tick: What is known.
        state: With this tick's bands and heat.
        draw_watts: AC draw of each domain at this tick, (n_domains,).
    """
    tree = tick.topology.tree
    seconds = 0.0 if state.now_ns < 0 else (tick.now_ns - state.now_ns) / NS_PER_SECOND
    stopped = raises_stopped(tick, state)
    free = ~state.load.any_above_gpu(state.recovering & tree.enforce)
    paid_seconds = min(seconds, _LONGEST_RAISE_SECONDS)
    rate = np.where(tree.enforce, tree.max_raise_watts_per_second, np.inf)
    base = base_watts(state)
    # What is expected to fall below the target has not fallen yet: while a domain draws more than
    # it may, nothing comes back at once, or the draw goes beyond once more.
    near = np.where(draw_watts > base, base, _NEAR_TARGET_SHARE * base)
    return Permit(
        gpus=free & (stopped is CapReason.NOT_CAPPED),
        rate=RaiseRate(rate, paid_seconds, state.saved_raise_seconds, state.now_ns, tick.now_ns),
        near_watts=near,
        near_share=-math.expm1(-paid_seconds / _CLOSING_SECONDS),
        restore_watts=restorable_watts(tick, state),
        refused=_refused(free, stopped),
        stopped=stopped,
    )


def raises_stopped(tick: Tick, state: State) -> CapReason:
    """What keeps this replica from raising anything (I4), NOT_CAPPED for nothing.

    Of several the first in the order of ``RAISES_STOPPED``: when it ends, the next one is told.
    """
    observed = tick.observations
    holds = (
        not observed.leading,
        not observed.may_raise,
        observed.highest_epoch_seen > observed.epoch,
        tick.now_ns - state.commitments.since_ns < tick.lease_ns,
    )
    return RAISES_STOPPED[holds.index(True)] if True in holds else CapReason.NOT_CAPPED


def _refused(free: BoolArray, stopped: CapReason) -> IntArray:
    """Why each GPU would not be raised, (n_gpus,): a start is over sooner than a recovery."""
    soon = stopped is CapReason.NOT_CAPPED or stopped is CapReason.STARTING
    otherwise = CapReason.RAISE_RATE if stopped is CapReason.NOT_CAPPED else stopped
    refused = np.full(len(free), int(otherwise), dtype=np.int64)
    if soon and not every(free):
        refused[~free] = CapReason.RECOVERING
    return refused
