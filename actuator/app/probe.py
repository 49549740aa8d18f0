"""``wattpack actuator --check``: what the kubelet asks to learn whether an actuator is alive."""

from __future__ import annotations

from pathlib import Path

from actuator.lease_messages import DeviceState
from actuator.unix_socket.client import ActuatorClient
from wattpack.clock import Clock
from wattpack.errors import TransientError


class NotAlive(TransientError):
    """The actuator answers, but no board answers it."""


def check(socket: Path, clock: Clock) -> str:
    """What the actuator says of its boards, in one line.

    Raises:
        ActuatorError: nobody answers on the socket within the deadline.
        NotAlive: every board is unreadable.
    """
    client = ActuatorClient(socket, clock)
    try:
        status = client.status()
    finally:
        client.close()
    states = [row.state for row in status.devices.values()]
    if states and all(state is DeviceState.UNREADABLE for state in states):
        raise NotAlive(f"{socket}: none of {len(states)} GPUs answers")
    counts = ", ".join(f"{states.count(state)} {state}" for state in DeviceState)
    return f"epoch {status.highest_epoch}, GPUs: {counts}"
