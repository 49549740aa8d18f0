"""I6: a GPU below its guaranteed cap comes back up to it whatever the breaker's heat."""

from __future__ import annotations

import numpy as np
import pytest

from controller.step import initial_state, step
from controller.tick_values import Tick
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds


@pytest.mark.parametrize("heat", [0.0, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("may_raise", [True, False], ids=["may raise", "may not"])
def test_a_cap_below_the_guaranteed_one_is_lifted_to_it_at_any_heat(
    heat: float, may_raise: bool
) -> None:
    topology = make_topology(oversubscription=1.2)
    assert np.all(topology.guaranteed_watts > topology.min_limit_watts + 20.0)
    state = initial_state(topology, SETTINGS, np.full(topology.n_domains, heat))
    low = topology.min_limit_watts
    for tick in range(3):
        observed = make_observations(
            topology, seconds(tick), gpu_limit_watts=low, may_raise=may_raise
        )
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
    assert commands.send.all()
    assert np.all(commands.cap_watts >= topology.guaranteed_watts - 1e-6)


def test_above_the_guaranteed_cap_a_hot_breaker_still_refuses() -> None:
    topology = make_topology(oversubscription=1.2)
    state = initial_state(topology, SETTINGS, np.full(topology.n_domains, 0.7))
    for tick in range(30):
        observed = make_observations(topology, seconds(tick))
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        assert np.all(commands.cap_watts <= topology.guaranteed_watts + 1e-6)
