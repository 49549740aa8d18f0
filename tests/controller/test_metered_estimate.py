"""I7: a usable meter bounds the estimate and the heat, and shows what servers draw beside GPUs."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from controller.tick_values import Band, Decisions
from tests.controller.builders import SWITCHBOARD_THERMAL, make_topology
from tests.controller.metered_row import MeteredRow, bursts
from wattpack.power.domain_tree import FloatArray


def row(
    n_nodes: int = 6, seed: int = 1, low: float = 250.0, high: float = 450.0, **how: object
) -> MeteredRow:
    """One breaker over a few servers of four boards, half of them important."""
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * n_nodes,
        priority=[0, 0, 10, 10] * n_nodes,
        oversubscription=1.25,
        floor_watts=250.0,
        curve=SWITCHBOARD_THERMAL,
    )
    rng = np.random.default_rng(seed)
    demand = bursts(topology.n_gpus, rng, low, high)
    return MeteredRow(topology, demand, rng, **{"metered": (0,), **how})  # type: ignore[arg-type]


class Recent:
    """Estimates over the lowest and the highest truth since the meter's newest reading."""

    def __init__(self, plant: MeteredRow) -> None:
        self.plant = plant
        self.past: deque[FloatArray] = deque(maxlen=4)
        self.low: list[FloatArray] = []
        self.high: list[FloatArray] = []

    def see(self, decisions: Decisions) -> None:
        true = np.array(self.plant.true_watts())
        self.past.append(true)
        self.low.append(decisions.draw_watts / np.min(self.past, axis=0))
        self.high.append(decisions.draw_watts / np.max(self.past, axis=0))


def test_a_meter_shows_what_servers_draw_that_send_no_power_of_their_own() -> None:
    plant = row()
    ratios = [d.draw_watts[0] / plant.true_watts()[0] for t, d in plant.run(120) if t > 60]
    assert np.min(ratios) > 0.985
    assert np.mean(ratios) < 1.02


def test_a_board_that_cannot_be_read_does_not_hide_what_servers_draw() -> None:
    plant = row(24, lost_boards=(5,))
    ratios = [d.draw_watts[0] / plant.true_watts()[0] for t, d in plant.run(120) if t > 60]
    assert np.min(ratios) > 0.985
    assert np.mean(ratios) < 1.04


def test_without_a_meter_such_servers_count_at_their_declared_worst() -> None:
    plant = row(metered=())
    worst = plant.topology.node_worst_watts.sum() / plant.house.efficiency(0)
    for _, decisions in plant.run(60):
        boards = plant.true_watts()[0] - sum(plant.hosts()) / plant.house.efficiency(0)
        assert decisions.draw_watts[0] >= 0.99 * (boards + worst)


@pytest.mark.parametrize("lost", [0.34, 1.0])
def test_lost_telemetry_under_a_healthy_meter_leaves_no_false_heat(lost: float) -> None:
    n = 6
    quiet = np.arange(n) < round(lost * n)
    plant = row(n, silent=lambda t: quiet & (120 <= t < 192))
    heats, recent = [], Recent(plant)
    for second, decisions in plant.run(260):
        heats.append(decisions.heat[0])
        if second > 60:
            recent.see(decisions)
    assert plant.heat[0] == 0.0
    assert max(heats) < 0.02
    assert np.min(recent.low) > 0.985
    assert np.max(recent.high) < 1.10


@pytest.mark.parametrize("level", [380.0, 420.0, 500.0])
def test_what_fell_while_nobody_ticked_is_taken_off_the_meter_once(level: float) -> None:
    plant = row(8, low=0.9 * level, high=1.1 * level)
    ratios = []
    for second, decisions in plant.run(160, hung=range(120, 132)):
        if second >= 120:
            ratios.append(decisions.draw_watts[0] / plant.true_watts()[0])
            assert decisions.heat[0] <= plant.heat[0] + 0.001
    assert min(ratios) > 0.985


def test_after_lost_telemetry_the_row_is_back_within_a_minute() -> None:
    n = 6
    plant = row(n, silent=lambda t: np.full(n, 120 <= t < 192))
    drawn: list[float] = []
    before: list[float] = []
    for second, _ in plant.run(260):
        share = float(plant.draw.sum() / plant.demand(second).sum())
        (before if 80 < second < 120 else drawn if second >= 252 else []).append(share)
    assert np.mean(before) > 0.97
    assert np.mean(drawn) > 0.95 * np.mean(before)


