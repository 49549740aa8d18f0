"""Servers around the GPUs compiled, the same to the last bit.

``ServerRow`` stays the form to read and the oracle. The fans' power and the row's sum stay with
numpy: its power differs from the C library's in the last bit, and it adds in an order of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from simulation.plant import ROW, Bools, Floats, Integers, ServerRow
from simulation.scenario import Scenario
from wattpack.compiled import AVAILABLE, compiled

NOISE_STEPS: Final = 128
"""So many steps' noise is drawn at once, in the order in which steps would draw it."""


class _Lags(NamedTuple):
    """What follows from a step's length alone: of the fans to its middle, and of the noise."""

    seconds: float
    half: float
    keep: float
    new: float


@compiled
def _follow(
    gpu_watts: Floats, node_of_gpu: Integers, half: float, fan_full_gpu_watts: float,
    into: Floats, heat: Floats,
) -> None:  # fmt: skip
    """Watts of each server's GPUs, and the speed of its fans at the step's middle; (2, n)."""
    gpu, speed = into[0], into[1]
    gpu[:] = 0.0
    for i in range(len(gpu_watts)):
        gpu[node_of_gpu[i]] += gpu_watts[i]
    for k in range(len(gpu)):
        lag = heat[k] - gpu[k]
        speed[k] = min(1.0, (gpu[k] + lag * half) / fan_full_gpu_watts)
        heat[k] = gpu[k] + lag * half * half


@compiled
def _add_up(  # noqa: PLR0913
    gpu: Floats, fan_power: Floats, constants: Floats, noise: Floats, normal: Floats, on: Bools,
    keep: float, new: float, per_gpu_watt: float, efficiency: float, rack_of_node: Integers,
    servers: Floats, racks: Floats,
) -> None:  # fmt: skip
    """Watts of each server's GPUs and host, and at its supply; (3, n).

    Args:
        gpu: Watts of all GPUs of a server.
        fan_power: Of each server's fans over its range.
        constants: Base and fan range, (2, n).
        noise: Of the last step; of this one afterwards.
        normal: Drawn for this step.
        keep, new: How much of the noise stays, and comes.
        servers: What is returned.
        racks: Sums over servers, (n_racks,).
    """
    racks[:] = 0.0
    for k in range(len(gpu)):
        noise[k] = keep * noise[k] + new * normal[k]
        followed = constants[0, k] + per_gpu_watt * gpu[k]
        host = (followed + constants[1, k] * fan_power[k]) * (1.0 + noise[k])
        servers[0, k] = gpu[k] if on[k] else 0.0
        servers[1, k] = host if on[k] else 0.0
        servers[2, k] = (servers[0, k] + servers[1, k]) / efficiency
        racks[rack_of_node[k]] += servers[2, k]


class CompiledServerRow(ServerRow):
    """``ServerRow`` with compiled steps; arguments are the same."""

    def __init__(
        self, scenario: Scenario, node_of_gpu: Integers, generator: np.random.Generator
    ) -> None:
        super().__init__(scenario, node_of_gpu, generator)
        self._constants = np.array([self.base_watts, self.fan_watts])
        self._lags = _Lags(0.0, 1.0, 1.0, 0.0)
        self._normals = np.zeros((0, len(self.on)))
        self._next_normal = 0

    def advance(self, gpu_watts: Floats, seconds: float) -> Floats:
        """As ``ServerRow.advance``."""
        plant, lags = self._plant, self._lags_of(seconds)
        n = len(self.on)
        followed, servers = np.empty((2, n)), np.empty((3, n))
        _follow(
            gpu_watts, self._node_of_gpu, lags.half, plant.fan_full_gpu_watts, followed,
            self._heat_watts,
        )  # fmt: skip
        watts = np.empty(1 + self._n_racks)
        _add_up(
            followed[0], followed[1] ** plant.fan_exponent, self._constants, self._noise,
            self._normal(), self.on, lags.keep, lags.new, plant.host_watts_per_gpu_watt,
            plant.supply_efficiency, self._rack_of_node, servers, watts[1:],
        )  # fmt: skip
        self.gpu_watts, self.host_watts, self.ac_watts = servers
        watts[ROW] = watts[1:].sum() + self._external_watts
        self.domain_watts = watts
        return watts

    def _normal(self) -> Floats:
        if self._next_normal == len(self._normals):
            self._normals = self._generator.standard_normal((NOISE_STEPS, len(self.on)))
            self._next_normal = 0
        self._next_normal += 1
        row: Floats = self._normals[self._next_normal - 1]
        return row

    def _lags_of(self, seconds: float) -> _Lags:
        if seconds != self._lags.seconds:
            plant = self._plant
            half = np.exp(-0.5 * seconds / plant.fan_lag_seconds)
            keep = np.exp(-seconds / plant.host_noise_lag_seconds)
            new = plant.host_noise_ratio * np.sqrt(1.0 - keep * keep)
            self._lags = _Lags(seconds, float(half), float(keep), float(new))
        return self._lags


def fastest_server_row(
    scenario: Scenario, node_of_gpu: Integers, generator: np.random.Generator
) -> ServerRow:
    """The compiled servers where numba is there, else the same in numpy."""
    made = CompiledServerRow if AVAILABLE else ServerRow
    return made(scenario, node_of_gpu, generator)
