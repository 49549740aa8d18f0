"""What a host offers beside CPU, memory and boards: bandwidths and NVMe, as resources of a node.

They are resources like others (ADR 11) but for one thing: a node that does not state one of them is
not limited by it, because nothing measures it on most nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = [
    "HOST_RESOURCES",
    "MAX_HOST_AMOUNT",
    "NOT_LIMITED",
    "HostResource",
    "amount_text",
    "gpus_text",
]


class HostResource(NamedTuple):
    """One of them.

    Attributes:
        annotation: By which pods ask for it and nodes state it, a Kubernetes quantity.
        per_unit: Of the quantity, how much is one unit of the snapshot.
        words: What it is called.
        unit: What a thousand units are called.
    """

    annotation: str
    per_unit: int
    words: str
    unit: str


HOST_RESOURCES: Final[Mapping[str, HostResource]] = {
    "wattpack.io/memory-bandwidth-megabytes-per-second": HostResource(
        "wattpack.io/memory-bandwidth", 10**6, "memory bandwidth", "GB/s"
    ),
    "wattpack.io/pcie-bandwidth-megabytes-per-second": HostResource(
        "wattpack.io/pcie-bandwidth", 10**6, "PCIe bandwidth", "GB/s"
    ),
    "wattpack.io/nvme-megabytes": HostResource("wattpack.io/nvme", 10**6, "NVMe", "GB"),
    "wattpack.io/nvme-bandwidth-megabytes-per-second": HostResource(
        "wattpack.io/nvme-bandwidth", 10**6, "NVMe bandwidth", "GB/s"
    ),
    "wattpack.io/network-bandwidth-megabits-per-second": HostResource(
        "wattpack.io/network-bandwidth", 10**6, "network bandwidth", "Gbit/s"
    ),
}
"""By name in snapshots."""

MAX_HOST_AMOUNT: Final = 2**27
"""Of one pod: 134 TB, or as much a second."""

NOT_LIMITED: Final = 2**45
"""More than 100,000 pods can ask for together."""


def gpus_text(gpus: float) -> str:
    """So many GPUs, for people: ``1 GPU``, ``2.5 GPUs``."""
    return f"{gpus:g} GPU{'s' * (gpus != 1)}"


def amount_text(name: str, amount: int) -> str:
    """So much of a resource, for people: ``40 GB/s of memory bandwidth``."""
    if name not in HOST_RESOURCES:
        return f"{amount:,} of {name}"
    known = HOST_RESOURCES[name]
    return f"{amount / 1000:,.10g} {known.unit} of {known.words}"
