"""Servers whose other load follows their boards: the row answers a watt with more or less."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulation.plant import ServerRow
from simulation.row_control.row_plant import RowPlant

Floats = NDArray[np.float64]


class FollowingLoad:
    """Load beside each server that moves by ``gain - 1`` watts with each watt of its boards.

    It counts from the mean draw of the seconds before ``follow``, so nothing jumps when it begins.

    Args:
        plant: Its servers are asked first; what they answer is changed.
    """

    SETTLED_STEPS = 80

    def __init__(self, plant: RowPlant) -> None:
        self._servers, self._advance = plant.servers, plant.servers.advance
        self._plant = plant
        self._gain = 1.0
        self._last: list[Floats] = []
        self._begin: Floats = np.zeros(plant.n_nodes)
        self._beside_watts = 0.0

    @classmethod
    def of(cls, plant: RowPlant) -> Self:
        """The load, standing beside the plant's servers from now on."""
        load = cls(plant)
        plant.servers.advance = load.advance  # type: ignore[method-assign]
        return load

    def follow(self, gain: float) -> None:
        """From now on the row moves by ``gain`` times what its boards move it by."""
        self._begin = np.mean(self._last[-self.SETTLED_STEPS :], axis=0)
        self._gain = gain

    def add(self, watts: float) -> None:
        """From now on servers together draw so much more, AC, that nobody declared."""
        self._beside_watts += watts

    def advance(self, gpu_watts: Floats, seconds: float) -> Floats:
        """As ``ServerRow.advance``, with the following load at row and racks, (n_domains,)."""
        domains = self._advance(gpu_watts, seconds)
        servers: ServerRow = self._servers
        self._last = [*self._last[-self.SETTLED_STEPS :], servers.gpu_watts]
        constants = self._plant.scenario.plant
        answer = (1.0 + constants.host_watts_per_gpu_watt) / constants.supply_efficiency
        moved = (self._gain - 1.0) * answer * (servers.gpu_watts - self._begin)
        moved = moved + self._beside_watts / self._plant.n_nodes
        return domains + self._plant.domain_sums(np.where(servers.on, moved, 0.0))
