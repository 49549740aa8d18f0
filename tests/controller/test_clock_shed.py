"""Clocks that shed load beside limits: who, how far, and what limits leave them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from controller.clock_shed import clocks_unseen, limit_room, shed_clocks
from controller.locks import law_of, lock_clocks
from controller.tick_values import Band, Commands, Decisions, Topology
from controller.topology import PodSpec, build_topology
from tests.controller.obedient_row import big_topology
from tests.controller.test_topology import make_node, make_policy, profiles, rack
from tests.controller.test_two_actuators import BOTH, CLOCK_MHZ, LockedRow, actuators, work
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.power.feasibility import LoadTree

LOWEST = 0.8
HALF = np.arange(48) % 4 < 2
CALM = -np.inf


def shedding(lowest: float = LOWEST, **changes: object) -> Topology:
    """Half of the boards of every server are of low priority and may shed by their clocks."""
    topology = big_topology(**{"priority": np.where(HALF, 0, 10), **changes})
    share = np.where(HALF, lowest, 1.0)
    clocks = np.full(topology.n_gpus, CLOCK_MHZ)
    return replace(topology, max_clock_mhz=clocks, shed_clock_share=share)


def tree_of(topology: Topology) -> LoadTree:
    return LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)


def after(excess: FloatArray, share: FloatArray | float = 1.0, seconds: float = 1.0) -> FloatArray:
    topology = shedding()
    before = np.broadcast_to(share, (topology.n_gpus,)).copy()
    return shed_clocks(before, topology, tree_of(topology), excess, seconds)


def domains(topology: Topology, value: float) -> FloatArray:
    return np.full(topology.n_domains, value)


def test_clocks_fall_by_the_excess_and_rise_slowly() -> None:
    topology = shedding()
    assert np.array_equal(after(domains(topology, 0.004)), np.ones(48))
    np.testing.assert_allclose(after(domains(topology, 0.01)), np.where(HALF, 0.98, 1.0))
    np.testing.assert_allclose(after(domains(topology, 0.5)), np.where(HALF, 0.94, 1.0))
    low = np.where(HALF, 0.85, 1.0)
    np.testing.assert_allclose(after(domains(topology, 0.5), low, 60.0), np.where(HALF, LOWEST, 1))
    # Neither near the target nor within it: nothing moves.
    np.testing.assert_allclose(after(domains(topology, 0.0), low), low)
    np.testing.assert_allclose(after(domains(topology, -0.02), low), np.where(HALF, 0.854, 1.0))
    np.testing.assert_allclose(after(domains(topology, CALM), low), np.where(HALF, 0.854, 1.0))


def test_who_takes_over_leaves_clocks_down_where_load_is_held() -> None:
    """A leader's clocks bring the draw to the target: its standby sees no excess to lower for."""
    topology = shedding()
    excess = domains(topology, CALM)
    leaf = int(topology.domain_of_node[0])
    excess[leaf] = 0.0
    share = clocks_unseen(topology, tree_of(topology), excess)
    held = HALF & (topology.domain_of_gpu == leaf)
    np.testing.assert_allclose(share, np.where(held, LOWEST, 1.0))
    first_tick = shed_clocks(share, topology, tree_of(topology), excess, 1.0)
    np.testing.assert_allclose(first_tick, share)


def test_a_standby_that_takes_over_keeps_the_locks_of_a_pressed_row() -> None:
    loop = LockedRow(shedding(oversubscription=1.55, floor_watts=450.0))
    loop.wanted[:] = np.where(HALF, 300.0, 500.0)
    loop.turn(60)
    loop.wanted[:] = np.where(HALF, 420.0, 650.0)
    loop.turn(120)
    locks = loop.locks.copy()
    # A standby saw the same reports and lowered nothing itself.
    loop.state = replace(loop.state, clock_share=np.ones(48))
    loop.changes["leading"] = False
    loop.turn(1)
    del loop.changes["leading"]
    commands, _ = loop.turn(1)
    assert locks[HALF].all()
    assert commands.lock_max_mhz[HALF].all()
    assert np.all(commands.lock_max_mhz <= locks)


