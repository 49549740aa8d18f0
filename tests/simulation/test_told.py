"""What a tick told is handed to the judges for the boards that exist."""

from __future__ import annotations

import numpy as np

from controller.step import initial_state, step
from controller.tick_values import Tick
from simulation.told import decided_caps, told_by
from simulation.world import World
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.simulation.twin_builders import small_scenario


def test_boards_of_a_server_that_nobody_has_heard_yet_are_left_out() -> None:
    """A row counts such servers with boards under made-up names."""
    world, topology = World(small_scenario()), make_topology()
    observed = make_observations(topology, seconds(1))
    tick = Tick(topology, observed, SETTINGS, seconds(1))
    _, _, decisions = step(tick, initial_state(topology, SETTINGS))
    assert np.isnan(decided_caps(world, topology, decisions).watts).all()
    assert told_by(world, topology, observed, decisions).gpu_uuids == ()
