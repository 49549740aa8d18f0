"""Simulated boards: the device port's first-class, in-memory adapter."""

from telemetry.simulated.boards import BoardBank
from telemetry.simulated.devices import SimulatedDevice, SimulatedDriver
from telemetry.simulated.spec import BoardSpec

__all__ = ["BoardBank", "BoardSpec", "SimulatedDevice", "SimulatedDriver"]
