"""Boards that are a few constants: the benchmark's whole path without a GPU, in virtual time."""

from capacity.simulated_backend.bench_board import BoardConstants, PlantedFault
from capacity.simulated_backend.simulated_backend import SimulatedBackend, SimulatedMeter

__all__ = ["BoardConstants", "PlantedFault", "SimulatedBackend", "SimulatedMeter"]
