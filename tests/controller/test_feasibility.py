"""Trip curves and the arithmetic of I1 and I2."""

from __future__ import annotations

import numpy as np
import pytest

from tests.controller.builders import make_topology, make_tree
from tests.controller.oracle import bare_house
from wattpack.power.domain_tree import BreakerCurve
from wattpack.power.feasibility import LoadTree, survivable_watts, worst_watts
from wattpack.power.trip_curves import RACK_THERMAL, SWITCHBOARD_THERMAL, CurveBank, cold_points


@pytest.mark.parametrize(
    ("curve", "load_ratio", "published_seconds"),
    [
        (RACK_THERMAL, 1.10, 1020),
        (RACK_THERMAL, 1.30, 111),
        (RACK_THERMAL, 2.0, 7),
        (SWITCHBOARD_THERMAL, 1.10, 78),
        (SWITCHBOARD_THERMAL, 1.40, 31),
    ],
)
def test_fits_trip_twenty_percent_before_the_published_times(
    curve: BreakerCurve, load_ratio: float, published_seconds: float
) -> None:
    seconds = CurveBank([curve]).trip_seconds(np.array([load_ratio]))[0]
    assert seconds == pytest.approx(0.8 * published_seconds, rel=0.04)


def test_a_breaker_at_its_rating_never_trips() -> None:
    assert np.isinf(CurveBank([RACK_THERMAL]).trip_seconds(np.array([1.0]))[0])


def test_points_are_interpolated_on_logarithms_and_held_at_both_ends() -> None:
    bank = CurveBank([BreakerCurve(1.0, 1.0, (1.1, 1.5, 2.0), (400.0, 100.0, 10.0))])
    at = [bank.trip_seconds(np.array([r]))[0] for r in (1.05, 1.1, 1.284523, 1.5, 2.0, 3.0)]
    assert at == pytest.approx([400.0, 400.0, 200.0, 100.0, 10.0, 10.0], rel=1e-3)


def test_the_borne_ratio_is_the_inverse_of_the_trip_time() -> None:
    points = BreakerCurve(1.0, 1.0, (1.1, 1.5, 2.0), (400.0, 100.0, 10.0))
    bank = CurveBank([RACK_THERMAL, SWITCHBOARD_THERMAL, points])
    seconds = np.array([30.0, 40.0, 50.0])
    assert bank.trip_seconds(bank.ratio_borne_for(seconds)) == pytest.approx(seconds)


def test_a_cold_curve_counts_a_quarter() -> None:
    assert cold_points([100.0, 8.0]) == (25.0, 2.0)


def test_worst_load_adds_overshoot_spread_losses_servers_and_external_load() -> None:
    topology = make_topology(parents=(-1,), nodes=(0, 0), external=123.0, efficiency=0.9)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    watts = worst_watts(load, np.full(8, 500.0), np.full(2, 1000.0))
    by_hand = 8 * 500 * 1.05 * (1 + 0.09 / 8**0.5) / 0.9 + 2000 / 0.9 + 123
    assert watts[0] == pytest.approx(by_hand)


def test_losses_below_a_domain_count_in_it() -> None:
    tree = make_tree((-1, 0), efficiency=[0.95, 0.90])
    load = LoadTree(tree, np.array([1]), np.zeros(4, dtype=np.int64))
    assert np.array_equal(load.efficiency, [0.90, 0.90])


def test_phase_imbalance_lowers_the_rating() -> None:
    tree = make_tree((-1,), [1000.0], imbalance=1.25)
    assert LoadTree(tree, np.array([0]), np.array([0])).rating_watts[0] == 800.0


@pytest.mark.parametrize("heat", [0.0, 0.2, 0.45, 0.6])
def test_survivable_watts_are_the_most_that_survives(heat: float) -> None:
    tree = make_tree((-1, 0), [1000.0, 1000.0], curve=SWITCHBOARD_THERMAL)
    load = LoadTree(tree, np.array([1]), np.array([0]))
    house = bare_house(tree, [1], [0], [700.0], [500.0])
    watts = survivable_watts(load, np.full(2, heat), 9.0, np.array([0.25, 0.5]))
    for domain in house.domains():
        assert house.survives(domain, watts[domain] * (1 - 1e-9), heat, 9.0)
        assert not house.survives(domain, watts[domain] * 1.001, heat, 9.0)
    assert np.all(watts <= 1500.0)


def test_the_sum_over_some_boards_is_that_with_nothing_for_the_others_to_the_last_bit() -> None:
    topology = make_topology(parents=(-1, 0, 0, 1), nodes=(1, 2, 2, 3, 3))
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    rng = np.random.default_rng(3)
    for _ in range(20):
        some = np.flatnonzero(rng.random(load.n_gpus) < 0.4)
        watts = np.zeros(load.n_gpus)
        watts[some] = rng.uniform(0.0, 700.0, len(some))
        assert np.array_equal(load.sum_of(some, watts[some]), load.sum_gpus(watts))


def test_a_domain_has_a_marked_board_below_it_or_not() -> None:
    topology = make_topology()
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    marked = np.zeros(load.n_gpus, dtype=np.bool_)
    assert not load.any_gpu_below(marked).any()
    marked[0] = True
    assert load.any_gpu_below(marked).tolist() == [True, True, False]
