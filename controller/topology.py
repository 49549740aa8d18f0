"""From objects to arrays: the power tree, who hangs where, and what each GPU is owed.

PowerDomain ──> PowerGrid ──┐
nodes, pods, profiles ──────┼──> build_topology ──> Topology   (guaranteed caps sized by I1)
PowerPolicy ────────────────┘

Which changed PowerDomains get here is decided in ``controller.acceptance``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from capacity.gpu_profile import GpuProfile
from controller.membership import (
    GpuSpec,
    NodeSpec,
    PodSpec,
    direct_domains,
    require_per_gpu_watts,
)
from controller.policies import owed
from controller.tick_values import Topology
from wattpack.api import PowerDomain, PowerPolicy
from wattpack.errors import InputError
from wattpack.power.domain_tree import FloatArray, IntArray
from wattpack.power.feasibility import LoadTree, size_guaranteed_caps, size_where_feasible
from wattpack.power.power_grid import PowerGrid

__all__ = [
    "GpuSpec",
    "NodeSpec",
    "PodSpec",
    "build_grid",
    "build_topology",
]


def build_grid(domains: Sequence[PowerDomain]) -> PowerGrid:
    """The grid of domains that are judged together.

    Raises:
        InputError: for no domain, an unknown parent, a cycle or a duplicate name.
    """
    if not domains:
        raise InputError("domains", "at least one PowerDomain", 0)
    specs = {domain.name: domain.spec for domain in domains}
    if len(specs) != len(domains):
        raise InputError("metadata.name", "unique domain names", [d.name for d in domains])
    return PowerGrid.of(specs)


def build_topology(
    domains: Sequence[PowerDomain],
    policies: Sequence[PowerPolicy],
    nodes: Sequence[NodeSpec],
    pods: Sequence[PodSpec],
    profiles: Mapping[str, GpuProfile],
    *,
    strict: bool = True,
) -> Topology:
    """Everything that the controller core needs to know of the objects.

    Nodes of no domain are left out. In a domain that only watches, I1 sizes nothing.

    Args:
        domains: The power tree.
        policies: Order and floors.
        nodes: Servers with their GPUs.
        pods: Work on GPUs.
        profiles: By the driver's product name and by model.
        strict: Refuse a tree in which I1 cannot hold, or a node in two branches; otherwise what
            hangs below an overfull breaker gets the hardware minimum.

    Raises:
        InputError: for an unknown GPU model, a suspicious unit, a node in two branches.
        SafetyError: if I1 cannot hold.
    """
    grid = build_grid(domains)
    placed = direct_domains(grid, nodes, strict=strict)
    members = [node for node, domain in zip(nodes, placed, strict=True) if domain >= 0]
    gpus = [gpu for node in members for gpu in node.gpus]
    found = [_profile(gpu, profiles) for gpu in gpus]
    domain_of_node = np.array([domain for domain in placed if domain >= 0], dtype=np.int64)
    node_of_gpu = np.array([i for i, n in enumerate(members) for _ in n.gpus], dtype=np.int64)
    load = LoadTree(grid.tree, domain_of_node, node_of_gpu)
    default = np.array([gpu.default_limit_watts for gpu in gpus])
    minimum = np.array([gpu.min_limit_watts for gpu in gpus])
    due = owed(gpus, found, pods, policies)
    floor = np.clip(due.floor_watts, minimum, due.request_watts)
    worst = _servers_without_gpus(grid, domain_of_node)
    unheld = np.array([not node.host_unit for node in members], dtype=np.bool_)
    # A clock lock counts as no reduction (I2): such a GPU can be held at its default limit only.
    lowest = np.where(due.clock_lock, default, minimum)
    enforced = load.only_where(load.tree.enforce)
    size = size_guaranteed_caps if strict else size_where_feasible
    guaranteed = size(enforced, lowest, np.maximum(floor, lowest), default, worst, unheld)
    return Topology(
        gpu_uuids=tuple(gpu.uuid for gpu in gpus),
        node_names=tuple(node.name for node in members),
        tree=grid.tree,
        node_of_gpu=node_of_gpu,
        domain_of_node=domain_of_node,
        min_limit_watts=minimum,
        default_limit_watts=default,
        guaranteed_watts=guaranteed,
        floor_watts=floor,
        request_watts=due.request_watts,
        priority=due.priority,
        gang=due.gang,
        value_per_watt=due.value_per_watt,
        clock_lock=due.clock_lock,
        node_worst_watts=worst,
        node_host_unit=~unheld,
        max_clock_mhz=np.array([gpu.max_clock_mhz for gpu in gpus], dtype=np.int64),
    )


def _servers_without_gpus(grid: PowerGrid, domain_of_node: IntArray) -> FloatArray:
    """Worst watts of each server, declared AC at the breaker, as DC equivalents."""
    specs = [grid.specs[name].non_gpu_per_node for name in grid.tree.names]
    worst = np.array([s.worst_watts for s in specs], dtype=np.float64) * grid.efficiency
    return worst[domain_of_node]


def _profile(gpu: GpuSpec, profiles: Mapping[str, GpuProfile]) -> GpuProfile:
    """The GPU's profile, after its limits were seen to be one board's."""
    profile = profiles.get(gpu.model)
    if profile is None:
        raise InputError(f"gpu[{gpu.uuid}].model", "a GPU model with a profile", gpu.model)
    for field in ("min_limit_watts", "default_limit_watts", "max_limit_watts"):
        watts = getattr(gpu, field)
        require_per_gpu_watts(f"gpu[{gpu.uuid}].{field}", watts, profile.max_limit_watts)
    if not gpu.min_limit_watts <= gpu.default_limit_watts <= gpu.max_limit_watts:
        limits = (gpu.min_limit_watts, gpu.default_limit_watts, gpu.max_limit_watts)
        raise InputError(f"gpu[{gpu.uuid}].default_limit_watts", "min <= default <= max", limits)
    return profile
