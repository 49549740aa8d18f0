"""What is left to a capping domain's target comes back slowly, what lies beyond comes at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.grants import paced
from controller.judge import raise_permit
from controller.step import initial_state
from controller.tick_values import Tick
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.controller.test_capped_row import capped_row
from wattpack.power.domain_tree import FloatArray


@pytest.mark.parametrize(
    ("room", "given"),
    [
        (4.0, 0.4),  # near the target: a tenth of it
        (10.0, 1.0),
        (14.0, 4.0),  # all beyond what is near
        (np.inf, np.inf),
        (0.0, 0.0),
        (-3.0, -3.0),  # above the target nothing is given, and nothing forgiven
    ],
)
def test_room_near_the_target_is_given_by_a_share(room: float, given: float) -> None:
    assert paced(np.array([room]), np.array([10.0]), 0.1) == pytest.approx([given])


def test_low_boards_come_back_in_steps_once_others_want_less() -> None:
    plant = capped_row(5)
    low = plant.topology.priority == 0
    calmer = np.flatnonzero(~low)[:6]

    def demand(second: int) -> FloatArray:
        wanted = np.where(low, 690.0, 600.0)
        wanted[calmer] = 600.0 if second < 150 else 500.0
        return wanted

    plant.demand = demand
    caps, loads, decided = [], [], []
    for second, decisions in plant.run(240):
        if second >= 150:
            caps.append(float(plant.caps[low].mean()))
            loads.append(plant.true_watts()[0] / plant.house.ratings[0])
            decided.append(float(decisions.decided_cap_watts[low].mean()))
    gained = np.array(caps) - caps[0]
    steps = np.flatnonzero(np.diff(gained) > 0.0)
    first = int(steps[0]) + 1
    assert len(steps) >= 3, "what is near the target does not come at once"
    assert decided[first] - caps[first] > 10.0
    assert gained[first] > 0.5 * gained[-1], "what is further away does"
    assert max(loads) < 0.982, "and the target is not passed"


@pytest.mark.parametrize("per_second", [1, 4])
def test_more_ticks_a_second_close_the_room_no_faster(per_second: int) -> None:
    topology = make_topology(priority=[0] * 8, nodes=(0, 0), parents=(-1,))
    observed = make_observations(topology, seconds(2))
    left = 1.0
    for part in range(per_second):
        now = seconds(1) + seconds(1) * (part + 1) // per_second
        state = initial_state(topology, SETTINGS)
        state = replace(state, now_ns=seconds(1) + seconds(1) * part // per_second)
        left *= 1.0 - raise_permit(Tick(topology, observed, SETTINGS, now), state).near_share
    assert left == pytest.approx(np.exp(-0.1))
