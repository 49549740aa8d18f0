"""The actuator: the one privileged process that writes limits, under leases."""

from telemetry.actuator.client import (
    ActuatorClient,
    ActuatorError,
    ActuatorProtocolError,
    ActuatorRefused,
    ActuatorUnavailable,
)
from telemetry.actuator.messages import (
    ActuatorPort,
    ActuatorStatus,
    ApplyResult,
    DeviceCommand,
    DeviceState,
    DeviceStatus,
    LeaseCommand,
    Operation,
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
