"""The allocation against a plain loop, and its rules one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._allocation_oracle import loop_allocate
from controller.allocation import Allocation, Limit, Wants, allocate, gang_kinds
from controller.tick_values import Topology
from tests.controller.builders import make_topology
from tests.examples import examples
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree


def make_wants(topology: Topology) -> Wants:
    low, default = topology.min_limit_watts, topology.default_limit_watts
    return Wants(
        minimum_watts=low,
        guaranteed_watts=np.minimum(topology.guaranteed_watts, topology.floor_watts),
        floor_watts=topology.floor_watts,
        request_watts=topology.request_watts,
        slack_watts=topology.request_watts,
        priority=topology.priority,
        gang=topology.gang,
        gang_kinds=gang_kinds(topology.gang, default, low),
        value_per_watt=topology.value_per_watt,
        fixed=np.zeros(topology.n_gpus, dtype=np.bool_),
    )


def make_load(topology: Topology) -> LoadTree:
    return LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)


def allocated(
    load: LoadTree, wants: Wants, room_watts: FloatArray, expected_watts: FloatArray | None = None
) -> Allocation:
    counted = np.full(load.n_gpus, np.inf) if expected_watts is None else expected_watts
    return allocate(load, wants, Limit(room_watts, counted))


def room_for(load: LoadTree, watts: float) -> FloatArray:
    return np.full(len(load.tree), watts) * load.gpu_factor


@examples(40)
@given(st.integers(0, 2**32 - 1))
def test_the_vectorised_filling_agrees_with_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parents = (-1, 0, 0, 1, 1)
    nodes = rng.choice([2, 3, 4], int(rng.integers(3, 9))).tolist()
    n = len(nodes) * 4
    topology = make_topology(
        parents=parents,
        nodes=nodes,
        priority=rng.integers(0, 3, n).tolist(),
        request_watts=rng.choice([450.0, 600.0, 700.0], n).tolist(),
    )
    load, wants = make_load(topology), make_wants(topology)
    wants = replace(wants, fixed=rng.random(n) < 0.2)
    expected = rng.uniform(50.0, 800.0, n)
    full = load.sum_gpus(np.minimum(expected, 700.0)) * load.gpu_factor
    room = full * rng.uniform(0.2, 1.2, topology.n_domains)
    caps = allocated(load, wants, room, expected).cap_watts
    assert caps == pytest.approx(np.array(loop_allocate(load, wants, room, expected)), abs=1e-3)


def test_what_fits_is_given_in_full() -> None:
    topology = make_topology()
    load = make_load(topology)
    result = allocated(load, make_wants(topology), room_for(load, 1e9))
    assert np.all(result.cap_watts == topology.request_watts)
    assert np.all(result.binding_domain == -1)


def test_an_impossible_room_leaves_everybody_at_the_minimum() -> None:
    topology = make_topology()
    load = make_load(topology)
    result = allocated(load, make_wants(topology), room_for(load, -1000.0))
    assert np.all(result.cap_watts == topology.min_limit_watts)
    assert np.all(result.binding_domain >= 0)


def test_below_an_overdrawn_domain_nobody_rises_not_even_idle_boards() -> None:
    topology = make_topology(parents=(-1, 0, 0), nodes=(1, 2), priority=[10] * 4 + [0] * 4)
    load = make_load(topology)
    expected = np.array([650.0] * 4 + [100.0] * 4)
    result = allocated(load, make_wants(topology), room_for(load, 1000.0), expected)
    assert np.all(result.cap_watts == topology.min_limit_watts)
    assert np.all(result.binding_domain == 0)


def test_an_idle_important_board_does_not_waste_the_budget() -> None:
    topology = make_topology(parents=(-1,), nodes=(0,), priority=[10, 10, 0, 0])
    load = make_load(topology)
    expected = np.array([100.0, 100.0, 700.0, 700.0])
    result = allocated(load, make_wants(topology), room_for(load, 1600.0), expected)
    assert np.all(result.cap_watts == 700.0)


def test_idle_members_of_a_partly_filled_class_get_its_level_and_no_more() -> None:
    topology = make_topology(parents=(-1,), nodes=(0,), priority=10)
    load = make_load(topology)
    expected = np.array([100.0, 700.0, 700.0, 700.0])
    result = allocated(load, make_wants(topology), room_for(load, 1600.0), expected)
    assert np.ptp(result.cap_watts) < 1e-9
    assert 400.0 < result.cap_watts[0] < 700.0


def test_a_gang_across_domains_has_the_cap_of_its_tightest_member() -> None:
    topology = make_topology(parents=(-1, 0, 0), nodes=(1, 2), gang=[0, -1, -1, -1] * 2)
    load = make_load(topology)
    room = np.array([1e6, 1800.0, 2600.0]) * load.gpu_factor
    caps = allocated(load, make_wants(topology), room).cap_watts
    assert caps[0] == caps[4]
    assert caps[1] == pytest.approx(caps[0])
    # What the gang cannot use in the roomy domain goes to its neighbours there.
    assert np.all(caps[5:] > caps[4])


def test_slack_goes_where_a_watt_buys_most() -> None:
    topology = make_topology(
        parents=(-1,), nodes=(0,), request_watts=500.0, value_per_watt=[1.0, 4.0, 2.0, 3.0]
    )
    load = make_load(topology)
    wants = replace(make_wants(topology), slack_watts=topology.default_limit_watts)
    caps = allocated(load, wants, room_for(load, 2200.0)).cap_watts
    assert caps[1] == 700.0
    assert caps[0] == 500.0
    assert caps.sum() == pytest.approx(2200.0)


def test_i5_a_lesser_board_stays_at_its_floor_even_if_more_would_cost_nothing() -> None:
    topology = make_topology(parents=(-1,), nodes=(0,), priority=[10, 10, 10, 0])
    load = make_load(topology)
    expected = np.array([700.0, 700.0, 700.0, 100.0])
    caps = allocated(load, make_wants(topology), room_for(load, 1900.0), expected).cap_watts
    assert np.all(caps[:3] < 700.0)
    assert caps[3] == topology.floor_watts[3]
