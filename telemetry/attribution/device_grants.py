"""A container's hold on a GPU, as the kubelet gave it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """One container's hold on one device.

    Attributes:
        device_id: As the device plugin names it; a shared GPU (time slicing) has a ``::n`` tail.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device_id: str

    @property
    def device_uuid(self) -> str:
        """The GPU's or MIG instance's UUID."""
        return self.device_id.split("::", 1)[0]
