"""Small rows for tests of the row driver."""

from __future__ import annotations

import numpy as np

from controller.tick_values import PowerSettings, Topology
from simulation.row_control.faults import RowFault, RowFaults
from simulation.row_control.product_topology import product_topology
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.row_control.work import Integers, LevelWork
from simulation.scenario import Scenario, load_scenario

SERVERS = 6


def small_row(**overrides: object) -> Scenario:
    """Six servers of eight H200 in two racks on a breaker for a little less than five."""
    row = {
        "groups": [{"gpu_model": "H200-SXM", "count": SERVERS}],
        "racks": 2,
        "rated_servers": 4.6,
        "rack_rated_servers": 2.8,
        "external_watts": 0.0,
    }
    values: dict[str, object] = {"name": "small", "row": row}
    return load_scenario(None, **(values | overrides))


def halves(n_gpus: int) -> Integers:
    """Every other board is of high priority, (n_gpus,)."""
    return np.arange(n_gpus, dtype=np.int64) % 2


def topology_of(scenario: Scenario) -> Topology:
    """As the product builds it."""
    plant = RowPlant(scenario, START_NS)
    return product_topology(plant, halves(plant.n_gpus))


def wattpack_run(
    scenario: Scenario,
    levels: list[tuple[float, float]],
    *faults: RowFault,
    meters: bool = True,
    bmcs: bool = False,
) -> RowRun:
    """The product's controller on a small row."""
    topology = topology_of(scenario)
    setup = RowSetup(scenario, RowFaults(faults), meters=meters, bmcs=bmcs)
    work = LevelWork(halves(topology.n_gpus), [(t, w) for t, w in levels])
    return RowRun(setup, work, lambda epoch: WattpackPolicy(topology, PowerSettings(), epoch))
