"""A row's controller that lost its memory knows what the domains' status told."""

from __future__ import annotations

import numpy as np

from controller.step import initial_state
from controller.tick_values import PowerSettings
from simulation.row_control.faults import RowFault, RowFaultKind
from simulation.row_control.product_topology import product_topology
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import Known
from simulation.row_control.run import START_NS
from simulation.row_control.told_status import ToldStatus
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.scenario import load_scenario
from tests.simulation.row_control.rows import small_row, topology_of, wattpack_run
from wattpack.units import NS_PER_SECOND

SETTINGS = PowerSettings()
PLANT = RowPlant(load_scenario(), START_NS)
TOPOLOGY = product_topology(
    PLANT, np.zeros(PLANT.n_gpus, dtype=np.int64), np.full(PLANT.n_gpus, -1, dtype=np.int64)
)
HOT = np.linspace(0.05, 0.2, TOPOLOGY.n_domains)


def ticked(policy: WattpackPolicy, seconds: int, *, api: bool) -> None:
    n = TOPOLOGY.n_domains
    nothing, never = np.full(n, np.nan), np.full(n, -1, dtype=np.int64)
    for second in range(seconds):
        now_ns = START_NS + second * NS_PER_SECOND
        policy.tick(Known(now_ns, nothing, never, api, np.zeros(0), np.zeros(0, dtype=np.int64)))


def test_the_next_one_begins_as_hot_as_the_status_says() -> None:
    status = ToldStatus(TOPOLOGY, SETTINGS)
    first = status.controller(1, initial_state(TOPOLOGY, SETTINGS, HOT))
    ticked(first, 1, api=True)
    assert np.allclose(status.controller(2).state.heat, HOT, atol=1e-3)


def test_after_a_crash_heat_is_near_the_truth_and_never_below_it() -> None:
    crash = RowFault(RowFaultKind.CONTROLLER_DOWN, 30.0, 150.0)
    run = wattpack_run(small_row(), [(0.0, 500.0)], crash)
    run.plant.breakers.heat[:] = 0.18
    topology = topology_of(small_row())
    hot = initial_state(topology, SETTINGS, run.plant.breakers.heat.copy())
    status = ToldStatus(topology, SETTINGS)
    run.policy = status.controller(1, hot)
    run._make_policy = status.controller
    run.run(160.0)
    told = run.policy.doubted()  # type: ignore[attr-defined]
    true = run.plant.breakers.heat
    assert np.all(told.heat >= true)
    assert np.all(told.heat < true + 0.006)
    assert np.all(true < 0.15)


def test_without_an_api_nothing_is_written() -> None:
    status = ToldStatus(TOPOLOGY, SETTINGS)
    ticked(status.controller(1, initial_state(TOPOLOGY, SETTINGS, HOT)), 30, api=False)
    assert not status.controller(2).state.heat.any()


def test_it_is_written_every_ten_seconds() -> None:
    status = ToldStatus(TOPOLOGY, SETTINGS)
    for second, heat in ((0, 0.30), (9, 0.20), (10, 0.10), (12, 0.0)):
        status.write(np.full(TOPOLOGY.n_domains, heat), START_NS + second * NS_PER_SECOND)
    assert status.controller(2).state.heat.tolist() == [0.1] * TOPOLOGY.n_domains
