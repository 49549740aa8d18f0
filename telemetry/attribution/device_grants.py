"""A container's hold on a GPU, as the kubelet gave it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """One container's hold on one device.

    Attributes:
        resource: Of a device plugin, or the driver's name for a device of a ResourceClaim.
        device_id: As the device plugin names it; a shared GPU (time slicing) has a ``::n`` tail.
            For a device of a claim its name in the driver's words, until its board is found.
        part: Only a part of the device: others may hold the rest unseen.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device_id: str
    part: bool = False

    @property
    def device_uuid(self) -> str:
        """The GPU's or MIG instance's UUID."""
        return self.device_id.split("::", 1)[0]
