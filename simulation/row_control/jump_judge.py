"""I1's and I2's sums as a judge works them out: everything at its cap, servers at their worst.

Worked out anew from docs/architecture.md (Promises), with constants of its own.
"""

from __future__ import annotations

import numpy as np

from simulation.plant import ROW
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import Bools, Floats

OVERSHOOT = 1.05
GAIN_SPREAD = 0.09
PARENT_HEAT, LEAF_HEAT = 0.25, 0.5
HIGHEST_RATIO = 1.5
REACTION_SECONDS = 0.5 + 1.3
"""Actuation and settling at p99.9: what a jump lasts beyond a lease (I2)."""


class JumpJudge:
    """What a row's breakers would bear if the controller died at a jump.

    Args:
        plant: Its constants, breakers and members; nothing that anybody decided.
        lease_seconds: The declared lease.
    """

    def __init__(self, plant: RowPlant, lease_seconds: float) -> None:
        self._plant = plant
        self.fault_seconds = lease_seconds + REACTION_SECONDS
        n_domains = len(plant.domain_names)
        self.members = np.array([plant.members(d) for d in range(n_domains)])
        self._boards = self.members.sum(axis=1) * plant.gpus_per_node
        self._external = np.zeros(n_domains)
        self._external[ROW] = plant.scenario.row.external_watts
        self.allowed_heat = np.full(n_domains, LEAF_HEAT)
        self.allowed_heat[ROW] = PARENT_HEAT

    def domain_watts(self, node_gpu_watts: Floats) -> Floats:
        """AC watts at each domain with boards at caps and servers at their worst, (n_domains,)."""
        constants = self._plant.scenario.plant
        gain = 1.0 + GAIN_SPREAD / np.sqrt(self._boards)
        gpus = self.members @ node_gpu_watts * OVERSHOOT * gain
        hosts = self.members.sum(axis=1) * constants.worst_host_watts
        return np.asarray((gpus + hosts) / constants.supply_efficiency + self._external)

    def floor_watts(self, node_gpu_watts: Floats) -> Floats:
        """The same for I1: where a line is declared, servers draw beside their GPUs by these.

        What GPUs bring to a server is the plant's; fans at maximum and a burst stay.
        """
        watts = self.domain_watts(node_gpu_watts)
        if not self._plant.scenario.row.host_line:
            return watts
        constants = self._plant.scenario.plant
        drawn = np.minimum(node_gpu_watts * OVERSHOOT, constants.fan_full_gpu_watts)
        less = constants.host_watts_per_gpu_watt * (constants.fan_full_gpu_watts - drawn)
        return np.asarray(watts - self.members @ less / constants.supply_efficiency)

    def load_ratio(self, node_gpu_watts: Floats) -> Floats:
        """That over the ratings, (n_domains,)."""
        return self.domain_watts(node_gpu_watts) / self._plant.breakers.rating_watts

    def heat_after(self, heat: Floats, ratio: Floats) -> Floats:
        """Heat after the fault time at a load, at the lower edge of the curves, (n_domains,)."""
        return heat + self.fault_seconds / self._plant.breakers.earliest_seconds(ratio)

    def survives(self, heat: Floats, node_gpu_watts: Floats) -> Bools:
        """I2, without any tolerance, (n_domains,)."""
        ratio = self.load_ratio(node_gpu_watts)
        cool = self.heat_after(heat, ratio) <= self.allowed_heat
        return np.asarray(cool & (ratio <= HIGHEST_RATIO))
