"""Servers around the GPUs: base, regulators, fans and supplies, up to the watts at each breaker.

    GPU watts ─┬─ sum per server ──> k * GPU + fans(heat) + base ──┐
               └───────────────────────────────────────────────────┴─ / efficiency ──> rack ──> row

Domain 0 is the row; domains 1 to n are its racks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulation.compiled_breakers import CompiledBreakers
from simulation.plant_breakers import Breakers
from simulation.scenario import Scenario
from simulation.trip_bands import TripBands
from wattpack.compiled import AVAILABLE
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

ROW = 0
_BREAKER_STREAM = 7


def rack_of_nodes(scenario: Scenario) -> Integers:
    """Rack of each server, dealt so that every rack gets its share of each type, (n_nodes,)."""
    return np.arange(scenario.row.servers, dtype=np.int64) % scenario.row.racks


def domain_names(scenario: Scenario) -> tuple[str, ...]:
    """The row, then its racks."""
    return ("row", *(f"rack-{i}" for i in range(scenario.row.racks)))


def node_names(scenario: Scenario) -> tuple[str, ...]:
    """Servers in order."""
    return tuple(f"node-{i:03d}" for i in range(scenario.row.servers))


def breakers_of(scenario: Scenario) -> Breakers:
    """The row's and the racks' breakers; their places in the band are drawn from the seed."""
    plant, racks = scenario.plant, scenario.row.racks
    made = CompiledBreakers if AVAILABLE else Breakers
    return made(
        np.array([scenario.row_rating_watts] + [scenario.rack_rating_watts] * racks),
        TripBands(
            [plant.row_breaker_points] + [plant.rack_breaker_points] * racks,
            plant.breaker_tolerance_ratio,
            np.random.default_rng((scenario.seed, _BREAKER_STREAM)),
        ),
        cooling_seconds=plant.breaker_cooling_seconds,
        magnetic_ratio=plant.breaker_magnetic_ratio,
        feeds=scenario.row.fed_by,
        required_feeds=scenario.row.carried_by,
    )


def check_ratings(scenario: Scenario, min_limit_watts: Floats, node_of_gpu: Integers) -> None:
    """Each breaker carries its servers while every GPU is at its lowest limit.

    Below that no cap can help: every run would end in the same trip.

    Args:
        scenario: Ratings and constants.
        min_limit_watts: Lowest settable limit, (n_gpus,).
        node_of_gpu: Server of each GPU, (n_gpus,).

    Raises:
        InputError: naming the rating and what it would have to be.
    """
    row, plant = scenario.row, scenario.plant
    gpus = np.bincount(node_of_gpu, min_limit_watts, row.servers)
    servers = (gpus + plant.host_base_watts) / plant.supply_efficiency
    racks = np.bincount(rack_of_nodes(scenario), servers, row.racks)
    for name, watts, least in (
        ("rack_rated_servers", scenario.rack_rating_watts, float(racks.max())),
        ("rated_servers", scenario.row_rating_watts, float(racks.sum()) + row.external_watts),
    ):
        if watts < least:
            needed = np.ceil(10.0 * least / row.rated_server_watts) / 10.0
            why = f"its servers draw {least / 1000:.1f} kW at their lowest limits"
            raise InputError(f"row.{name}", f"at least {needed:g}: {why}", getattr(row, name))


class ServerRow:
    """Power of all servers from the power of their GPUs.

    Args:
        scenario: Constants and shape.
        node_of_gpu: Server of each GPU, (n_gpus,).
        generator: Of what differs from server to server, and of the host's noise.
    """

    def __init__(
        self, scenario: Scenario, node_of_gpu: Integers, generator: np.random.Generator
    ) -> None:
        self._plant = scenario.plant
        self._node_of_gpu = node_of_gpu
        self._generator = generator
        self._rack_of_node = rack_of_nodes(scenario)
        self._n_racks = scenario.row.racks
        self._external_watts = scenario.row.external_watts
        n = scenario.row.servers
        self._draw_servers(n)
        self._heat_watts = np.zeros(n)  # GPU watts as the fans have followed them
        self._noise = self._plant.host_noise_ratio * generator.standard_normal(n)
        self.on: Bools = np.ones(n, dtype=np.bool_)
        self.gpu_watts = np.zeros(n)
        self.host_watts = self.base_watts.copy()
        self.ac_watts = np.zeros(n)
        self.domain_watts = np.zeros(1 + self._n_racks)

    def _draw_servers(self, n: int) -> None:
        plant, uniform = self._plant, self._generator.uniform
        base, fans = plant.host_base_spread_ratio, plant.fan_range_spread_ratio
        self.base_watts = plant.host_base_watts * uniform(1.0 - base, 1.0 + base, n)
        self.fan_watts = plant.fan_range_watts * uniform(1.0 - fans, 1.0 + fans, n)

    def advance(self, gpu_watts: Floats, seconds: float) -> Floats:
        """Mean AC watts at every domain over a step, (n_domains,).

        Args:
            gpu_watts: Mean draw of each GPU over the step, (n_gpus,).
            seconds: Its length.
        """
        plant = self._plant
        n = len(self.on)
        gpu: Floats = np.bincount(self._node_of_gpu, gpu_watts, n).astype(np.float64, copy=False)
        host = self._host(gpu, seconds)
        if not self.on.all():
            gpu, host = np.where(self.on, gpu, 0.0), np.where(self.on, host, 0.0)
        self.gpu_watts, self.host_watts = gpu, host
        self.ac_watts = (gpu + host) / plant.supply_efficiency
        watts = np.empty(1 + self._n_racks)
        watts[1:] = np.bincount(self._rack_of_node, self.ac_watts, self._n_racks)
        watts[ROW] = watts[1:].sum() + self._external_watts
        self.domain_watts = watts
        return watts

    def _host(self, gpu_watts: Floats, seconds: float) -> Floats:
        """Servers without GPUs, (n_nodes,); fans are integrated over the step by its middle."""
        plant = self._plant
        lag = self._heat_watts - gpu_watts
        half = np.exp(-0.5 * seconds / plant.fan_lag_seconds)
        speed = np.minimum(1.0, (gpu_watts + lag * half) / plant.fan_full_gpu_watts)
        self._heat_watts = gpu_watts + lag * half * half
        keep = np.exp(-seconds / plant.host_noise_lag_seconds)
        new = plant.host_noise_ratio * np.sqrt(1.0 - keep * keep)
        self._noise = keep * self._noise + new * self._generator.standard_normal(len(lag))
        followed = self.base_watts + plant.host_watts_per_gpu_watt * gpu_watts
        return np.asarray(
            (followed + self.fan_watts * speed**plant.fan_exponent) * (1.0 + self._noise)
        )

    def switch_off(self, domain: int) -> None:
        """The domain's breaker has opened: its servers are dark for good."""
        below = self.on if domain == ROW else self._rack_of_node == domain - 1
        self.on = self.on & ~below
