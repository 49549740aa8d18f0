"""Use of reserve feeds: what the load may be while all feeds carry, and what a loss does to it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from benchmarks._house_objects import topology_of
from benchmarks._power_house import House, Trip
from benchmarks._random_houses import random_house, random_work
from controller.budget import budget_watts
from controller.reserve_feeds import (
    Feeds,
    borne_until_shed_watts,
    initial_feeds,
    take_feeds,
    unseen_heat,
)
from controller.step import carry_over, initial_state, step
from controller.tick_values import Tick, Topology
from simulation.row_control.faults import RowFault, RowFaultKind
from simulation.row_control.run import RowRun
from simulation.row_control.wattpack_policy import WattpackPolicy
from tests.controller.builders import SETTINGS, make_observations, seconds
from tests.controller.closed_loop import SEEDS
from tests.controller.oracle import fault_seconds
from tests.examples import examples
from tests.simulation.row_control.rows import small_row, wattpack_run
from wattpack.api import PowerDomain
from wattpack.power.feasibility import LoadTree
from wattpack.power.power_grid import PowerGrid

MANY = examples(100)
REACTION_SECONDS = 0.5 + 1.3
UPS = [
    {"loadRatio": 1.25, "tripSeconds": 600.0},
    {"loadRatio": 1.5, "tripSeconds": 60.0},
]


def four_feeds(*, use_reserve: bool = True) -> PowerDomain:
    """Four feeds of 100 kW of which three carry all."""
    redundancy = {"mode": "KofN", "feeds": 4, "requiredFeeds": 3}
    if use_reserve:
        redundancy |= {
            "useReserve": True,
            "overloadCurve": UPS,
            "feedShare": {"prometheusQuery": "share"},
        }
    spec = {"ratingWatts": 100_000.0, "redundancy": redundancy}
    return PowerDomain.from_json({"metadata": {"name": "row"}, "spec": spec})


def load_of(domain: PowerDomain) -> LoadTree:
    nobody = np.zeros(0, dtype=np.int64)
    return LoadTree(PowerGrid.of({"row": domain.spec}).tree, nobody, nobody)


class Looks:
    """Readings of the busiest feed's share, one a second, and what is made of them."""

    def __init__(self, load: LoadTree) -> None:
        self.load, self.now, self.memory = load, 0, initial_feeds(1)

    def at(self, share: float, *, age: float = 0.5) -> float:
        """Kilowatts available after one more second."""
        before, self.now = self.now, self.now + 1
        empty = make_empty(self.load)
        observed = replace(
            make_observations(empty, seconds(self.now)),
            feed_share=np.array([share]),
            feed_time_ns=np.array([seconds(self.now - age)]),
        )
        tick = Tick(empty, observed, SETTINGS, seconds(self.now))
        self.memory, feeds = take_feeds(tick, self.load, self.memory, seconds(before))
        self.unseen_seconds = float(feeds.unseen_seconds[0])
        return float(feeds.available_watts[0]) / 1000.0


def test_all_feeds_count_while_all_carry_and_the_required_ones_after_a_loss() -> None:
    looks = Looks(load_of(four_feeds()))
    assert looks.at(0.2501) == pytest.approx(100.0 / 0.2501)
    assert looks.at(0.2500) == pytest.approx(100.0 / 0.2501)
    assert looks.at(0.3333) == pytest.approx(300.0, rel=1e-3)
    assert looks.at(0.5001) == pytest.approx(200.0, rel=1e-3)


def test_a_feed_that_is_back_is_counted_on_after_half_a_minute() -> None:
    looks = Looks(load_of(four_feeds()))
    looks.at(0.25)
    looks.at(1.0 / 3.0)
    held = [looks.at(0.25 + 1e-5 * (i % 2)) for i in range(50)]
    assert max(held[:25]) == pytest.approx(300.0)
    assert held[-1] == pytest.approx(400.0, rel=1e-3)


