"""The whole twin with BMCs: what reaches the product's tick is what its own conversion makes."""

from __future__ import annotations

import numpy as np

from controller.app.tick_loop import TickOutcome
from simulation.app.twin_run import TwinRun
from simulation.faces import WorldServers
from simulation.scenario import Scenario
from simulation.world import World
from tests.simulation.twin_builders import small_scenario
from wattpack.units import NS_PER_SECOND


def with_bmcs() -> Scenario:
    row = small_scenario().row.model_dump() | {"bmc": "simulated"}
    return small_scenario(row=row, duration_seconds=60.0)


def test_a_tick_of_the_twin_counts_servers_by_their_bmcs() -> None:
    told, true, stamps = [], [], []

    def look(world: World, outcome: TickOutcome) -> None:
        told.append(outcome.seen.host_watts)
        stamps.append(outcome.seen.host_time_ns)
        true.append(world.servers.host_watts.copy())

    run = TwinRun(with_bmcs(), look)
    run.run()
    assert run.world.trips == 0
    assert run.monitor.count == 0, run.monitor.details
    # Nothing of the first twenty seconds of readings; then within what a late BMC can know.
    assert np.isnan(told[15]).all()
    assert np.isfinite(told[-1]).all()
    off = np.array(told[40:]) - np.array(true[40:])
    assert -150.0 < np.nanmean(off) < 400.0
    newest = run.world.now_ns - stamps[-1]
    assert (newest < 10 * NS_PER_SECOND).all()


def test_without_bmcs_nobody_is_asked() -> None:
    seen = []
    run = TwinRun(small_scenario(), lambda world, outcome: seen.append(outcome.seen))
    run.run()
    assert np.isnan(seen[-1].host_watts).all()
    servers = WorldServers(run.world)
    assert servers.max_age_ns == 0
    assert servers.read() == {}
