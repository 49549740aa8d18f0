"""What is left to a capping domain's target comes back slowly, what lies beyond comes at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.cap_reason import CapReason
from controller.decide import Situation
from controller.grants import Grants, Permit, grant, paced
from controller.judge import raise_permit
from controller.raise_rate import RaiseRate
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
        permit = raise_permit(Tick(topology, observed, SETTINGS, now), state, np.zeros(1))
        left *= 1.0 - permit.near_share
    assert left == pytest.approx(np.exp(-0.1))


def granted(caps_watts: float, wanted_watts: float, room_watts: float) -> Grants:
    """What eight boards get of a room below the target, a tenth of it in this tick.

    Args:
        caps_watts: What each holds.
        wanted_watts: What was decided for each; their floor is 250.
        room_watts: Below the target, what boards may draw more in all.
    """
    topology = make_topology(priority=[0] * 8, nodes=(0, 0), parents=(-1,), floor_watts=250.0)
    state, held = initial_state(topology, SETTINGS), np.full(8, caps_watts)
    factor = state.load.gpu_factor
    now = Situation(
        survivable_watts=np.full(1, 1e9),
        jump_limit_watts=np.full(1, 1e9),
        load_limit_watts=(state.load.sum_gpus(held) + room_watts) * factor,
        worst_rest_watts=np.zeros(1),
        rest_watts=np.zeros(1),
        coincidence=np.ones(1),
        highest_watts=held,
        expected_watts=np.full(8, 700.0),
        active=np.ones(8, dtype=np.bool_),
        doubtful=np.zeros(8, dtype=np.bool_),
    )
    permit = Permit(
        gpus=np.ones(8, dtype=np.bool_),
        rate=RaiseRate(np.full(1, np.inf), 1.0, np.full(1, np.inf), seconds(1), seconds(2)),
        near_watts=1000.0 * factor,
        near_share=0.1,
        restore_watts=np.zeros(8),
        refused=np.full(8, int(CapReason.RAISE_RATE)),
    )
    return grant(state, np.full(8, wanted_watts), held, now, permit)


def test_room_is_closed_by_a_watt_a_board_at_least() -> None:
    """Boards take whole watts: of less nobody rose, for ever, and closed the domain to others."""
    grants = granted(caps_watts=500.0, wanted_watts=700.0, room_watts=40.0)
    assert grants.cap_watts.tolist() == [501.0] * 8
    assert set(grants.reason.tolist()) == {int(CapReason.RAISE_RATE)}
    grants = granted(caps_watts=500.0, wanted_watts=700.0, room_watts=4.0)
    assert grants.cap_watts.tolist() == [500.0] * 8, "but never beyond the target"


def test_who_is_short_by_part_of_a_watt_is_not_told_that_nothing_caps_it() -> None:
    grants = granted(caps_watts=698.0, wanted_watts=700.0, room_watts=7.0)
    assert grants.cap_watts.tolist() == [698.0] * 8
    assert int(CapReason.NOT_CAPPED) not in grants.reason


@pytest.mark.parametrize(
    ("caps_watts", "room_watts", "rises"),
    [(240.0, 400.0, True), (260.0, 400.0, False), (260.0, np.inf, True)],
)
def test_small_raises_are_left_out_above_floors_and_below_bands_only(
    caps_watts: float, room_watts: float, rises: bool
) -> None:
    """What I2 alone leaves is given to the watt."""
    grants = granted(caps_watts, wanted_watts=caps_watts + 10.0, room_watts=room_watts)
    assert bool((grants.cap_watts > caps_watts).all()) == rises


@pytest.mark.parametrize(("draw_ratio", "near_ratio"), [(0.99, 0.01), (1.0, 0.01), (1.01, 1.0)])
def test_above_the_rating_all_that_comes_back_takes_its_time(
    draw_ratio: float, near_ratio: float
) -> None:
    topology = make_topology(priority=[0] * 8, nodes=(0, 0), parents=(-1,))
    state = initial_state(topology, SETTINGS)
    rating = state.load.rating_watts
    tick = Tick(topology, make_observations(topology, seconds(2)), SETTINGS, seconds(2))
    permit = raise_permit(tick, state, draw_ratio * rating)
    assert permit.near_watts == pytest.approx(near_ratio * rating)
