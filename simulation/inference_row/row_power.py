"""Servers around the GPUs and the row's rating, fixed before anything was tuned.

The GPUs' share of a server's power at full load decides how much a GPU cap can do for the row.
Published: "about half" (POLCA). 0.55 carries every line that is held against a figure, 0.45 to 0.65
are swept. What the GPUs bring beside themselves, and the supplies, are the twin's plant
(``data/plant.json``, from Acme's A100 servers); the constant rest is what the share leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capacity.phase_times import TDP_WATTS
from simulation.plant_constants import PlantConstants, frozen_plant
from wattpack.errors import InputError

Floats = NDArray[np.float64]

GPUS_PER_SERVER = 8
FULL_GPU_WATTS = GPUS_PER_SERVER * TDP_WATTS
RATED_SERVERS = 40
"""Servers that the published row was provisioned for."""

GPU_SHARE = 0.55
GPU_SHARES_SWEPT = (0.45, 0.5, 0.55, 0.6, 0.65)


@dataclass(frozen=True, slots=True)
class ServerPower:
    """One server; DC watts unless the name says AC.

    Attributes:
        gpu_share: GPUs' draw over the server's at full load, DC over AC watts.
        rated_ac_watts: Provisioned for one server; with ``of`` its draw with all GPUs at TDP,
            settled.
        base_watts: Without GPUs, fans at their lowest.
        plant: The twin's constants, with this server's base and fans.
    """

    gpu_share: float
    rated_ac_watts: float
    base_watts: float
    plant: PlantConstants

    @classmethod
    def of(cls, gpu_share: float = GPU_SHARE) -> ServerPower:
        """The server of that GPU share.

        Raises:
            InputError: for a share that leaves the rest of the server less than nothing.
        """
        plant = frozen_plant()
        fans = plant.fan_range_watts / plant.fan_full_gpu_watts * FULL_GPU_WATTS
        rated = FULL_GPU_WATTS / gpu_share if gpu_share > 0 else 0.0
        rest = (1.0 + plant.host_watts_per_gpu_watt) * FULL_GPU_WATTS + fans
        base = rated * plant.supply_efficiency - rest
        if not base > 0:
            raise InputError("gpu_share", "a share that leaves watts for the host", gpu_share)
        mine = plant.model_copy(
            update={
                "host_base_watts": base,
                "fan_range_watts": fans,
                "fan_full_gpu_watts": FULL_GPU_WATTS,
            }
        )
        return cls(gpu_share, rated, base, mine)

    @classmethod
    def of_nameplate(cls, rated_ac_watts: float, gpu_default_watts: float) -> ServerPower:
        """A server of the twin's own plant (DGX-H100), provisioned for so many AC watts.

        Raises:
            InputError: for a nameplate that is not positive.
        """
        if not rated_ac_watts > 0:
            raise InputError("rated_ac_watts", "AC watts above 0", rated_ac_watts)
        plant = frozen_plant()
        share = GPUS_PER_SERVER * gpu_default_watts / rated_ac_watts
        return cls(share, rated_ac_watts, plant.host_base_watts, plant)

    @property
    def row_rating_watts(self) -> float:
        """What the row's breaker was sized for, AC watts."""
        return RATED_SERVERS * self.rated_ac_watts


class ServersAround:
    """AC watts of servers from the watts of their GPUs, with fans that follow the heat.

    Args:
        power: Constants.
        gpu_watts: GPU watts of each server before the first step, (n_servers,).
    """

    def __init__(self, power: ServerPower, gpu_watts: Floats) -> None:
        self._power = power
        self._heat_watts = gpu_watts.copy()

    def step(self, gpu_watts: Floats, seconds: float) -> Floats:
        """Mean AC watts of each server over a step, (n_servers,)."""
        plant = self._power.plant
        follow = 1.0 - np.exp(-seconds / plant.fan_lag_seconds)
        self._heat_watts += follow * (gpu_watts - self._heat_watts)
        speed = np.minimum(1.0, self._heat_watts / plant.fan_full_gpu_watts)
        fans = plant.fan_range_watts * speed**plant.fan_exponent
        host = plant.host_base_watts + plant.host_watts_per_gpu_watt * gpu_watts + fans
        return np.asarray((gpu_watts + host) / plant.supply_efficiency, dtype=np.float64)
