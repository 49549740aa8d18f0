"""Simulated boards: the device port's first-class, in-memory adapter."""

from gpu.simulated.board_arrays import BoardBank
from gpu.simulated.board_spec import BoardSpec, node_boards
from gpu.simulated.simulated_device import SimulatedDevice, SimulatedDriver

__all__ = ["BoardBank", "BoardSpec", "SimulatedDevice", "SimulatedDriver", "node_boards"]
