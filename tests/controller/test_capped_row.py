"""A capped row stands near its target: what comes together counts, not the sum of all highest."""

from __future__ import annotations

import numpy as np
import pytest

from controller.coincidence import (
    LOWEST_COINCIDENCE,
    coincidence,
    lasting,
    no_coincidence_yet,
)
from controller.tick_values import Band
from tests.controller.builders import make_topology, seconds
from tests.controller.metered_row import MeteredRow, bursts
from wattpack.power.domain_tree import FloatArray


def capped_row(seed: int, n_nodes: int = 8, metered: tuple[int, ...] = (0,)) -> MeteredRow:
    """Boards that reach their highest draws at different times, more than the breaker bears."""
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * n_nodes,
        priority=[0, 0, 10, 10] * n_nodes,
        oversubscription=1.32,
        floor_watts=250.0,
    )
    rng = np.random.default_rng(seed)
    demand = bursts(topology.n_gpus, rng, 500.0, 700.0)
    return MeteredRow(topology, demand, rng, metered=metered, host_base=900.0)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_capped_row_stands_at_its_target_and_never_above_its_rating(seed: int) -> None:
    plant = capped_row(seed)
    shares, bands, wanted = [], set(), []
    for second, decisions in plant.run(240):
        if second >= 120:
            shares.append(plant.true_watts()[0] / plant.house.ratings[0])
            bands.add(Band(decisions.band[0]))
            wanted.append(plant.demand(second).sum())
    hosts = sum(plant.hosts())
    uncapped = (np.mean(wanted) + hosts) / plant.house.efficiency(0) / plant.house.ratings[0]
    assert uncapped > 1.0
    assert bands == {Band.CAPPING}
    assert np.mean(shares) > 0.95
    assert max(shares) < 1.0


@pytest.mark.parametrize("metered", [(), (0,)])
def test_without_a_meter_only_boards_are_kept_room_to_rise(metered: tuple[int, ...]) -> None:
    plant = capped_row(4, metered=metered)
    plant.demand = lambda _: np.full(plant.topology.n_gpus, 690.0)
    shares = [
        decisions.draw_watts[0] / plant.house.ratings[0]
        for second, decisions in plant.run(120)
        if second >= 90
    ]
    worst = plant.topology.node_worst_watts.sum() / plant.house.efficiency(0)
    at_worst = 0.0 if metered else worst / plant.house.ratings[0]
    assert max(shares) < 1.0 - 0.03 * (1.0 - at_worst) + 0.012
    assert np.mean(shares) > 1.0 - 0.03 * (1.0 - at_worst) - 0.006


def test_high_priority_loses_nothing_while_low_priority_can_give() -> None:
    plant = capped_row(3)
    high = plant.topology.priority == 10
    shares = []
    for second, _ in plant.run(240):
        if second >= 120:
            shares.append(plant.draw / plant.demand(second))
    share = np.mean(shares, axis=0)
    assert share[high].mean() > 0.985
    assert 0.75 < share[~high].mean() < 0.97


def test_without_half_a_minute_of_history_everything_is_expected_at_once() -> None:
    memory = no_coincidence_yet(1)
    for second in range(20):
        memory = memory.with_watts(np.array([0.8]), seconds(second))
    assert coincidence(memory)[0] == 1.0
    for second in range(20, 60):
        memory = memory.with_watts(np.array([0.8]), seconds(second))
    assert coincidence(memory)[0] == 0.8


def test_idle_rows_teach_little_about_busy_ones() -> None:
    memory = no_coincidence_yet(1)
    for second in range(70):
        memory = memory.with_watts(np.array([0.1]), seconds(second))
    assert coincidence(memory)[0] == LOWEST_COINCIDENCE


def test_a_peak_that_is_over_before_caps_act_counts_little_and_what_lasts_counts_whole() -> None:
    def after(ratios: list[float], near: bool = False) -> list[float]:
        found, now = [], np.full(1, np.nan)
        for ratio in ratios:
            now = lasting(now, np.array([ratio]), np.array([near]), 1.0 / 1.8)
            found.append(float(now[0]))
        return found

    peak = after([0.8, 0.8, 1.0, 0.8])
    assert peak[0] == 0.8
    assert max(peak) == pytest.approx(0.8 + 0.2 * (1.0 - np.exp(-1.0 / 1.8)))
    assert after([0.8] + [1.0] * 9)[-1] > 0.995
    close = after([0.8, 1.0, 0.8], near=True)
    assert close[1] == 1.0, "near the limit a peak counts at once"
    assert 0.8 < close[2] < 1.0, "and fades as elsewhere"


def spiking_row(seed: int, n_nodes: int = 16) -> MeteredRow:
    """Boards that are each near full power for a second now and then, more often from 130 to 136 s.

    As prompts between decodes: their highest draws rarely come together.
    """
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * n_nodes,
        priority=[0, 0, 10, 10] * n_nodes,
        oversubscription=1.31,
        floor_watts=250.0,
    )
    rng = np.random.default_rng(seed)
    chance = rng.random((160, topology.n_gpus))

    def demand(second: int) -> FloatArray:
        often = 0.5 if 130 <= second < 136 else 0.3
        return np.where(chance[second] < often, 690.0, 420.0)

    return MeteredRow(topology, demand, rng, metered=(0,), host_base=900.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_steep_rise_sheds_no_more_than_what_it_leaves_to_shed(seed: int) -> None:
    plant = spiking_row(seed)
    low = plant.topology.priority == 0
    loads, caps = [], []
    for _, decisions in plant.run(146):
        loads.append(plant.true_watts()[0] / plant.house.ratings[0])
        caps.append(float(decisions.decided_cap_watts[low].mean()))
    assert caps[129] > 650.0
    assert min(caps[130:140]) < caps[129] - 10.0
    # Not cut far below where it settles, as if every board were to spike at once.
    assert min(caps[130:140]) > caps[145] - 50.0
    assert min(loads[131:140]) > np.mean(loads[100:130]) - 0.03
    assert max(loads) < 1.02


def test_the_highest_of_the_last_minute_counts() -> None:
    memory = no_coincidence_yet(1)
    for second in range(200):
        share = 0.95 if second == 100 else 0.8
        memory = memory.with_watts(np.array([share]), seconds(second))
        expected = 0.95 if 100 <= second < 150 else 0.8
        if second >= 30 and not 150 <= second < 162:
            assert coincidence(memory)[0] == expected
