"""What lies outside the GPU's memory, one GPU's share: PCIe, host memory, NVMe, NIC and cores.

One roofline serves all entries that offload: a phase's traffic takes as long as its slowest path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from capacity.catalogue.workload_schema import Traffic
from wattpack.units import require_number

HOST: Final = "host"
STORAGE: Final = "storage"
NETWORK: Final = "network"


@dataclass(frozen=True, slots=True)
class HostRoofline:
    """Attained rates of one GPU's share of a server with eight; bytes a second.

    Assumed for a server with PCIe 5.0, two sockets of DDR5 and one 400 Gb/s NIC a GPU: 87 % of
    PCIe's 63 GB/s, an eighth of some 480 GB/s of triad (McCalpin's STREAM), one data-centre
    NVMe drive a GPU at its rated sequential rate, 90 % of the NIC, 80 % of the links of a GPU
    (own collectives on 2 H200: 367 of 450 GB/s of an all-gather's receive).
    """

    pcie_bytes_per_second: float = 55e9
    host_memory_bytes_per_second: float = 60e9
    storage_bytes_per_second: float = 6.5e9
    nic_bytes_per_second: float = 45e9
    link_bytes_per_second: float = 360e9

    def __post_init__(self) -> None:
        for field in fields(self):
            require_number(field.name, getattr(self, field.name), exclusive_minimum=0)

    def seconds(self, traffic: Traffic, cores: float) -> Mapping[str, float]:
        """How long each of host, storage and network needs.

        Args:
            cores: Busy host cores a GPU.
        """
        host = (
            traffic.pcie_bytes / self.pcie_bytes_per_second,
            traffic.host_memory_bytes / self.host_memory_bytes_per_second,
            traffic.core_seconds / max(cores, 1.0),
        )
        network = (
            traffic.nic_bytes / self.nic_bytes_per_second,
            traffic.link_bytes / self.link_bytes_per_second,
        )
        return {
            HOST: max(host),
            STORAGE: traffic.storage_bytes / self.storage_bytes_per_second,
            NETWORK: max(network),
        }
