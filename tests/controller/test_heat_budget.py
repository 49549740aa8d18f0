"""Bands from a heat budget: what a rise may spend above the rating, by the plant's breakers too."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from benchmarks._house_objects import topology_of
from benchmarks._power_house import House, Trip
from benchmarks._random_houses import random_house
from controller.heat_budget import budgeted_band, budgeted_target, spare_share
from controller.tick_values import Band
from simulation.row_control.run import RowRun
from simulation.row_control.wattpack_policy import WattpackPolicy
from tests.controller.builders import SETTINGS
from tests.controller.closed_loop import SEEDS
from tests.examples import examples
from tests.simulation.row_control.rows import small_row, wattpack_run
from wattpack.power.feasibility import LoadTree

MANY = examples(100)
REACTION_SECONDS = 1.0 + 0.5 + 1.3
"""Detection, actuation and settling (docs/power-control.md)."""


def site_trip(rng: random.Random) -> Trip:
    """A site's own curve, of a hot or a cold breaker."""
    ratios = sorted(rng.uniform(1.01, 1.6) for _ in range(rng.randint(1, 5)))
    seconds = sorted((rng.uniform(1.0, 3000.0) for _ in ratios), reverse=True)
    pickup = rng.uniform(1.5, 5.0)
    points = tuple(zip(ratios, seconds, strict=True))
    return Trip(points=points, cold=rng.random() < 0.5, pickup_ratio=pickup)


def budgeted(seed: int) -> tuple[random.Random, House, LoadTree]:
    """A house of site curves, some with a budget."""
    rng = random.Random(seed)
    house = random_house(rng)
    for domain in house.domains:
        domain.trip = site_trip(rng)
    topology = topology_of(house, [])
    budget = np.array([rng.choice([0.0, rng.uniform(0.01, 0.2)]) for _ in house.domains])
    tree = replace(topology.tree, heat_budget=budget)
    return rng, house, LoadTree(tree, topology.domain_of_node, topology.node_of_gpu)


@MANY
@given(SEEDS)
def test_a_rise_that_ends_where_the_bands_allow_stays_within_the_budget(seed: int) -> None:
    rng, house, load = budgeted(seed)
    budget = load.tree.heat_budget
    heat = np.array([rng.uniform(0.0, 0.25) for _ in house.domains])
    spare = spare_share(load, heat, load.rating_watts, SETTINGS)
    for domain in house.domains:
        i = domain.number
        if budget[i] <= heat[i]:
            assert spare[i] == 0.0
            continue
        # The last ratio of a curve is borne, the next one is not.
        ratio = (1.0 + float(spare[i])) * (1.0 - 1e-9)
        assert ratio <= domain.trip.highest_ratio() + 1e-9
        assert heat[i] + REACTION_SECONDS / domain.trip.seconds(ratio) <= budget[i] + 1e-9
        # And no more is kept free than that: a little higher is too much, or no curve tells of it.
        higher = ratio + 1e-3
        if higher <= domain.trip.highest_ratio() and domain.trip.seconds(higher) > 0.0:
            assert heat[i] + REACTION_SECONDS / domain.trip.seconds(higher) > budget[i]


def test_a_budget_in_watts_below_the_rating_is_never_crossed_for_heat() -> None:
    _, _, load = budgeted(3)
    tree = replace(load.tree, heat_budget=np.full(len(load.tree), 0.1))
    load.tree = tree
    cold = np.zeros(len(tree))
    below = 0.99 * load.rating_watts
    assert np.all(spare_share(load, cold, below, SETTINGS) == 0.0)
    assert np.any(spare_share(load, cold, load.rating_watts, SETTINGS) > 0.0)


@pytest.mark.parametrize(
    ("cap_band", "target", "spare", "band_then", "target_then"),
    [
        (0.95, 0.95, 0.0, 0.95, 0.95),
        (0.95, 0.95, 0.01, 0.96, 0.96),
        (0.95, 0.95, 0.4, 0.99, 0.97),
        (0.80, 0.82, 0.05, 0.85, 0.87),
        (0.995, 0.98, 0.4, 0.995, 0.98),
    ],
)
def test_bands_rise_by_what_may_end_above_up_to_their_highest(
    cap_band: float, target: float, spare: float, band_then: float, target_then: float
) -> None:
    spares = np.array([spare])
    assert budgeted_band(np.array([cap_band]), spares) == pytest.approx(band_then)
    assert budgeted_target(np.array([target]), spares) == pytest.approx(target_then)


def stepped(budget: float, seed: int) -> RowRun:
    """Load that stands above the ordinary cap band, then steps to 1.10 of the rating, twice."""
    row = small_row().row.model_copy(update={"heat_budget_ratio": budget})
    at = (30.0, 130.0)
    up = [(t + d, w) for t in at for d, w in ((0.0, 580.0), (40.0, 700.0))]
    down = [(t + 70.0, 500.0) for t in at]
    scenario = small_row(row=row.model_dump(), seed=seed)
    return wattpack_run(scenario, sorted([(0.0, 500.0), *up, *down]))


def band_of(run: RowRun) -> int:
    policy = run.policy
    assert isinstance(policy, WattpackPolicy)
    assert policy.decisions is not None
    return int(policy.decisions.band[0])


def test_a_load_between_both_bands_is_capped_only_without_a_budget() -> None:
    ordinary, spending = stepped(0.0, 1), stepped(0.1, 1)
    ordinary.run(69.0)
    spending.run(69.0)
    assert (band_of(ordinary), band_of(spending)) == (Band.CAPPING, Band.NORMAL)


def test_the_plants_breakers_stay_within_the_budget_and_it_is_used() -> None:
    result = stepped(0.1, 2).run(200.0)
    assert result.trips == result.brakes == 0
    assert result.violations == {}
    assert result.above_seconds[0] > 0.0
    assert 0.0 < result.max_heat.max() <= 0.1
