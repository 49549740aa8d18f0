"""Servers, GPUs and pods as the topology is built from, and which domain feeds which server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wattpack.api import PowerDomain
from wattpack.errors import InputError
from wattpack.power.domain_tree import DomainTree

__all__ = ["GpuSpec", "NodeSpec", "PodSpec", "direct_domains", "is_member"]


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One board; limits as its driver gives them, watts of one GPU.

    Attributes:
        model: The driver's product name, or wattpack's model name.
        max_clock_mhz: 0 if unknown; then it is never clock-locked.
    """

    uuid: str
    model: str
    min_limit_watts: float
    default_limit_watts: float
    max_limit_watts: float
    max_clock_mhz: int = 0


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One server.

    Attributes:
        host_unit: The host sets guaranteed caps before kubelet starts (I10).
    """

    name: str
    gpus: tuple[GpuSpec, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    host_unit: bool = False


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Work on GPUs.

    Attributes:
        gang: Name of its gang; the GPUs of one pod are a gang of their own without it.
    """

    namespace: str
    name: str
    gpu_uuids: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    gang: str = ""


def direct_domains(
    tree: DomainTree, domains: Mapping[str, PowerDomain], nodes: Sequence[NodeSpec]
) -> list[int]:
    """The domain directly above each node, -1 for none.

    A node that is a member of several domains of one branch hangs below the deepest.

    Raises:
        InputError: for a node in two branches, and for a node or GPU that is listed twice.
    """
    _require_unique("nodes", [node.name for node in nodes])
    _require_unique("gpus", [gpu.uuid for node in nodes for gpu in node.gpus])
    depths = tree.depths()
    placed = []
    for node in nodes:
        matching = [i for i, name in enumerate(tree.names) if is_member(domains[name], node)]
        matching.sort(key=lambda i: depths[i])
        deepest = matching[-1] if matching else -1
        branch = set(tree.ancestors(deepest))
        strangers = [tree.names[i] for i in matching if i not in branch]
        if strangers:
            raise InputError(
                f"node {node.name}",
                "members of one branch of the power tree",
                [tree.names[deepest], *strangers],
            )
        placed.append(deepest)
    return placed


def is_member(domain: PowerDomain, node: NodeSpec) -> bool:
    """Whether the domain names the node, or selects it by all of its selector's labels."""
    members = domain.spec.members
    if node.name in members.node_names:
        return True
    selector = members.node_selector
    return bool(selector) and all(node.labels.get(k) == v for k, v in selector.items())


def _require_unique(field_name: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(field_name, "unique names", twice)
