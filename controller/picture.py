"""What one tick knows about the world before anything is decided: holdings, trust, draw, heat."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.breaker_heat import advance_heat
from controller.commitments import Holding, holding
from controller.controller_state import State
from controller.demand import update_demand
from controller.estimate import (
    domain_draw,
    node_draw,
    readable_gpu_watts,
    update_meters,
    update_trust,
)
from controller.tick_values import Observations, PowerSettings, Topology
from wattpack.power.domain_tree import OVERSHOOT_RATIO, BoolArray, FloatArray
from wattpack.units import NS_PER_MS, NS_PER_SECOND

__all__ = ["Picture", "look"]


@dataclass(frozen=True, slots=True)
class Picture:
    """The world at this tick.

    Attributes:
        holding: What each GPU may hold by command and read-back.
        highest_watts: The same with untrusted devices at their maximum, (n_gpus,).
        gpu_draw_watts: Readable draws, NaN for the others, (n_gpus,).
        used_watts: Readable draws and for the others the most they could draw, (n_gpus,).
        draw_watts: AC draw (I7), (n_domains,).
        rest_watts: What is drawn beside GPUs, AC, (n_domains,).
        complete: Domains of which everything is known, (n_domains,).
        mismatch: Domains whose meter and nodes differ by more than 8 %, (n_domains,).
    """

    holding: Holding
    highest_watts: FloatArray
    gpu_draw_watts: FloatArray
    used_watts: FloatArray
    draw_watts: FloatArray
    rest_watts: FloatArray
    complete: BoolArray
    mismatch: BoolArray


# Research page on power, "Leases": disagreement above 8 % is an alarm.
_MISMATCH_SHARE = 0.08
_CREDIBLE_ENERGY_OVER_DEFAULT = 2.5


def look(
    topology: Topology,
    state: State,
    observed: Observations,
    settings: PowerSettings,
    now_ns: int,
) -> tuple[State, Picture]:
    """Take in a tick's observations; the returned state remembers them."""
    load = state.load
    hold = holding(topology, state.commitments, observed, settings, now_ns)
    fresh_gpu = hold.fresh_node[topology.node_of_gpu]
    trust = update_trust(
        state.trust, _energy(topology, observed, fresh_gpu), hold.highest_watts, now_ns, settings
    )
    most = np.maximum(topology.default_limit_watts, hold.highest_watts)
    highest = np.where(trust.trusted, hold.highest_watts, most)
    watts = readable_gpu_watts(topology, observed.gpu_draw_watts, fresh_gpu)
    unreadable = np.isnan(watts)
    used = np.where(unreadable, highest * OVERSHOOT_RATIO, watts)
    nodes = node_draw(topology, watts, observed.host_watts, highest, hold.fresh_node)
    nodes_ac = load.sum_nodes(nodes) / load.efficiency
    missing = load.sum_nodes((~hold.fresh_node).astype(np.float64))
    complete = missing + load.sum_gpus(unreadable.astype(np.float64)) == 0.0
    meters, usable = update_meters(load, state.meters, observed, nodes_ac, now_ns)
    draw, meters = domain_draw(load, meters, usable, observed, nodes_ac, complete)
    meter = np.where(usable, observed.meter_watts, np.nan)
    with np.errstate(invalid="ignore"):
        modelled = nodes_ac + load.external_watts
        mismatch = complete & (meter > (1.0 + _MISMATCH_SHARE) * modelled)
    picture = Picture(
        holding=hold,
        highest_watts=highest,
        gpu_draw_watts=watts,
        used_watts=used,
        draw_watts=draw,
        rest_watts=np.maximum(draw - load.sum_gpus(used) / load.efficiency, 0.0),
        complete=complete,
        mismatch=mismatch,
    )
    state = replace(
        state, trust=trust, meters=meters, demand=update_demand(state.demand, watts, now_ns)
    )
    return _feel_heat(topology, state, observed, picture, settings, now_ns, meter), picture


def _energy(topology: Topology, observed: Observations, fresh_gpu: BoolArray) -> FloatArray:
    """Energy means of fresh reports; a counter that was reset gives an incredible one."""
    energy = observed.gpu_energy_mean_watts
    with np.errstate(invalid="ignore"):
        credible = energy <= _CREDIBLE_ENERGY_OVER_DEFAULT * topology.default_limit_watts
    return np.where(fresh_gpu & credible, energy, np.nan)


def _feel_heat(
    topology: Topology,
    state: State,
    observed: Observations,
    picture: Picture,
    settings: PowerSettings,
    now_ns: int,
    meter: FloatArray,
) -> State:
    """The state with breaker heat advanced over the time since the last tick.

    Heat is a record of the past, not a bound on the next seconds: a node that was silent for longer
    than every lease and has a host unit was at its guaranteed caps (I3, I10), whatever its limits
    may be by now. Before most nodes were heard for the first time nothing is recorded.
    """
    if state.now_ns < 0:
        return state
    load = state.load
    settled_ns = settings.lease_ttl_ms * NS_PER_MS + settings.nonce_max_age_ns
    settled_ns += int(settings.settle_seconds * NS_PER_SECOND)
    expired = (now_ns - observed.node_received_ns > settled_ns) & topology.node_host_unit
    expired &= observed.node_received_ns >= 0
    guaranteed = np.fmax(observed.gpu_guaranteed_watts, topology.guaranteed_watts)
    gpu = expired[topology.node_of_gpu] & (guaranteed < picture.highest_watts)
    phantom = np.where(gpu, (picture.highest_watts - guaranteed) * OVERSHOOT_RATIO, 0.0)
    felt = picture.draw_watts - load.sum_gpus(phantom) / load.efficiency
    felt = np.fmax(felt, meter)
    seconds = min((now_ns - state.now_ns) / NS_PER_SECOND, _LONGEST_TICK_SECONDS)
    heat = advance_heat(load, state.heat, felt, seconds)
    return replace(state, heat=np.where(state.heard, np.minimum(heat, _HIGHEST_HEAT), state.heat))


_LONGEST_TICK_SECONDS = 60.0
# A breaker that tripped is replaced or reset by people; more heat than a trip means nothing.
_HIGHEST_HEAT = 1.0