def test_a_clock_follows_the_worst_domain_above_its_board() -> None:
    topology = shedding()
    excess = domains(topology, CALM)
    leaf = int(topology.domain_of_node[0])
    excess[leaf] = 0.02
    fallen = after(excess) < 1.0
    assert fallen.any()
    assert np.array_equal(fallen, HALF & (topology.domain_of_gpu == leaf))


def test_limits_leave_room_only_while_clocks_have_some_and_little_is_over() -> None:
    topology = shedding()
    load = tree_of(topology)

    def room(share: float, excess: float) -> FloatArray:
        whole = np.full(topology.n_gpus, share)
        return limit_room(whole, topology, load, domains(topology, excess))

    assert np.all(room(1.0, 0.0) == 0.02)
    np.testing.assert_allclose(room(LOWEST + 0.05, 0.0), 0.01)
    assert np.all(room(LOWEST, 0.0) == 0.0)
    assert np.all(room(1.0, 0.03) == 0.0)
    plain = big_topology()
    assert not plain.sheddable_gpu.any()
    assert np.all(limit_room(np.ones(48), plain, load, domains(plain, 0.0)) == 0.0)


def test_where_nobody_allows_it_no_clock_moves() -> None:
    for topology in (
        shedding(lowest=1.0),
        replace(shedding(), max_clock_mhz=np.zeros(48, dtype=np.int64)),
        shedding(enforce=False),
    ):
        moved = shed_clocks(
            np.ones(48), topology, tree_of(topology), domains(topology, 0.5), seconds=9.0
        )
        assert np.array_equal(moved, np.ones(48))


class OffLaw(LockedRow):
    """Locks shed another share of the draw than the assumed law says."""

    def __init__(self, topology: Topology, off: float) -> None:
        super().__init__(topology)
        self.off = off

    def turn(self, ticks: int) -> tuple[Commands, Decisions]:
        for _ in range(ticks):
            share = np.where(self.locks > 0, self.locks / CLOCK_MHZ, 1.0)
            shed = self.off * (1.0 - law_of(self.topology).draw_share(share))
            self.demand = self.wanted * (1.0 - shed)
            commands, decisions = self.run(1)
            reached = commands.send[self.topology.node_of_gpu]
            self.locks = np.where(reached, commands.lock_max_mhz, self.locks)
        return commands, decisions


@dataclass(frozen=True)
class Pressed:
    """What a row does that wants 1.02 of its rating, its low priority less than its floors.

    Attributes:
        load: Draw over rating of the row, second by second.
        worst: Worst load over what is survivable (I2), second by second.
        high_caps: Mean limit of high priority.
        locked: Boards locked at the end.
        guaranteed_watts: I1's worst case at the end.
    """

    load: FloatArray
    worst: FloatArray
    high_caps: FloatArray
    locked: BoolArray
    guaranteed_watts: FloatArray


@cache
def pressed(lowest: float, off: float = 1.0) -> Pressed:
    """Limits of low priority take nothing: it draws 420 W and its floor is 450 W."""
    topology = shedding(lowest=lowest, oversubscription=1.55, floor_watts=450.0)
    loop = OffLaw(topology, off)
    loop.wanted[:] = np.where(HALF, 300.0, 500.0)
    loop.turn(60)
    loop.wanted[:] = np.where(HALF, 420.0, 650.0)
    load, worst, caps = [], [], []
    for _ in range(240):
        commands, decisions = loop.turn(1)
        load.append(float(decisions.draw_watts[0] / topology.tree.rating_watts[0]))
        worst.append(float((decisions.worst_watts / decisions.survivable_watts).max()))
        caps.append(float(commands.cap_watts[~HALF].mean()))
    return Pressed(
        np.array(load),
        np.array(worst),
        np.array(caps),
        commands.lock_max_mhz > 0,
        decisions.guaranteed_watts,
    )


