"""What one tick knows about the world before anything is decided: holdings, trust, draw, heat."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.breaker_heat import advance_heat
from controller.commitments import Holding, holding
from controller.controller_state import State
from controller.estimate import Metered, domain_draw, node_draw, readable_gpu_watts
from controller.readings import ReadingMemory, stale_boards, stale_hosts, take_readings
from controller.tick_values import Tick
from wattpack.power.board_trust import judged
from wattpack.power.domain_tree import OVERSHOOT_RATIO, BoolArray, FloatArray
from wattpack.units import NS_PER_SECOND

__all__ = ["Picture", "look"]


@dataclass(frozen=True, slots=True)
class Picture:
    """The world at this tick.

    Attributes:
        holding: What each GPU may hold by command and read-back.
        highest_watts: The same with untrusted devices at their maximum, (n_gpus,).
        gpu_draw_watts: Readable draws, NaN for the others, (n_gpus,).
        used_watts: Readable draws and for the others the most they could draw, (n_gpus,).
        metered: AC draw (I7), and what the meters say.
        rest_watts: What is drawn beside GPUs, AC, (n_domains,).
        complete: Domains of which everything is known, (n_domains,).
        stale_gpu: Readings that came but are not of this moment, (n_gpus,).
    """

    holding: Holding
    highest_watts: FloatArray
    gpu_draw_watts: FloatArray
    used_watts: FloatArray
    metered: Metered
    rest_watts: FloatArray
    complete: BoolArray
    stale_gpu: BoolArray

    @property
    def draw_watts(self) -> FloatArray:
        """AC draw (I7), (n_domains,)."""
        return self.metered.draw_watts


_CREDIBLE_ENERGY_OVER_DEFAULT = 2.5


def look(tick: Tick, state: State) -> tuple[State, Picture]:
    """Take in a tick's observations; the returned state remembers them."""
    load, topology = state.load, tick.topology
    hold = holding(tick, state.commitments)
    fresh_gpu = hold.fresh_node[topology.node_of_gpu]
    energy = _energy(tick, fresh_gpu)
    trust = judged(
        state.trust, energy, hold.highest_watts, tick.settings.reaction_seconds, tick.now_ns
    )
    most = np.maximum(topology.default_limit_watts, hold.highest_watts)
    highest = np.where(trust.trusted, hold.highest_watts, most)
    readings, stale = _readings(tick, state, fresh_gpu, energy)
    watts = np.where(fresh_gpu & ~stale, readings.gpu_draw_watts, np.nan)
    unreadable = np.isnan(watts)
    used = np.where(unreadable, highest * OVERSHOOT_RATIO, watts)
    hosts = np.where(stale_hosts(readings), np.nan, tick.observations.host_watts)
    nodes = node_draw(topology, watts, hosts, highest, hold.fresh_node)
    missing = load.sum_nodes((~hold.fresh_node).astype(np.float64))
    complete = missing + load.sum_gpus(unreadable.astype(np.float64)) == 0.0
    nodes_ac = load.sum_nodes(nodes) / load.efficiency
    metered, meters = domain_draw(tick, load, state.meters, nodes_ac, complete)
    picture = Picture(
        holding=hold,
        highest_watts=highest,
        gpu_draw_watts=watts,
        used_watts=used,
        metered=metered,
        rest_watts=np.maximum(metered.draw_watts - load.sum_gpus(used) / load.efficiency, 0.0),
        complete=complete,
        stale_gpu=stale,
    )
    state = replace(
        state,
        trust=trust,
        meters=meters,
        readings=readings,
        demand=state.demand.with_watts(watts, tick.now_ns),
    )
    return _feel_heat(tick, state, picture), picture


def _readings(
    tick: Tick, state: State, fresh_gpu: BoolArray, energy: FloatArray
) -> tuple[ReadingMemory, BoolArray]:
    """The newest readings, and which of them are not of this moment, (n_gpus,)."""
    draws = tick.observations.gpu_draw_watts
    readable = readable_gpu_watts(tick.topology, draws, fresh_gpu)
    readings = take_readings(tick, state.readings, readable)
    return readings, stale_boards(readings, energy, tick.now_ns) & fresh_gpu


def _energy(tick: Tick, fresh_gpu: BoolArray) -> FloatArray:
    """Energy means of fresh reports; a counter that was reset gives an incredible one."""
    energy = tick.observations.gpu_energy_mean_watts
    with np.errstate(invalid="ignore"):
        credible = energy <= _CREDIBLE_ENERGY_OVER_DEFAULT * tick.topology.default_limit_watts
    return np.where(fresh_gpu & credible, energy, np.nan)


def _feel_heat(tick: Tick, state: State, picture: Picture) -> State:
    """The state with breaker heat advanced over the time since the last tick.

    Heat is a record of the past, not a bound on the next seconds: a node that was silent for longer
    than every lease and has a host unit was at its guaranteed caps (I3, I10), whatever its limits
    may be by now. Before most nodes were heard for the first time nothing is recorded.
    """
    if state.now_ns < 0:
        return state
    load, topology, observed = state.load, tick.topology, tick.observations
    settled_ns = tick.lease_ns + tick.settings.nonce_max_age_ns
    settled_ns += int(tick.settings.settle_seconds * NS_PER_SECOND)
    expired = (tick.now_ns - observed.node_received_ns > settled_ns) & topology.node_host_unit
    expired &= observed.node_received_ns >= 0
    guaranteed = np.fmax(observed.gpu_guaranteed_watts, topology.guaranteed_watts)
    gpu = expired[topology.node_of_gpu] & (guaranteed < picture.highest_watts)
    phantom = np.where(gpu, (picture.highest_watts - guaranteed) * OVERSHOOT_RATIO, 0.0)
    felt = picture.metered.draw_watts - load.sum_gpus(phantom) / load.efficiency
    felt = np.fmax(felt, picture.metered.meter_watts)
    seconds = min((tick.now_ns - state.now_ns) / NS_PER_SECOND, _LONGEST_TICK_SECONDS)
    heat = advance_heat(load, state.heat, felt, seconds)
    return replace(state, heat=np.where(state.heard, np.minimum(heat, _HIGHEST_HEAT), state.heat))


_LONGEST_TICK_SECONDS = 60.0
# A breaker that tripped is replaced or reset by people; more heat than a trip means nothing.
_HIGHEST_HEAT = 1.0
