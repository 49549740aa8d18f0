"""Each domain's next band, and the limits on caps that follow from it.

draws, requests ──> DomainLoads ──> band ──> load limit: what caps aim at while it holds
                                        ──> jump limit: I2's, lower while it holds
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.bands import (
    DomainLoads,
    held_target_share,
    update_bands,
    update_held,
    update_rises,
)
from controller.breaker_heat import must_brake, survivable_for
from controller.controller_state import State, base_watts
from controller.decide import (
    Situation,
    decide,
    domain_load,
    effective_wants,
    enforced_situation,
    worst_watts,
)
from controller.grants import RAISE_DEADBAND
from controller.heat_budget import budgeted_target
from controller.locks import unlocked_draw
from controller.picture import Picture
from controller.tick_values import Band, PowerSettings, Tick
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray

__all__ = ["move_bands"]

# As plain numbers: comparing arrays with an enum takes five times as long.
_NORMAL, _, _CAPPING, _BRAKE = (int(band) for band in Band)

# Heat that is counted because no meter says otherwise lowers what caps aim at, so that it stays far
# below what I2 and a restart ask for (I6: 0.1); at this heat boards may all read 5 % low. Assumed.
_NO_UNCONFIRMED_HEAT = 0.1


def move_bands(
    tick: Tick,
    state: State,
    picture: Picture,
    situation: Situation,
    cap_band: FloatArray,
    spare: FloatArray,
) -> tuple[State, Situation, DomainLoads]:
    """Each domain's next band, the situation with the load limits that follow, what moved bands.

    Args:
        tick: What is known now.
        state: From the last tick, with what this one measured.
        picture: Draws.
        situation: With the bands still open.
        cap_band: As share of L, (n_domains,).
        spare: How far above the rating a rise may end, as share of it, (n_domains,).
    """
    base, settings, now_ns = base_watts(state), tick.settings, tick.now_ns
    loads = _band_loads(tick, state, picture, situation, cap_band)
    bands = update_bands(state.bands, loads, settings, now_ns)
    usable = (bands.band == _NORMAL) & picture.complete & state.heard
    rated_share = picture.draw_watts / state.load.rating_watts
    rises = update_rises(state.rises, rated_share, usable, now_ns, settings)
    target = _target_share(state, picture, cap_band, spare, settings)
    capping = (bands.band == _CAPPING) & picture.complete & state.heard
    held = update_held(state.held, picture.draw_watts / base, target, capping, now_ns)
    limited = (bands.band == _CAPPING) | (bands.band == _BRAKE)
    return (
        replace(state, bands=bands, rises=rises, held=held),
        replace(
            situation,
            jump_limit_watts=_jump_limit(tick, state, situation, limited),
            load_limit_watts=np.where(limited, target * base, np.inf),
        ),
        loads,
    )


def _band_loads(
    tick: Tick, state: State, picture: Picture, situation: Situation, cap_band: FloatArray
) -> DomainLoads:
    """What moves each domain's band."""
    load, base, topology = state.load, base_watts(state), tick.topology
    # Raises below the deadband are not made, so what is nearly there has arrived.
    wanted = state.decided_watts - RAISE_DEADBAND * topology.default_limit_watts - 1.0
    short = situation.active & (picture.holding.held_watts < wanted)
    return DomainLoads(
        draw_share=np.where(state.heard, picture.draw_watts / base, 0.0),
        uncapped_share=_uncapped_watts(tick, state, situation) / base,
        cap_band=cap_band,
        braking=state.heard
        & must_brake(state.rated_load, state.heat, picture.draw_watts, tick.settings),
        capped=load.any_gpu_below(short),
    )


def _uncapped_watts(tick: Tick, state: State, situation: Situation) -> FloatArray:
    """What each domain would draw if no band held anything, (n_domains,).

    I2 goes on holding it, and so do people: a row that they hold low need not stay capped for that.
    """
    topology, load, freed = tick.topology, state.load, situation
    request = topology.request_watts
    capping = state.bands.band >= _CAPPING
    if some(topology.lockable_gpu):
        locked = load.any_above_gpu(capping)
        unlocked = unlocked_draw(topology, situation.expected_watts, locked)
        freed = replace(situation, expected_watts=unlocked)
    uncapped = domain_load(load, request, freed)
    # What only watches holds nobody, and cannot be held.
    enforced = enforced_situation(topology, situation)
    worst = worst_watts(load, request, enforced)
    if not (some(capping) and some(worst > enforced.jump_limit_watts)):
        return uncapped
    nobody_braked = np.zeros(topology.n_gpus, dtype=np.bool_)
    # What a board that is capped by hand leaves goes to others (I2 has room for them).
    wants = effective_wants(state.calm_wants, tick.observations, nobody_braked)
    by_jump = decide(load, topology, wants, enforced).cap_watts
    by_jump = np.where(enforced.active, by_jump, request)
    return np.minimum(uncapped, domain_load(load, by_jump, freed))


def _target_share(
    state: State,
    picture: Picture,
    cap_band: FloatArray,
    spare: FloatArray,
    settings: PowerSettings,
) -> FloatArray:
    """What caps aim at, as share of L, (n_domains,)."""
    base, metered = base_watts(state), picture.metered
    at_worst = np.minimum(np.maximum(metered.at_worst_watts / base, 0.0), 1.0)
    target = held_target_share(state.held, cap_band, 1.0 - at_worst, settings)
    unconfirmed = metered.unconfirmed_watts / base
    weight = np.minimum(state.heat / _NO_UNCONFIRMED_HEAT, 1.0)
    return budgeted_target(target, spare) - unconfirmed * weight


def _jump_limit(tick: Tick, state: State, situation: Situation, limited: BoolArray) -> FloatArray:
    """What caps may make of the worst case: less while a band holds, floors first, (n_domains,)."""
    survivable = situation.survivable_watts
    if not some(limited):
        return survivable
    lower = survivable_for(
        state.load, state.heat, tick.settings, tick.settings.capping_margin_seconds
    )
    floors, enforced = state.calm_wants.floor_watts, enforced_situation(tick.topology, situation)
    owed = worst_watts(state.load, floors, situation)
    if enforced is not situation:
        # What only watches counts at its floors in the one, at all that it may hold in the other.
        owed = np.maximum(owed, worst_watts(state.load, floors, enforced))
    lower = np.minimum(np.maximum(lower, owed), survivable)
    return np.where(limited, lower, survivable)
