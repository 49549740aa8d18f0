"""A small topology and commands, without any object behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from controller.tick_values import Commands, Topology
from wattpack.power.domain_tree import BoolArray, BreakerCurve, DomainTree


def make_tree(names: tuple[str, ...] = ("row",)) -> DomainTree:
    n = len(names)
    return DomainTree(
        names=names,
        parent=np.array([-1] + [0] * (n - 1)),
        rating_watts=np.full(n, 10_000.0),
        external_watts=np.zeros(n),
        curves=(BreakerCurve(55.6, 1.864),) * n,
        max_load_ratio=np.full(n, 1.5),
        cooling_seconds=np.full(n, 600.0),
        phase_imbalance=np.ones(n),
        supply_efficiency=np.full(n, 0.94),
        max_raise_watts_per_second=np.full(n, 200.0),
        enforce=np.ones(n, dtype=np.bool_),
    )


def make_small_topology(nodes: tuple[str, ...] = ("node-1",), gpus_per_node: int = 2) -> Topology:
    n = len(nodes) * gpus_per_node
    return Topology(
        gpu_uuids=tuple(f"{node}-gpu-{i}" for node in nodes for i in range(gpus_per_node)),
        node_names=nodes,
        tree=make_tree(),
        node_of_gpu=np.repeat(np.arange(len(nodes)), gpus_per_node),
        domain_of_node=np.zeros(len(nodes), dtype=np.int64),
        min_limit_watts=np.full(n, 200.0),
        default_limit_watts=np.full(n, 700.0),
        guaranteed_watts=np.full(n, 300.0),
        floor_watts=np.full(n, 400.0),
        request_watts=np.full(n, 700.0),
        priority=np.zeros(n, dtype=np.int64),
        gang=np.full(n, -1),
        value_per_watt=np.ones(n),
        clock_lock=np.zeros(n, dtype=np.bool_),
        node_worst_watts=np.full(len(nodes), 500.0),
        node_host_unit=np.ones(len(nodes), dtype=np.bool_),
    )


def make_commands(
    topology: Topology, *, send: BoolArray, cap_watts: float, **changes: Any
) -> Commands:
    n = topology.n_gpus
    commands = Commands(
        epoch=1,
        sequence=1,
        ttl_ms=4000,
        send=send,
        nonce=np.full(topology.n_nodes, 7, dtype=np.uint64),
        cap_watts=np.full(n, cap_watts),
        lock_max_mhz=np.zeros(n, dtype=np.int64),
        guaranteed_watts=np.zeros(n),
    )
    return replace(commands, **changes)
