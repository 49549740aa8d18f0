"""Topologies, observations and a small plant for tests of the controller core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from controller.tick_values import Observations, PowerSettings, Topology
from tests.controller.oracle import RACK_CURVE, SWITCHBOARD_CURVE, bare_house
from wattpack.power.domain_tree import BreakerCurve, DomainTree, FloatArray
from wattpack.power.feasibility import LoadTree, size_guaranteed_caps
from wattpack.units import NS_PER_SECOND

RACK_THERMAL = BreakerCurve(*RACK_CURVE)
SWITCHBOARD_THERMAL = BreakerCurve(*SWITCHBOARD_CURVE)
DEFAULT_WATTS = 700.0
MIN_WATTS = 200.0
NODE_WORST_WATTS = 1500.0


def make_tree(
    parents: Sequence[int],
    ratings: Sequence[float] | FloatArray | None = None,
    *,
    external: float | FloatArray = 0.0,
    curve: BreakerCurve = RACK_THERMAL,
    max_load_ratio: float = 1.5,
    enforce: bool | Sequence[bool] = True,
    efficiency: float | Sequence[float] = 0.94,
    imbalance: float = 1.0,
) -> DomainTree:
    """A tree from parent indexes; parents come first."""
    n = len(parents)
    rating = np.full(n, 1e6) if ratings is None else np.asarray(ratings, dtype=np.float64)
    return DomainTree(
        names=tuple(f"d{i}" for i in range(n)),
        parent=np.asarray(parents, dtype=np.int64),
        rating_watts=rating,
        external_watts=np.full(n, external),
        curves=(curve,) * n,
        max_load_ratio=np.full(n, max_load_ratio),
        cooling_seconds=np.full(n, 600.0),
        phase_imbalance=np.full(n, imbalance),
        supply_efficiency=np.broadcast_to(np.asarray(efficiency, dtype=np.float64), (n,)).copy(),
        max_raise_watts_per_second=0.02 * rating,
        enforce=np.broadcast_to(np.asarray(enforce, dtype=np.bool_), (n,)).copy(),
    )


def make_topology(
    *,
    parents: Sequence[int] = (-1, 0, 0),
    nodes: Sequence[int] = (1, 1, 2, 2),
    gpus_per_node: int = 4,
    oversubscription: float = 1.3,
    priority: Sequence[int] | int = 0,
    floor_watts: float = 400.0,
    request_watts: Sequence[float] | float = DEFAULT_WATTS,
    gang: Sequence[int] | int = -1,
    value_per_watt: Sequence[float] | float = 1.0,
    clock_lock: bool = False,
    host_unit: bool = True,
    external: float | FloatArray = 0.0,
    guaranteed_watts: float | None = None,
    limits: tuple[float, float] = (MIN_WATTS, DEFAULT_WATTS),
    node_worst_watts: float = NODE_WORST_WATTS,
    ratings: Sequence[float] | None = None,
    **tree_options: Any,
) -> Topology:
    """Servers below domains whose ratings are their worst load over the oversubscription.

    A rating is never so low that I1 could not hold, unless it or guaranteed caps are given.

    Args:
        parents: Parent of each domain, parents first.
        nodes: Domain of each server.
        limits: Lowest and default limit of each board.
        ratings: Of each domain, in place of the oversubscription.
    """
    n_nodes, n_gpus = len(nodes), len(nodes) * gpus_per_node
    domain_of_node = np.asarray(nodes, dtype=np.int64)
    node_of_gpu = np.repeat(np.arange(n_nodes), gpus_per_node)
    minimum, default = (np.full(n_gpus, watts) for watts in limits)
    worst = np.full(n_nodes, node_worst_watts)
    floor = np.full(n_gpus, floor_watts)
    lock = np.full(n_gpus, clock_lock)
    fixed = np.full(n_nodes, not host_unit)
    tree = make_tree(parents, external=external, **tree_options)
    house = bare_house(tree, domain_of_node, node_of_gpu, default, worst)
    rating = np.array([house.worst(d, default.tolist()) for d in house.domains()])
    rating = rating / oversubscription
    if ratings is not None:
        rating = np.array(ratings)
    elif guaranteed_watts is None:
        caps = np.where(fixed[node_of_gpu], default, minimum).tolist()
        least = np.array([house.floor_case(d, caps) for d in house.domains()])
        rating = np.maximum(rating, 1.01 * least)
    tree = make_tree(parents, rating, external=external, **tree_options)
    if guaranteed_watts is None:
        load = LoadTree(tree, domain_of_node, node_of_gpu)
        guaranteed = size_guaranteed_caps(
            load, minimum, np.maximum(floor, minimum), default, worst, fixed
        )
    else:
        guaranteed = np.full(n_gpus, guaranteed_watts)
    return Topology(
        gpu_uuids=tuple(f"gpu-{i}" for i in range(n_gpus)),
        node_names=tuple(f"node-{i}" for i in range(n_nodes)),
        tree=tree,
        node_of_gpu=node_of_gpu,
        domain_of_node=domain_of_node,
        min_limit_watts=minimum,
        default_limit_watts=default,
        guaranteed_watts=guaranteed,
        floor_watts=floor,
        request_watts=np.broadcast_to(np.asarray(request_watts, float), (n_gpus,)).copy(),
        priority=np.broadcast_to(np.asarray(priority, np.int64), (n_gpus,)).copy(),
        gang=np.broadcast_to(np.asarray(gang, np.int64), (n_gpus,)).copy(),
        value_per_watt=np.broadcast_to(np.asarray(value_per_watt, float), (n_gpus,)).copy(),
        clock_lock=lock,
        node_worst_watts=worst,
        node_host_unit=~fixed,
    )


def make_observations(topology: Topology, now_ns: int, **changes: Any) -> Observations:
    """Fresh reports of idle GPUs at their guaranteed caps, a leader, no meters."""
    g, n, d = topology.n_gpus, topology.n_nodes, topology.n_domains
    observed = Observations(
        node_received_ns=np.full(n, now_ns, dtype=np.int64),
        node_nonce=np.full(n, 7, dtype=np.uint64),
        node_rebooted=np.zeros(n, dtype=np.bool_),
        # A meter that gives one number for ever is not believed (I7).
        host_watts=np.full(n, 800.0 + (now_ns // NS_PER_SECOND) % 3),
        gpu_draw_watts=np.full(g, 100.0),
        gpu_energy_mean_watts=np.full(g, 100.0),
        gpu_limit_watts=topology.guaranteed_watts.copy(),
        gpu_guaranteed_watts=topology.guaranteed_watts.copy(),
        gpu_confirmed_sequence=np.zeros(g, dtype=np.int64),
        gpu_leased=np.zeros(g, dtype=np.bool_),
        gpu_controlled=np.ones(g, dtype=np.bool_),
        meter_watts=np.full(d, np.nan),
        meter_time_ns=np.full(d, -1, dtype=np.int64),
        forecast_p99_watts=np.full(d, np.nan),
        budget_watts=topology.tree.rating_watts.copy(),
        override_cap_watts=np.full(g, np.nan),
        epoch=1,
        node_epoch=np.zeros(n, dtype=np.int64),
        leading=True,
        may_raise=True,
    )
    return replace(observed, **changes)


def seconds(count: float) -> int:
    """Nanoseconds."""
    return round(count * NS_PER_SECOND)


SETTINGS = PowerSettings()
