"""Sensors of all boards may be off the same way: without a meter, heat counts that they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.controller.builders import SWITCHBOARD_THERMAL, make_topology
from tests.controller.metered_row import FULL_WATTS, MeteredRow, bursts

SMALL_HOSTS = (400.0, 60.0)
"""Declared worst and base of servers that draw too little beside boards to make up for these."""


def full_row(
    bias: float,
    metered: tuple[int, ...] = (),
    hosts: tuple[float, float] = (2000.0, 900.0),
    *,
    whole_metered: bool = False,
) -> MeteredRow:
    """Boards that want more than the breaker bears, and what their sensors say of it."""
    n = 8
    worst, base = hosts
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * n,
        priority=[0, 0, 10, 10] * n,
        oversubscription=1.32,
        floor_watts=250.0,
        curve=SWITCHBOARD_THERMAL,
        node_worst_watts=worst,
    )
    rng = np.random.default_rng(5)
    demand = bursts(topology.n_gpus, rng, 560.0, 700.0)
    return MeteredRow(
        topology,
        demand,
        rng,
        metered=metered,
        whole_metered=whole_metered,
        sensor_bias=bias,
        host_base=base,
    )


def test_no_heat_is_hidden_by_sensors_that_all_say_too_little() -> None:
    plant = full_row(-0.05, hosts=SMALL_HOSTS)
    hidden, highest = [], 0.0
    for _, decisions in plant.run(500):
        hidden.append(plant.heat[0] - float(decisions.heat[0]))
        highest = max(highest, plant.heat[0])
    assert max(hidden) < 0.01
    assert highest < 0.15


def loads(plant: MeteredRow, count: int = 300) -> tuple[list[float], list[float]]:
    """True load over rating and counted heat once caps have settled."""
    shares, heats = [], []
    for second, decisions in plant.run(count):
        if second >= 120:
            shares.append(plant.true_watts()[0] / plant.house.ratings[0])
            heats.append(float(decisions.heat[0]))
    return shares, heats


def test_true_sensors_lose_little_by_it_and_no_heat_stays() -> None:
    shares, heats = loads(full_row(0.0, hosts=SMALL_HOSTS))
    # Servers count at their declared worst, 0.03 of the rating above what they draw.
    assert np.mean(shares) > 0.9
    # Far below what waits for a heat of 0.1 (I6), and what tells people of one of 0.2.
    assert max(heats) < 0.1


def test_a_meter_confirms_the_sensors_and_nothing_is_lost() -> None:
    shares, heats = loads(full_row(0.0, metered=(0,)))
    assert np.mean(shares) > 0.955
    assert max(heats) < 0.01


def test_servers_at_their_declared_worst_make_up_for_the_boards() -> None:
    plant = full_row(0.0)
    _, heats = loads(plant)
    assert plant.heat[0] == 0.0
    assert max(heats) < 0.05


def test_meters_of_whole_servers_show_what_boards_hide_and_nothing_is_lost() -> None:
    shares, heats = loads(full_row(0.0, whole_metered=True))
    assert np.mean(shares) > 0.955
    assert max(heats) < 0.01
    low = full_row(-0.05, whole_metered=True)
    shares, _ = loads(low)
    assert np.mean(shares) < 0.98
    assert low.heat[0] < 0.01


def test_a_meter_of_half_the_row_confirms_nothing() -> None:
    """It shows less than what is read below it, as one of two phases does."""
    plant = full_row(-0.05, (0,), SMALL_HOSTS)
    plant.meter_error = -0.5
    hidden = [plant.heat[0] - float(decisions.heat[0]) for _, decisions in plant.run(500)]
    assert max(hidden) < 0.01
    assert plant.heat[0] < 0.15


def test_a_meter_of_half_the_row_takes_no_heat_off() -> None:
    """A row above its rating that nobody can hold: half of its draw would be no heat at all."""
    plant = full_row(0.0, (0,), SMALL_HOSTS)
    plant.meter_error, plant.obeys = -0.5, False
    plant.caps[:] = FULL_WATTS
    hidden = [plant.heat[0] - float(decisions.heat[0]) for _, decisions in plant.run(60)]
    assert plant.heat[0] > 0.5
    assert max(hidden) < 0.01


def test_what_a_meter_taught_before_it_was_lost_hides_no_heat() -> None:
    """A share without the time of the reading that taught it counted as confirmed for ever."""
    plant = full_row(-0.05, hosts=SMALL_HOSTS)
    hidden = []
    for second, decisions in plant.run(150):
        if second == 0:
            meters, hosts = plant.state.meters, plant.state.server_hosts
            worst = plant.topology.node_worst_watts
            plant.state = replace(
                plant.state,
                meters=replace(meters, lessons=np.full(len(meters.lessons), 1000)),
                server_hosts=replace(hosts, watts=0.5 * worst, tellings=np.full(len(worst), 1000)),
            )
        hidden.append(plant.heat[0] - float(decisions.heat[0]))
    assert max(hidden) < 0.01
    assert plant.heat[0] < 0.05
