"""The one table of GPU resource names: is this a GPU pod, how many GPUs, of which kind.

Sources of the names: NVIDIA's device plugin (``nvidia.com/gpu``, ``.shared`` with
``renameByDefault``, ``nvidia.com/mig-<profile>`` with the strategy ``mixed``), AMD's device plugin
(``amd.com/gpu``, ``amd.com/<compute>_<memory>`` with the naming strategy ``mixed``), and
``pod.spec.resourceClaims`` of dynamic resource allocation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wattpack.errors import InputError
from wattpack.object_names import GPU_PRODUCT_LABEL
from wattpack.quantities import LARGEST, parse_quantity

NVIDIA_GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
#: More than any server holds: the largest today have 16. Bounds the work that one node can cause.
MAX_BOARDS = 64
#: Counted in boards. The webhook's match condition lists the same names.
WHOLE_GPUS = (NVIDIA_GPU, AMD_GPU, "amd.com/spx_nps1")

NVIDIA_DRIVER = "gpu.nvidia.com"
#: Drivers of dynamic resource allocation whose devices are GPUs or parts of one (NVIDIA's
#: k8s-dra-driver-gpu, AMD's k8s-gpu-dra-driver).
GPU_DRIVERS = frozenset({NVIDIA_DRIVER, "gpu.amd.com"})

#: Labels by which NVIDIA's feature discovery says that ``nvidia.com/gpu`` counts less than boards.
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
#: Boards, where the resource may count slices.
COUNT_LABEL = "nvidia.com/gpu.count"


class GpuKind(StrEnum):
    """What one unit of a GPU resource is."""

    WHOLE = "whole"
    SLICE = "slice"
    SHARED = "shared"


_KINDS: tuple[tuple[re.Pattern[str], GpuKind], ...] = (
    (re.compile("|".join(map(re.escape, WHOLE_GPUS))), GpuKind.WHOLE),
    (re.compile(r"nvidia\.com/(gpu|mig-.+)\.shared"), GpuKind.SHARED),
    (re.compile(r"nvidia\.com/mig-.+"), GpuKind.SLICE),
    (re.compile(r"amd\.com/[a-z]px_nps\d+"), GpuKind.SLICE),
)


def gpu_kind(resource: str) -> GpuKind | None:
    """What a unit of the resource is; None for everything that is no GPU."""
    return next((kind for name, kind in _KINDS if name.fullmatch(resource)), None)


@dataclass(frozen=True, slots=True)
class GpuDemand:
    """What an amount of resources means in GPUs.

    Attributes:
        whole: Boards.
        parts: Slices and shares, by resource name.
        claims: Names of ``spec.resourceClaims``, which may or may not be GPUs.
    """

    whole: int
    parts: Mapping[str, int]
    claims: tuple[str, ...] = ()

    @property
    def present(self) -> bool:
        """It is about GPUs at all, as far as resource names tell."""
        return bool(self.whole or self.parts)

    @property
    def most_boards(self) -> int:
        """No more boards than this: each slice or share might be on a board of its own."""
        return self.whole + sum(self.parts.values())


def gpu_demand(amounts: Mapping[str, int], claims: Iterable[Mapping[str, Any]] = ()) -> GpuDemand:
    """The GPUs among resource amounts, as ``wattpack.quantities`` counts them.

    Args:
        amounts: Units by resource name, of a pod or a node.
        claims: ``spec.resourceClaims`` of the pod.
    """
    kinds = {name: gpu_kind(name) for name, amount in amounts.items() if amount}
    return GpuDemand(
        whole=sum(amounts[name] for name, kind in kinds.items() if kind is GpuKind.WHOLE),
        parts={n: amounts[n] for n, k in kinds.items() if k in (GpuKind.SLICE, GpuKind.SHARED)},
        claims=tuple(str(claim.get("name", "")) for claim in claims),
    )


def board_count(node: Mapping[str, Any]) -> int:
    """Boards in a server as its Node object says; 0 for one that offers no GPUs at all.

    Slices and shares count as a board each unless a label counts the boards. What cannot be read
    counts as more than any server has.
    """
    status = node.get("status") or {}
    capacity = status.get("capacity") or status.get("allocatable") or {}
    labels = (node.get("metadata") or {}).get("labels") or {}
    offered = {
        name: _at_its_most(name, text)
        for name, text in capacity.items()
        if gpu_kind(name) is not None and text is not None
    }
    demand = gpu_demand(offered)
    if COUNT_LABEL not in labels:
        return demand.most_boards
    return max(_at_its_most(COUNT_LABEL, labels[COUNT_LABEL]), _whole_boards(demand, labels))


def _at_its_most(name: str, text: object) -> int:
    try:
        return parse_quantity(name, text)
    except InputError:
        return LARGEST


def _whole_boards(demand: GpuDemand, labels: Mapping[str, str]) -> int:
    return demand.whole if counts_whole_boards(labels) else 0


def counts_whole_boards(labels: Mapping[str, str]) -> bool:
    """Whether a node's ``nvidia.com/gpu`` are boards, not replicas or MIG instances of one name."""
    replicas = labels.get(REPLICAS_LABEL, "1")
    single = labels.get(MIG_STRATEGY_LABEL) == "single"
    return replicas in ("", "0", "1") and not (
        single and "-MIG-" in labels.get(GPU_PRODUCT_LABEL, "")
    )