def test_clocks_of_low_priority_shed_what_high_priority_would_be_limited_for() -> None:
    limits, both = pressed(1.0), pressed(LOWEST)
    assert both.high_caps[120:].mean() > limits.high_caps[120:].mean() + 25.0
    assert np.array_equal(both.locked, HALF)
    assert not limits.locked.any()
    assert both.load[120:].max() < 1.0


@pytest.mark.parametrize("off", [0.0, 0.5, 1.0, 2.0])
def test_limits_hold_the_row_whatever_locks_really_shed(off: float) -> None:
    """How draw falls with a clock is assumed; nothing of the row's safety may rest on it."""
    limits, both = pressed(1.0), pressed(LOWEST, off)
    assert np.count_nonzero(both.load > 1.0) <= np.count_nonzero(limits.load > 1.0)
    assert both.load[5:].max() < 1.0
    # Neither clocks nor limits hunt: a settled load stays in a band.
    assert np.ptp(both.load[120:]) < 0.03


def test_a_lowered_clock_counts_for_nothing_in_worst_cases() -> None:
    limits, both = pressed(1.0), pressed(LOWEST)
    assert both.worst.max() <= 1.0 + 1e-9
    assert np.array_equal(limits.guaranteed_watts, both.guaranteed_watts)


def test_what_only_a_survivable_jump_limits_keeps_its_clock() -> None:
    topology = shedding(oversubscription=2.2)
    loop = LockedRow(topology)
    commands, decisions = loop.turn(60)
    assert np.all(decisions.band == Band.NORMAL)
    assert np.any(commands.cap_watts < 700.0)
    assert not commands.lock_max_mhz.any()


def test_locks_of_clocks_that_shed_are_steps_of_the_driver_from_their_lowest_on() -> None:
    topology = shedding()
    share = np.where(HALF, LOWEST, 1.0)
    nowhere = np.zeros(topology.n_domains, dtype=np.bool_)
    caps = np.full(48, 500.0)
    locks, follows = lock_clocks(topology, tree_of(topology), caps, nowhere, share)
    assert np.array_equal(locks, np.where(HALF, np.ceil(CLOCK_MHZ * LOWEST / 15) * 15, 0))
    # What is locked counts at its limit, as all that shows less than it wants.
    assert np.array_equal(np.isfinite(follows), HALF)


def test_a_row_that_calms_down_opens_its_clocks_again() -> None:
    topology = shedding(oversubscription=1.0)
    loop = LockedRow(topology)
    loop.changes = {"budget_watts": 0.6 * topology.tree.rating_watts}
    loop.turn(40)
    loop.wanted[:] = 690.0
    loop.turn(20)
    assert loop.locks.any()
    loop.wanted[:] = 100.0
    loop.turn(60)
    assert not loop.locks.any()


def test_both_actuators_on_work_that_prefers_none_shed_down_to_what_the_floor_promises() -> None:
    for known in (None, work("decoder-prefill")):
        topology = actuators(known, allowed=BOTH)
        assert not topology.clock_lock[0]
        assert 0.6 < topology.shed_clock_share[0] < 1.0
        assert topology.sheddable_gpu[0]
    # Work that a lock costs nothing is locked by its own law, and limits alone lower no clock.
    assert actuators(work("decoder-decode"), allowed=BOTH).shed_clock_share[0] == 1.0
    for allowed in (("PowerLimit",), ("ClockLock",)):
        assert actuators(None, allowed=allowed).shed_clock_share[0] == 1.0


def test_a_floor_that_promises_everything_lowers_no_clock() -> None:
    policy = make_policy("all", 1, allowedActuators=list(BOTH), floorFraction=1.0)
    node = make_node("n1", "a")
    pod = PodSpec("default", "p", (node.gpus[0].uuid,))
    made = build_topology([rack("a", None)], [policy], [node], [pod], profiles())
    assert made.shed_clock_share[0] == pytest.approx(1.0)