@pytest.mark.parametrize(
    ("share", "age"),
    [
        (float("nan"), 0.5),
        (0.0, 0.5),
        (-0.25, 0.5),
        # The busiest of four feeds carries a quarter or more.
        (0.2, 0.5),
        (1.2, 0.5),
        (0.25, 3.5),
        (0.25, -1.0),
    ],
)
def test_what_nobody_tells_counts_as_lost(share: float, age: float) -> None:
    looks = Looks(load_of(four_feeds()))
    assert looks.at(0.25) == pytest.approx(400.0)
    assert looks.at(share, age=age) == pytest.approx(300.0)


def test_a_reading_that_stands_still_is_not_believed() -> None:
    looks = Looks(load_of(four_feeds()))
    found = [looks.at(0.25) for _ in range(8)]
    assert found[:4] == pytest.approx([400.0] * 4)
    assert found[4:] == pytest.approx([300.0] * 4)


def test_seconds_before_a_loss_was_seen_are_told_for_their_heat() -> None:
    looks = Looks(load_of(four_feeds()))
    looks.at(0.25)
    looks.at(0.25 + 1e-6)
    # The last reading was half a second old at the last tick.
    looks.at(1.0 / 3.0)
    assert looks.unseen_seconds == pytest.approx(0.5)


def test_a_feed_whose_meter_went_with_it_leaves_its_heat() -> None:
    load = load_of(four_feeds())
    looks = Looks(load)
    looks.at(0.25)
    looks.at(float("nan"))
    # Default maxAgeSeconds: nobody told of the feeds for as long as that at the most.
    assert looks.unseen_seconds == pytest.approx(3.0)
    # 390 kW on the feeds that may be left, by the curve that gives in first.
    gone = Feeds(np.array([300_000.0]), np.array([looks.unseen_seconds]))
    heat = unseen_heat(load, np.array([400_000.0]), gone, np.array([390_000.0]))
    assert heat == pytest.approx(3.0 / load.curves.trip_seconds(np.array([1.3])))
    # Told once: what stands at the rating already has no heat that nobody counted.
    assert unseen_heat(load, np.array([300_000.0]), gone, np.array([390_000.0])) == 0.0


def test_what_feeds_were_believed_to_carry_outlives_a_change_of_members() -> None:
    topology = make_empty(load_of(four_feeds()))
    state = replace(initial_state(topology, SETTINGS), available_watts=np.array([400_000.0]))
    moved = carry_over(state, topology, replace(topology), SETTINGS)
    assert moved.available_watts == pytest.approx([400_000.0])


def test_without_the_option_nothing_but_the_rating_counts() -> None:
    looks = Looks(load_of(four_feeds(use_reserve=False)))
    assert looks.at(0.25) == 300.0


def reserve_house(seed: int) -> tuple[random.Random, House]:
    """A random house in which redundant domains use their reserve, with curves of UPSes."""
    rng = random.Random(seed)
    house = random_house(rng)
    for domain in house.domains:
        if domain.redundancy != "None" and rng.random() < 0.8:
            ratios = sorted(rng.uniform(1.01, 2.0) for _ in range(rng.randint(1, 4)))
            times = sorted((rng.uniform(2.0, 600.0) for _ in ratios), reverse=True)
            domain.feed_trip = Trip(points=tuple(zip(ratios, times, strict=True)))
    return rng, house


@MANY
@given(SEEDS)
def test_i1_i2_hold_after_the_loss_by_the_curve_that_gives_in_first(seed: int) -> None:
    rng, house = reserve_house(seed)
    topology = topology_of(house, random_work(rng, house))
    heat = [rng.uniform(0.0, 0.5) for _ in house.domains]
    state = initial_state(topology, SETTINGS, np.array(heat))
    shares = np.array([rng.uniform(0.1, 1.0) for _ in house.domains])
    observed = replace(
        make_observations(topology, 0),
        feed_share=shares,
        feed_time_ns=np.zeros(len(shares), dtype=np.int64),
    )
    decisions = step(Tick(topology, observed, SETTINGS, 0), state)[2]
    caps, away = decisions.decided_cap_watts.tolist(), fault_seconds(SETTINGS)
    guaranteed = topology.guaranteed_watts.tolist()
    least = [board.minimum for board in house.boards]
    for domain in house.domains:
        lowest = domain.floor_case(least) > domain.rating_watts
        if domain.enforces and not lowest:
            assert domain.floor_case(guaranteed) <= domain.rating_watts + 1e-6
        hot = heat[domain.number]
        worst = domain.worst(caps)
        assert domain.survives(worst, hot, away) or worst <= domain.worst(least) + 1e-6


