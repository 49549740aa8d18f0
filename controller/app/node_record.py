"""What one node's agent has said of it, and which boards it has."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from controller.app.agent_reports import (
    UNIDENTIFIED,
    DeviceDescription,
    NodeSample,
    highest_since,
)
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

    So do the limits of one that hangs as another agent starts. Boards that the driver lists and
    that answer nobody have a name of ours, except for those that have told theirs in this boot;
    one that the driver lists no longer still hangs at its supply.
    """
    lost: tuple[DeviceDescription, ...] = ()
    listed = len(named) + hello.unidentified_devices
    if known is not None and known.boot_id == hello.boot_id:
        told = {device.uuid: device for device in known.devices if device.has_told_limits}
        named = tuple(d if d.has_told_limits else told.get(d.uuid, d) for d in named)
        uuids = {device.uuid for device in named}
        before = (device for device in known.devices if device.uuid not in uuids)
        lost = tuple(device for device in before if device.is_identified)
        listed = max(listed, len(known.devices))
    nameless = _nameless(hello.node, named, listed - len(named) - len(lost))
    count = len(named) + len(lost) + len(nameless)
    if count > MAX_BOARDS:
        raise InputError("hello.devices", f"at most {MAX_BOARDS} devices between two boots", count)
    return (*named, *lost, *nameless)


def _nameless(
    node: str, named: tuple[DeviceDescription, ...], count: int
) -> tuple[DeviceDescription, ...]:
    """So many boards of which nothing is known, named as a neighbour that told the most."""
    largest = max(named, key=lambda device: device.max_limit_watts)
    after = max(device.index for device in named) + 1
    return tuple(
        DeviceDescription(
            uuid=f"{UNIDENTIFIED}{node}/{number}",
            model=largest.model,
            index=after + number,
            default_limit_watts=0.0,
            min_limit_watts=0.0,
            max_limit_watts=0.0,
            max_clock_mhz=0,
        )
        for number in range(count)
    )
