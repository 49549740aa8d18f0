"""What one node's agent has said of it, and which boards it has."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from controller.app.agent_reports import DeviceDescription, NodeSample, highest_since
from wattpack.errors import InputError
from wattpack.gpu_resources import MAX_BOARDS
from wattpack.power.domain_tree import FloatArray
from wattpack.wire.v1 import power_pb2

__all__ = ["NodeRecord", "devices_of"]


@dataclass(slots=True)
class NodeRecord:
    """A node that has said hello.

    Attributes:
        instance: Of the agent process that is heard.
        joined: Number of its first hello; earlier nodes have the older claim to a UUID.
        newest_sequence: Of the present stream's reports, -1 before the first: an agent that was
            started anew counts from the beginning.
    """

    name: str
    boot_id: str
    host_unit: bool
    devices: tuple[DeviceDescription, ...]
    instance: str = ""
    joined: int = 0
    newest_sequence: int = -1
    rebooted: bool = False
    sample: NodeSample | None = None
    energy_history: deque[tuple[int, list[float]]] = field(default_factory=lambda: deque(maxlen=64))
    energy_mean_watts: FloatArray = field(default_factory=lambda: np.zeros(0))
    #: Over all reports since the last tick, None without one.
    highest_watts: FloatArray | None = None

    def take_highest(self, previous: NodeSample | None, sample: NodeSample) -> None:
        """Add the highest readings of the time that a new report covers."""
        n = len(sample.draw_watts)
        told = np.full(n, np.nan) if previous is None else highest_since(previous, sample)
        so_far = self.highest_watts
        self.highest_watts = told if so_far is None else np.maximum(so_far, told)


def devices_of(
    hello: power_pb2.Hello, named: tuple[DeviceDescription, ...], known: NodeRecord | None
) -> tuple[DeviceDescription, ...]:
    """The devices that a node has once its hello is taken: boards stay until it boots again.

    So do the limits of one that hangs as another agent starts.
    """
    if known is None or known.boot_id != hello.boot_id:
        return named
    told = {device.uuid: device for device in known.devices if device.has_told_limits}
    named = tuple(d if d.has_told_limits else told.get(d.uuid, d) for d in named)
    return _with_lost_devices(named, known.devices)


def _with_lost_devices(
    named: tuple[DeviceDescription, ...], known: tuple[DeviceDescription, ...]
) -> tuple[DeviceDescription, ...]:
    """The named devices and those that were known before and are missing now."""
    uuids = {device.uuid for device in named}
    lost = tuple(device for device in known if device.uuid not in uuids)
    if len(named) + len(lost) > MAX_BOARDS:
        expected = f"at most {MAX_BOARDS} devices between two boots"
        raise InputError("hello.devices", expected, len(named) + len(lost))
    return (*named, *lost)
