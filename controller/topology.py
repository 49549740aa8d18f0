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
    feedings,
    require_per_gpu_watts,
)
from controller.policies import owed
from controller.tick_values import Topology
from wattpack.api import PowerDomain, PowerPolicy
from wattpack.errors import InputError
from wattpack.power.feasibility import LoadTree, size_guaranteed_caps, size_where_feasible
from wattpack.power.host_line import host_lines
from wattpack.power.member_claims import MemberClaim
from wattpack.power.power_grid import PowerGrid

__all__ = [
    "GpuSpec",
    "NodeSpec",
    "PodSpec",
    "build_grid",
    "build_topology",
    "topology_of",
]


def build_grid(
    domains: Sequence[PowerDomain], claims: Mapping[str, MemberClaim] | None = None
) -> PowerGrid:
    """The grid of domains that are judged together.

    Args:
        domains: What runs, or shall.
        claims: What the newest specs say of members, by name; see ``PowerGrid.of``.

    Raises:
        InputError: for no domain, an unknown parent, a cycle or a duplicate name.
    """
    if not domains:
        raise InputError("domains", "at least one PowerDomain", 0)
    specs = {domain.name: domain.spec for domain in domains}
    if len(specs) != len(domains):
        raise InputError("metadata.name", "unique domain names", [d.name for d in domains])
    return PowerGrid.of(specs, claims or {})


def build_topology(
    domains: Sequence[PowerDomain],
    policies: Sequence[PowerPolicy],
    nodes: Sequence[NodeSpec],
    pods: Sequence[PodSpec],
    profiles: Mapping[str, GpuProfile],
    *,
    strict: bool = True,
) -> Topology:
    """``topology_of`` the grid of some domains.

    Raises:
        InputError: as ``build_grid`` and ``topology_of`` do.
        SafetyError: if I1 cannot hold.
    """
    return topology_of(build_grid(domains), policies, nodes, pods, profiles, strict=strict)


def topology_of(
    grid: PowerGrid,
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
        grid: The power tree.
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
    placed = feedings(grid, nodes, strict=strict)
    members = [node for node, feeding in zip(nodes, placed, strict=True) if feeding.domain]
    fed = [feeding for feeding in placed if feeding.domain]
    gpus = [gpu for node in members for gpu in node.gpus]
    found = [_profile(gpu, profiles) for gpu in gpus]
    domain_of_node = np.array([grid.index(feeding.domain) for feeding in fed], dtype=np.int64)
    node_of_gpu = np.array([i for i, n in enumerate(members) for _ in n.gpus], dtype=np.int64)
    load = LoadTree(grid.tree, domain_of_node, node_of_gpu)
    default = np.array([gpu.default_limit_watts for gpu in gpus])
    minimum = np.array([gpu.min_limit_watts for gpu in gpus])
    due = owed(gpus, found, pods, policies)
    floor = np.clip(due.floor_watts, minimum, due.request_watts)
    dc_per_ac = grid.efficiency[domain_of_node]
    worst = np.array([grid.host_watts(feeding) for feeding in fed], np.float64) * dc_per_ac
    idle = np.array([grid.host_idle_watts(feeding) for feeding in fed], np.float64) * dc_per_ac
    unheld = np.array([not node.host_unit for node in members], dtype=np.bool_)
    lines = host_lines([grid.host_line(feeding) for feeding in fed], dc_per_ac)
    enforced = load.only_where(load.tree.enforce)
    size = size_guaranteed_caps if strict else size_where_feasible
    guaranteed = size(enforced, minimum, floor, default, worst, unheld, lines)
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
        lock_law=due.lock_law,
        value_steps_watts=due.value_steps_watts,
        shed_clock_share=due.shed_clock_share,
        node_idle_watts=idle,
        host_lines=lines,
    )


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
