"""Servers, GPUs and pods as the topology is built from, and which domain feeds which server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from capacity.catalogue.pod_works import KnownWork
from controller.seen_work import SeenWork
from wattpack.errors import InputError
from wattpack.power.power_grid import Feeding, PowerGrid

__all__ = [
    "GpuSpec",
    "NodeSpec",
    "PodSpec",
    "feedings",
    "require_per_gpu_watts",
]

# No GPU board takes this much; a larger number is in milliwatts.
_MILLIWATTS_FROM = 5000.0


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One board; limits as its driver gives them, watts of one GPU.

    Attributes:
        model: The driver's product name, or wattpack's model name.
        max_clock_mhz: 0 if unknown; then it is never clock-locked.
        seen: What its units tell of the work on it; None where they tell nothing.
    """

    uuid: str
    model: str
    min_limit_watts: float
    default_limit_watts: float
    max_limit_watts: float
    max_clock_mhz: int = 0
    seen: SeenWork | None = None


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
        work: What it does, by its label or its owner's profile; None where nobody knows.
    """

    namespace: str
    name: str
    gpu_uuids: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    gang: str = ""
    work: KnownWork | None = None


def require_per_gpu_watts(field: str, watts: float, max_limit_watts: float) -> float:
    """The watts, if they can be one board's (I8).

    Raises:
        InputError: if they look like milliwatts or like the total of a node.
    """
    if watts > _MILLIWATTS_FROM:
        raise InputError(field, "watts of one GPU (this looks like milliwatts)", watts)
    if watts > 2.0 * max_limit_watts:
        raise InputError(field, f"watts of one GPU, at most {max_limit_watts:g} W", watts)
    if not watts > 0.0:
        raise InputError(field, "watts of one GPU > 0", watts)
    return watts


def feedings(grid: PowerGrid, nodes: Sequence[NodeSpec], *, strict: bool = True) -> list[Feeding]:
    """Which domain feeds each node.

    Args:
        grid: Which domain feeds a node.
        nodes: Servers.
        strict: Refuse a node in two branches; otherwise it counts below the deepest.

    Raises:
        InputError: for a node in two branches, and for a node or GPU that is listed twice.
    """
    _require_unique("nodes", [node.name for node in nodes])
    _require_unique("gpus", [gpu.uuid for node in nodes for gpu in node.gpus])
    found = [grid.feeding(node.name, node.labels) for node in nodes]
    for node, feeding in zip(nodes, found, strict=True) if strict else ():
        feeding.require_one_branch(node.name)
    return found


def _require_unique(field_name: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InputError(field_name, "unique names", twice)