@MANY
@given(SEEDS)
def test_no_load_is_allowed_that_the_feeds_left_do_not_bear_until_it_is_shed(seed: int) -> None:
    _, house = reserve_house(seed)
    topology = topology_of(house, [])
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    borne = borne_until_shed_watts(load, SETTINGS)
    for domain in house.domains:
        if domain.feed_trip is not None:
            unseen = 3.0 + 1.0 + REACTION_SECONDS
            # The last ratio of a curve is borne, the next one is not.
            watts = float(borne[domain.number]) * (1.0 - 1e-9)
            assert domain.survives(watts, 0.0, unseen)
        assert borne[domain.number] >= domain.rating_watts * (1.0 - 1e-9)


def test_a_schedule_counts_from_what_all_feeds_carry() -> None:
    domain = four_feeds()
    assert budget_watts(make_empty(load_of(domain)), {"row": domain}, [], 0) == pytest.approx(
        [400_000.0]
    )


def make_empty(load: LoadTree) -> Topology:
    none = np.zeros(0, dtype=np.int64)
    nothing = np.zeros(0)
    yes = np.zeros(0, dtype=np.bool_)
    return Topology(
        gpu_uuids=(),
        node_names=(),
        tree=load.tree,
        node_of_gpu=none,
        domain_of_node=none,
        min_limit_watts=nothing,
        default_limit_watts=nothing,
        guaranteed_watts=nothing,
        floor_watts=nothing,
        request_watts=nothing,
        priority=none,
        gang=none,
        value_per_watt=nothing,
        clock_lock=yes,
        node_worst_watts=nothing,
        node_host_unit=yes,
    )


def fed_row(*, use_reserve: bool, watts: float, more: tuple[RowFault, ...] = ()) -> RowRun:
    """Six servers on four feeds, three of which carry a rating for four; one is lost at 60 s."""
    own = {
        "redundancy": "KofN",
        "feeds": 4,
        "required_feeds": 3,
        "use_reserve": use_reserve,
        "rated_servers": 4.0,
        "rack_rated_servers": 2.4,
    }
    row = small_row().row.model_copy(update=own)
    lost = RowFault(RowFaultKind.FEED_LOST, 60.0, 120.0, np.ones(3, dtype=np.bool_))
    return wattpack_run(small_row(row=row.model_dump()), [(0.0, 400.0), (15.0, watts)], lost, *more)


def row_load(run: RowRun) -> float:
    return float(run.plant.breakers.load_ratio(run.plant.watts)[0])


def test_with_the_reserve_a_row_stands_above_its_rating_and_is_shed_in_five_seconds() -> None:
    run = fed_row(use_reserve=True, watts=620.0)
    run.run(59.0)
    rating = float(run.plant.breakers.rating_watts[0])
    assert run.plant.watts[0] > 1.08 * rating
    assert row_load(run) < 0.95
    run.run(2.0)
    assert row_load(run) > 1.0
    run.run(5.0)
    assert row_load(run) < 1.0
    result = run.run(50.0)
    assert row_load(run) < 1.0
    assert result.trips == result.brakes == 0
    assert result.violations == {}
    assert result.above_seconds[0] <= 5.0
    policy = run.policy
    assert isinstance(policy, WattpackPolicy)
    assert policy.decisions is not None
    # What was drawn before the loss was seen is on the books.
    assert policy.decisions.heat[0] > 0.5 * run.plant.breakers.heat[0]


def test_without_it_a_lost_feed_lets_nothing_cross() -> None:
    result = fed_row(use_reserve=False, watts=620.0).run(90.0)
    assert result.above_seconds.max() == 0.0
    assert result.max_heat.max() == 0.0


def test_the_reserve_is_never_used_while_nobody_tells_of_feeds() -> None:
    silent = RowFault(RowFaultKind.METER_SILENT, 0.0, 60.0, np.ones(3, dtype=np.bool_))
    run = fed_row(use_reserve=True, watts=620.0, more=(silent,))
    result = run.run(59.0)
    assert result.load_ratio[:, 0].max() <= 0.75
