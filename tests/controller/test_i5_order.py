"""I5: the more important first, and the boards of a gang alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from controller.allocation import Limit, Wants, allocate, gang_kinds
from controller.step import initial_state, step
from controller.tick_values import Band, CapReason, PowerSettings, Tick, Topology
from tests.controller.builders import MIN_WATTS, make_observations, make_topology, seconds
from tests.controller.closed_loop import CHEAP, LOOPS, SEEDS, drive, random_topology
from tests.controller.faulty_plant import Faults
from tests.controller.oracle import house_of, unfair_pairs
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

SETTINGS = PowerSettings()


@CHEAP
@given(SEEDS)
def test_i5_no_more_important_gpu_is_short_while_a_lesser_one_is_above_its_floor(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    house = house_of(topology)
    fixed = rng.random(topology.n_gpus) < 0.1
    expected = rng.uniform(80.0, 700.0, topology.n_gpus)
    full = np.array([house.gpu_part(d, expected.tolist()) for d in house.domains()])
    room = full * rng.uniform(0.4, 1.1, topology.n_domains)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    result = allocate(load, wants_of(topology, fixed), Limit(room, expected))
    caps, binding = result.cap_watts, result.binding_domain
    assert caps_fit(topology, np.where(fixed, 0.0, np.minimum(caps, expected)), room, fixed)
    short = ~fixed & (caps < topology.request_watts - 1e-6)
    assert np.all(binding[short] >= 0)
    assert not unfair(topology, caps, binding, ~fixed)


def wants_of(topology: Topology, fixed: BoolArray) -> Wants:
    """Everything that the topology owes."""
    low, default = topology.min_limit_watts, topology.default_limit_watts
    return Wants(
        minimum_watts=low,
        guaranteed_watts=topology.guaranteed_watts,
        floor_watts=topology.floor_watts,
        request_watts=topology.request_watts,
        slack_watts=default,
        priority=topology.priority,
        gang=topology.gang,
        gang_kinds=gang_kinds(topology.gang, default, low),
        value_per_watt=topology.value_per_watt,
        fixed=fixed,
    )


def caps_fit(topology: Topology, used: FloatArray, room: FloatArray, fixed: BoolArray) -> bool:
    """Whether no domain counts more than its room, or than its boards' hardware minimum."""
    house = house_of(topology)
    least = np.where(fixed, 0.0, np.minimum(used, topology.min_limit_watts)).tolist()
    return all(
        house.gpu_part(d, used.tolist()) <= max(room[d], house.gpu_part(d, least)) + 1e-6
        for d in house.domains()
    )


def unfair(
    topology: Topology, caps: FloatArray, binding: IntArray, active: BoolArray
) -> list[tuple[int, int]]:
    """Unfair pairs among the boards whose caps are decided."""
    floors = np.where(active, topology.floor_watts, np.inf)
    return unfair_pairs(
        house_of(topology),
        caps.tolist(),
        np.where(active, topology.request_watts, 0.0).tolist(),
        floors.tolist(),
        topology.priority.tolist(),
        binding.tolist(),
    )


@LOOPS
@given(SEEDS)
def test_i5_decided_allocations_keep_the_order_in_a_closed_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    faults = Faults(report_lost=0.05, batch_lost=0.05, ignores_cap_share=0.05)
    for row in drive(topology, faults, rng, 50):
        decisions = row.decisions
        if np.any(decisions.band == Band.BRAKE):
            continue
        silent = decisions.silent_nodes[topology.node_of_gpu]
        active = ~silent & decisions.trusted & (decisions.reason != CapReason.UNCONTROLLED)
        caps, binding = decisions.decided_cap_watts, decisions.binding_domain
        assert not unfair(topology, caps, binding, active)


@LOOPS
@given(SEEDS)
def test_i5_members_of_a_gang_are_commanded_one_cap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, request_watts=700.0)
    for row in drive(topology, Faults(), rng, 40):
        for number in np.unique(topology.gang[topology.gang >= 0]):
            members = topology.gang == number
            assert np.ptp(row.decisions.decided_cap_watts[members]) < 1e-6
            assert np.ptp(row.commands.cap_watts[members]) < 1e-6


@pytest.mark.parametrize("oversubscription", [1.165, 1.17, 1.175, 1.18])
def test_i5_a_gang_is_alike_at_once_when_a_silent_member_is_heard_again(
    oversubscription: float,
) -> None:
    # The room is for caps a little below the floors, which a silent member counts as decided.
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * 40,
        gpus_per_node=1,
        gang=0,
        oversubscription=oversubscription,
        max_load_ratio=1.0,
        guaranteed_watts=MIN_WATTS,
    )
    state = initial_state(topology, SETTINGS)
    for second in range(12):
        now_ns = seconds(second)
        heard_ns = np.full(topology.n_nodes, now_ns, dtype=np.int64)
        heard_ns[-1] = now_ns if second < 4 or second > 9 else seconds(3)
        observed = make_observations(topology, now_ns, node_received_ns=heard_ns)
        state, _, decisions = step(Tick(topology, observed, SETTINGS, now_ns), state)
        if second > 9:
            assert np.ptp(decisions.decided_cap_watts) == 0.0
