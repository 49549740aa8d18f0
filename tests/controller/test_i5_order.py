"""I5: the more important first, and the boards of a gang alike."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from benchmarks._order_judge import Limits, judged, unfair_pairs
from controller.allocation import Limit, Wants, allocate, gang_kinds
from controller.step import initial_state, step
from controller.tick_values import PowerSettings, Tick, Topology
from tests.controller.builders import MIN_WATTS, make_observations, make_topology, seconds
from tests.controller.closed_loop import CHEAP, LOOPS, SEEDS, drive, random_topology
from tests.controller.faulty_plant import Faults
from tests.controller.loop_judge import LoopJudge
from tests.controller.oracle import due_of, house_of
from wattpack.power.domain_tree import BoolArray, FloatArray
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
    # What holds somebody back is worked out from rooms and caps: the result may say anything.
    nothing, free = [0.0] * topology.n_gpus, [math.inf] * topology.n_domains
    rest = [0.0] * topology.n_domains
    limits = Limits(free, room.tolist(), rest, expected.tolist(), nothing, nothing)
    due = due_of(topology, (~fixed).tolist())
    found = judged(house.house, due, limits, caps.tolist())
    assert not [one for one in found if one.kind in ("order", "idle_room")]


def test_i5_a_favoured_board_is_seen_below_the_full_breaker_only() -> None:
    topology = make_topology(priority=[10] * 4 + [0] * 12)
    house, due = house_of(topology).house, due_of(topology, [True] * 16)
    # Servers 0 and 1 hang below rack 1, the others below rack 2.
    caps = [450.0] * 4 + [600.0] * 4 + [400.0] * 8
    for full in ([False, True, False], [True, False, False], [False, False, False]):
        assert unfair_pairs(house, due, caps, full)
    assert not unfair_pairs(
        house, due, [450.0] * 4 + [400.0] * 4 + [600.0] * 8, [True, True, False]
    )
    assert unfair_pairs(house, due, [450.0] * 4 + [400.0] * 4 + [600.0] * 8, [True, False, False])


@pytest.mark.parametrize("claim", [-1, 0, 2])
def test_i5_watts_moved_to_the_less_important_are_seen_whatever_is_claimed(claim: int) -> None:
    """A controller that says nothing or the wrong thing of what held whom is found out."""
    topology = make_topology(oversubscription=1.4, priority=[10, 0] * 8, request_watts=690.0)
    important = topology.priority > 0
    judge, rng, moves = LoopJudge(topology), np.random.default_rng(1), 0
    for row in drive(topology, Faults(), rng, 60):
        row.plant.ask(690.0)
        assert not judge.unfair(row)
        caps = row.decisions.decided_cap_watts
        if caps[~important].max() >= 600.0:
            continue
        claimed = np.full(topology.n_gpus, claim)
        moved = np.where(important, caps - 60.0, caps + 60.0)
        lied = replace(row.decisions, decided_cap_watts=moved, binding_domain=claimed)
        assert judge.pairs(row.plant, lied)
        moves += 1
    assert moves > 10


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


@LOOPS
@given(SEEDS)
def test_i5_decided_allocations_keep_the_order_in_a_closed_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    faults = Faults(report_lost=0.05, batch_lost=0.05, ignores_cap_share=0.05)
    judge = LoopJudge(topology)
    for row in drive(topology, faults, rng, 50):
        assert not judge.unfair(row)


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
