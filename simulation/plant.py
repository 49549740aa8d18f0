"""Servers around the GPUs: base, regulators, fans and supplies, up to the watts at each breaker.

    GPU watts ─┬─ sum per server ──> k * GPU + fans(heat) + base ──┐
               └───────────────────────────────────────────────────┴─ / efficiency ──> rack ──> row

Domain 0 is the row; domains 1 to n are its racks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulation.plant_breakers import Breakers
from simulation.scenario import Scenario
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

ROW = 0


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
    """The row's and the racks' breakers."""
    plant, racks = scenario.plant, scenario.row.racks
    rating = np.array([scenario.row_rating_watts] + [scenario.rack_rating_watts] * racks)
    return Breakers(
        rating,
        np.array([plant.row_breaker_a_seconds] + [plant.rack_breaker_a_seconds] * racks),
        np.array([plant.row_breaker_b] + [plant.rack_breaker_b] * racks),
        plant.breaker_cooling_seconds,
        plant.breaker_magnetic_ratio,
        feeds=2 if scenario.row.redundancy == "2N" else 1,
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
        generator: Of the host's noise.
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
        self._heat_watts = np.zeros(n)  # GPU watts as the fans have followed them
        self.on: Bools = np.ones(n, dtype=np.bool_)
        self.gpu_watts = np.zeros(n)
        self.host_watts = np.full(n, self._plant.host_base_watts)
        self.ac_watts = np.zeros(n)
        self.domain_watts = np.zeros(1 + self._n_racks)

    def advance(self, gpu_watts: Floats, seconds: float) -> Floats:
        """Mean AC watts at every domain over a step, (n_domains,).

        Args:
            gpu_watts: Mean draw of each GPU over the step, (n_gpus,).
            seconds: Its length.
        """
        plant = self._plant
        n = len(self.on)
        self.gpu_watts = np.bincount(self._node_of_gpu, gpu_watts, n).astype(np.float64)
        follow = 1.0 - np.exp(-seconds / plant.fan_lag_seconds)
        self._heat_watts = self._heat_watts + follow * (self.gpu_watts - self._heat_watts)
        speed = np.minimum(1.0, self._heat_watts / plant.fan_full_gpu_watts)
        host = (
            plant.host_base_watts
            + plant.host_watts_per_gpu_watt * self.gpu_watts
            + plant.fan_range_watts * speed**plant.fan_exponent
        )
        noise = 1.0 + plant.host_noise_ratio * self._generator.standard_normal(n)
        self.host_watts = np.where(self.on, host * noise, 0.0)
        self.gpu_watts = np.where(self.on, self.gpu_watts, 0.0)
        self.ac_watts = (self.gpu_watts + self.host_watts) / plant.supply_efficiency
        racks = np.bincount(self._rack_of_node, self.ac_watts, minlength=self._n_racks)
        self.domain_watts = np.concatenate([[racks.sum() + self._external_watts], racks])
        return self.domain_watts

    def switch_off(self, domain: int) -> None:
        """The domain's breaker has opened: its servers are dark for good."""
        below = self.on if domain == ROW else self._rack_of_node == domain - 1
        self.on = self.on & ~below
