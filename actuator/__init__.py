"""The actuator: the one privileged process that writes limits, under leases."""

from actuator.lease_messages import (
    ActuatorPort,
    ActuatorStatus,
    ApplyResult,
    DeviceCommand,
    DeviceState,
    DeviceStatus,
    LeaseCommand,
    Operation,
)
from actuator.unix_socket.client import (
    ActuatorClient,
    ActuatorError,
    ActuatorProtocolError,
    ActuatorRefused,
    ActuatorUnavailable,
)

__all__ = [
    "ActuatorClient",
    "ActuatorError",
    "ActuatorPort",
    "ActuatorProtocolError",
    "ActuatorRefused",
    "ActuatorStatus",
    "ActuatorUnavailable",
    "ApplyResult",
    "DeviceCommand",
    "DeviceState",
    "DeviceStatus",
    "LeaseCommand",
    "Operation",
]
