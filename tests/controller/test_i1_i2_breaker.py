"""I1 and I2: what guaranteed caps leave room for, and what jumps a breaker survives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from tests.controller.builders import (
    SETTINGS,
    SWITCHBOARD_THERMAL,
    make_observations,
    make_topology,
)
from tests.controller.closed_loop import CHEAP, LOOPS, SEEDS, drive, random_topology
from tests.controller.faulty_plant import Faults, Plant
from tests.controller.oracle import fault_seconds, house_of
from tests.examples import examples
from wattpack.errors import SafetyError
from wattpack.power.feasibility import LoadTree, size_guaranteed_caps


@CHEAP
@given(SEEDS)
def test_i1_sized_guaranteed_caps_fit_with_the_largest_nodes_at_default(seed: int) -> None:
    topology = random_topology(np.random.default_rng(seed))
    house, guaranteed = house_of(topology), topology.guaranteed_watts.tolist()
    for domain in house.domains():
        assert house.floor_case(domain, guaranteed) <= house.ratings[domain] + 1e-6


@CHEAP
@given(SEEDS)
def test_i1_guaranteed_caps_are_as_high_as_a_domain_allows(seed: int) -> None:
    topology = random_topology(np.random.default_rng(seed))
    house = house_of(topology)
    more = np.minimum(topology.guaranteed_watts + 4.0, topology.floor_watts)
    if np.any(more > topology.guaranteed_watts):
        cases = [house.floor_case(d, more.tolist()) for d in house.domains()]
        assert any(case > rating for case, rating in zip(cases, house.ratings, strict=True))


def test_i1_an_impossible_tree_is_refused_with_domain_and_watts() -> None:
    topology = make_topology(oversubscription=1.2)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    load.rating_watts = load.rating_watts / 3.0
    with pytest.raises(SafetyError, match=r"I1: domain d\d could draw \d+ W"):
        size_guaranteed_caps(
            load,
            topology.min_limit_watts,
            topology.floor_watts,
            topology.default_limit_watts,
            topology.node_worst_watts,
            np.zeros(topology.n_nodes, dtype=np.bool_),
        )


@CHEAP
@given(SEEDS)
def test_i1_the_worst_case_that_a_tick_tells_is_the_one_worked_out_by_hand(seed: int) -> None:
    topology = random_topology(np.random.default_rng(seed), external=50.0)
    house, guaranteed = house_of(topology), topology.guaranteed_watts.tolist()
    now = Tick(topology, make_observations(topology, 0), SETTINGS, 0)
    _, _, decisions = step(now, initial_state(topology, SETTINGS))
    by_hand = [house.floor_case(d, guaranteed) for d in house.domains()]
    assert decisions.guaranteed_watts == pytest.approx(by_hand)


@CHEAP
@given(SEEDS)
def test_i2_decided_caps_survive_a_jump_of_every_gpu_to_its_cap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, oversubscription=1.6, guaranteed_watts=250.0)
    house, away = house_of(topology), fault_seconds(SETTINGS)
    heat = rng.uniform(0.0, 0.4, topology.n_domains)
    state = initial_state(topology, SETTINGS, heat)
    _, _, decisions = step(Tick(topology, make_observations(topology, 0), SETTINGS, 0), state)
    for domain in house.domains():
        worst = house.worst(domain, decisions.decided_cap_watts.tolist())
        least = house.worst(domain, topology.min_limit_watts.tolist())
        assert house.survives(domain, worst, heat[domain], away) or worst <= least + 1e-6


@LOOPS
@given(SEEDS)
def test_i2_what_boards_really_hold_survives_a_jump_at_every_second(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, oversubscription=1.4)
    away = fault_seconds(SETTINGS)
    for row in drive(topology, Faults(batch_delay_seconds=1), rng, 40):
        house = row.plant.house
        for domain in house.domains():
            worst = house.worst(domain, row.plant.caps())
            assert house.survives(domain, worst, row.plant.heat[domain], away)


# --- the breaker ------------------------------------------------------------------------------


FAULTS = st.builds(
    Faults,
    report_lost=st.sampled_from([0.0, 0.05, 0.3]),
    batch_lost=st.sampled_from([0.0, 0.05, 0.3]),
    batch_delay_seconds=st.integers(0, 2),
    silent_write_failure=st.sampled_from([0.0, 0.05]),
    ignores_cap_share=st.sampled_from([0.0, 0.02]),
    reboot=st.sampled_from([0.0, 0.005]),
    sensor_gain=st.sampled_from([0.0, 0.05]),
    leader_change=st.sampled_from([0.0, 0.03]),
    outage_start=st.integers(10, 60),
    outage_seconds=st.sampled_from([0, 3, 20]),
    frozen_from=st.sampled_from([30, 59, 1_000_000]),
    counter_offered=st.booleans(),
)


def stressed_topology(rng: np.random.Generator) -> Topology:
    """Rows of many servers at fast breakers: uncapped, they trip within a minute."""
    nodes = [1, 2] * int(rng.integers(6, 10))
    return make_topology(
        parents=(-1, 0, 0),
        nodes=nodes,
        oversubscription=float(rng.uniform(1.3, 1.45)),
        priority=(rng.integers(0, 3, len(nodes) * 4) * 10).tolist(),
        curve=SWITCHBOARD_THERMAL,
    )


def test_the_plant_without_control_trips_its_breaker() -> None:
    rng = np.random.default_rng(3)
    plant = Plant(stressed_topology(rng), Faults(), rng)
    plant.ask(690.0)
    for tick in range(100):
        for board in plant.boards:
            board.cap = 700.0
        plant.advance(tick)
    assert min(plant.heat) > 1.0


@settings(LOOPS, max_examples=examples(20).max_examples)
@given(SEEDS, FAULTS)
def test_i1_to_i7_no_breaker_trips_whatever_fails(seed: int, faults: Faults) -> None:
    rng = np.random.default_rng(seed)
    for row in drive(stressed_topology(rng), faults, rng, 140, jump=True):
        assert max(row.plant.heat) < 1.0
