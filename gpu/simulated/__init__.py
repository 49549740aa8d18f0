"""Simulated boards: the device port's first-class, in-memory adapter."""

from gpu.simulated.board_arrays import BoardBank
from gpu.simulated.board_regulation import Regulation
from gpu.simulated.board_spec import BoardSpec, node_boards
from gpu.simulated.late_limits import WriteDelays
from gpu.simulated.simulated_device import SimulatedDevice, SimulatedDriver

__all__ = [
    "BoardBank",
    "BoardSpec",
    "Regulation",
    "SimulatedDevice",
    "SimulatedDriver",
    "WriteDelays",
    "node_boards",
]