def test_servers_that_can_still_be_steered_are_not_sunk_by_those_that_are_silent() -> None:
    n = 6
    quiet = np.arange(n) < 2
    plant = row(n, silent=lambda t: quiet & (t >= 120))
    steered = ~quiet[plant.topology.node_of_gpu]
    for _ in plant.run(200):
        pass
    assert plant.draw[steered].sum() > 0.95 * plant.demand(199)[steered].sum()


def test_a_meter_that_shows_less_than_what_is_read_below_it_bounds_nothing() -> None:
    plant = row(meter_error=-0.5)
    for second, decisions in plant.run(90):
        if second > 5:
            assert decisions.draw_watts[0] > plant.true_watts()[0]


def nested(metered: tuple[int, ...], seed: int, silent: object = None) -> MeteredRow:
    topology = make_topology(
        parents=(-1, 0, 0),
        nodes=(1, 1, 1, 2, 2, 2),
        priority=[0, 0, 10, 10] * 6,
        oversubscription=1.1,
        floor_watts=250.0,
    )
    rng = np.random.default_rng(seed)
    demand = bursts(topology.n_gpus, rng, 250.0, 450.0)
    return MeteredRow(topology, demand, rng, metered=metered, silent=silent)  # type: ignore[arg-type]


def test_the_meters_of_all_children_are_known_at_their_parent() -> None:
    plant = nested((1, 2), 3, lambda t: np.full(6, t >= 60))
    recent = Recent(plant)
    for second, decisions in plant.run(110):
        if second > 57:
            recent.see(decisions)
    assert np.min(recent.low) > 0.985
    assert np.max(recent.high) < 1.10


def test_a_parents_meter_bounds_the_child_whose_servers_are_silent() -> None:
    quiet = np.arange(6) < 3
    plant = nested((0,), 4, lambda t: quiet & (t >= 60))
    plant.topology = replace(plant.topology, node_idle_watts=np.full(6, 500.0))
    recent = Recent(plant)
    for second, decisions in plant.run(110):
        if second > 57:
            recent.see(decisions)
    # The racks have no meter: what their servers draw beside GPUs is the row's mean share.
    assert np.min(recent.low) > 0.97
    # 8 % of the parent and what is not known of the other child: not twice as much.
    assert np.max(recent.high) < 1.5
    assert all(Band(b) != Band.BRAKE for b in decisions.band)


def test_a_fall_that_the_meter_has_shown_counts_once_after_two_lost_reports() -> None:
    topology = make_topology(parents=(-1,), nodes=(0, 0), oversubscription=1.3, enforce=False)
    levels = np.repeat([[700.0, 150.0], [500.0, 500.0]], 4, axis=0).T
    plant = MeteredRow(
        topology,
        lambda t: levels[int(t >= 10)],
        np.random.default_rng(1),
        metered=(0,),
        silent=lambda t: np.array([t in (10, 11), False]),
        undeclared_watts=1000.0,
        obeys=False,
    )
    plant.caps[:] = 700.0
    recent = Recent(plant)
    for t, decisions in plant.run(18):
        if t > 4:
            recent.see(decisions)
    assert np.min(recent.low) > 0.985


def test_a_rise_that_nobody_reported_is_not_hidden_by_the_fall_of_others() -> None:
    topology = make_topology(parents=(-1,), nodes=(0, 0), oversubscription=1.3, enforce=False)

    def demand(t: int) -> FloatArray:
        # One server rises unheard; a second later it has been missed, and the other one falls.
        return np.repeat([700.0 if t >= 10 else 150.0, 150.0 if t >= 11 else 700.0], 4)

    plant = MeteredRow(
        topology,
        demand,
        np.random.default_rng(1),
        metered=(0,),
        silent=lambda t: np.array([t in (10, 11, 12), False]),
        undeclared_watts=1000.0,
        obeys=False,
    )
    plant.caps[:] = 700.0
    recent = Recent(plant)
    for t, decisions in plant.run(18):
        if t > 4:
            recent.see(decisions)
    assert np.min(recent.low) > 0.985


def test_servers_with_meters_of_their_own_need_no_margin_for_a_lost_one() -> None:
    plant = row(whole_metered=True, meters_until=100)
    ratios = [d.draw_watts[0] / plant.true_watts()[0] for t, d in plant.run(260) if t > 205]
    assert np.min(ratios) > 0.985
    assert np.mean(ratios) < 1.02
