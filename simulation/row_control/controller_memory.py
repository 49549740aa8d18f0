"""What a controller knows that begins with a run: nothing, or what one that was there before knew.

new        no memory, as after the loss of both replicas; heat is unknown to it
standby    a term that begins now: heat, what meters taught, where bands stood
leading    the same in the middle of a term: it may raise at once
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from controller.controller_state import State, initial_state
from controller.meters import MeterMemory
from controller.server_hosts import ServerHosts
from controller.tick_values import Band, PowerSettings, Topology
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS
from simulation.row_control.start_states import RowStart
from wattpack.power.domain_tree import FloatArray
from wattpack.units import NS_PER_SECOND

__all__ = ["KINDS", "Memory", "draw_memory"]

KINDS: Final = ("new", "standby", "leading")
TAUGHT_CHANCE: Final = 0.7
SHARE_ERROR: Final = 0.05
"""A learned share is off by up to this, either way."""
LEARNED_GAINS: Final = (1.0, 1.05)
LESSONS: Final = 200
BUSY_SHARE: Final = 0.7
FIRST_EPOCH: Final = 1
_LED_SECONDS: Final = 100
_FRESH_TICKS: Final = 60

Memory = tuple[str, State]
"""Its kind, one of ``KINDS``, and the state that the first tick gets."""


def draw_memory(
    seed: int, topology: Topology, settings: PowerSettings, start: RowStart, plant: RowPlant
) -> Memory:
    """The memory of the controller of a run.

    Args:
        seed: Of the run.
        topology: Of its row.
        settings: Constants of the power loop.
        start: How the row stands; guaranteed caps in a cool row are a new controller's.
        plant: For what its servers draw.
    """
    rng = np.random.default_rng((seed, 0x3E30))
    kind = KINDS[int(rng.integers(0, len(KINDS)))] if start.lease_seconds.any() else KINDS[0]
    if kind == "new":
        return kind, initial_state(topology, settings)
    state = initial_state(topology, settings, start.heat)
    n = topology.n_domains
    bands = replace(state.bands, band=rng.integers(int(min(Band)), int(max(Band)) + 1, n))
    state = replace(
        state,
        first_ns=START_NS - _LED_SECONDS * NS_PER_SECOND,
        heard=np.ones(n, dtype=np.bool_),
        recovering=np.zeros(n, dtype=np.bool_),
        fresh_ticks=np.full(n, _FRESH_TICKS, dtype=np.int64),
        bands=bands,
        decided_watts=start.cap_watts.ravel().copy(),
    )
    if rng.random() < TAUGHT_CHANCE:
        meters, hosts = _taught(rng, state, topology, plant)
        state = replace(state, meters=meters, server_hosts=hosts)
    if kind == "leading":
        since_ns = START_NS - _LED_SECONDS * NS_PER_SECOND
        commitments = replace(state.commitments, epoch=FIRST_EPOCH, since_ns=since_ns)
        state = replace(state, commitments=commitments)
    return kind, state


def _taught(
    rng: np.random.Generator, state: State, topology: Topology, plant: RowPlant
) -> tuple[MeterMemory, ServerHosts]:
    """Draws beside boards near those of a busy row, as they were told a while ago."""
    true = _busy_host_watts(plant) / topology.node_worst_watts.sum()
    n = topology.n_domains
    share = true * rng.uniform(1.0 - SHARE_ERROR, 1.0 + SHARE_ERROR, n)
    meters = replace(
        state.meters,
        gain=rng.uniform(*LEARNED_GAINS, n),
        lessons=np.full(n, LESSONS, dtype=np.int64),
    )
    of_node = np.clip(share, 0.0, 1.0)[topology.domain_of_node]
    hosts = replace(
        state.server_hosts,
        watts=of_node * topology.node_worst_watts,
        boards_watts=_busy_boards_watts(plant),
        tellings=np.full(topology.n_nodes, LESSONS, dtype=np.int64),
    )
    return meters, hosts


def _busy_boards_watts(plant: RowPlant) -> FloatArray:
    """What boards draw that are as busy as ``BUSY_SHARE`` says, (n_nodes,)."""
    defaults = plant.bank.default_limit_watts
    sums = np.bincount(plant.node_of_gpu, defaults, plant.n_nodes)
    return np.asarray(BUSY_SHARE * sums, dtype=np.float64)


def _busy_host_watts(plant: RowPlant) -> float:
    """What the servers draw beside boards that are as busy as ``BUSY_SHARE`` says."""
    servers, constants = plant.servers, plant.scenario.plant
    gpu_watts = _busy_boards_watts(plant)
    speed = np.minimum(1.0, gpu_watts / constants.fan_full_gpu_watts) ** constants.fan_exponent
    moving = constants.host_watts_per_gpu_watt * gpu_watts + servers.fan_watts * speed
    return float((servers.base_watts + moving).sum())
