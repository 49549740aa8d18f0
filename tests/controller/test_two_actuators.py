"""Lock and limit on one board: the limit carries I1 and I2, the lock sheds where it costs least."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.pod_works import KnownWork
from controller.lock_law import LockLaw
from controller.locks import law_of
from controller.tick_values import Band, Topology
from controller.topology import PodSpec, build_topology
from tests.controller.builders import DEFAULT_WATTS
from tests.controller.obedient_row import ObedientRow, big_topology
from tests.controller.test_topology import make_node, make_policy, profiles, rack
from wattpack.api import WorkloadProfile
from wattpack.power.domain_tree import FloatArray

CLOCK_MHZ = 1980


def locked_topology(law: LockLaw | None = None, **changes: Any) -> Topology:
    topology = big_topology(**{"clock_lock": True, **changes})
    clocks = np.full(topology.n_gpus, CLOCK_MHZ)
    return replace(topology, max_clock_mhz=clocks, lock_law=law)


def free_until(share: float, open_watts: float = DEFAULT_WATTS, n: int = 48) -> LockLaw:
    return LockLaw(np.full(n, open_watts), np.full(n, 0.2), np.full(n, share))


class LockedRow(ObedientRow):
    """Boards whose draw follows their locks by the law that the controller knows."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self.locks = np.zeros(topology.n_gpus, dtype=np.int64)
        self.wanted: FloatArray = np.full(topology.n_gpus, 100.0)

    def turn(self, ticks: int) -> tuple[Any, Any]:
        for _ in range(ticks):
            share = np.where(self.locks > 0, self.locks / CLOCK_MHZ, 1.0)
            self.demand = self.wanted * law_of(self.topology).draw_share(share)
            commands, decisions = self.run(1)
            reached = commands.send[self.topology.node_of_gpu]
            self.locks = np.where(reached, commands.lock_max_mhz, self.locks)
        return commands, decisions


def test_a_locked_board_is_limited_like_any_other() -> None:
    """What unknown work is worth a lock changes no limit: I1, I2 and I5 see the same caps."""
    rows = []
    for lock in (False, True):
        loop = ObedientRow(locked_topology(clock_lock=lock))
        loop.run(60)
        loop.demand[:] = 690.0
        commands, decisions = loop.run(8)
        rows.append((commands, decisions))
    (limited, by_limits), (locked, by_both) = rows
    assert np.any(limited.cap_watts < DEFAULT_WATTS)
    assert np.array_equal(limited.cap_watts, locked.cap_watts)
    assert np.array_equal(by_limits.highest_cap_watts, by_both.highest_cap_watts)
    assert np.array_equal(by_limits.guaranteed_watts, by_both.guaranteed_watts)
    assert np.array_equal(locked.lock_max_mhz > 0, locked.cap_watts < DEFAULT_WATTS - 1.0)
    assert not limited.lock_max_mhz.any()
    assert np.array_equal(by_both.lock_max_mhz, locked.lock_max_mhz)


def test_i2_lowers_locked_boards_too() -> None:
    topology = locked_topology(oversubscription=2.2)
    loop = ObedientRow(topology)
    commands, decisions = loop.run(40)
    assert np.any(commands.cap_watts < DEFAULT_WATTS)
    assert np.all(decisions.worst_watts <= decisions.survivable_watts + 1e-6)


def test_i1_guarantees_locked_boards_what_others_are_guaranteed() -> None:
    limited, locked = locked_topology(clock_lock=False), locked_topology()
    assert np.array_equal(limited.guaranteed_watts, locked.guaranteed_watts)
    assert np.all(locked.guaranteed_watts < DEFAULT_WATTS)


def test_clocks_follow_the_cap_by_the_law_in_steps_of_the_driver() -> None:
    loop = ObedientRow(locked_topology())
    loop.run(60)
    loop.demand[:] = 690.0
    commands, _ = loop.run(8)
    locked = commands.lock_max_mhz > 0
    assert np.all(commands.lock_max_mhz % 15 == 0)
    share = commands.lock_max_mhz[locked] / CLOCK_MHZ
    drawn = DEFAULT_WATTS * (0.2 + 0.8 * share**1.4)
    assert np.all(drawn >= commands.cap_watts[locked] - 1e-6)
    assert np.all(drawn <= commands.cap_watts[locked] + 10.0)


def test_a_calm_row_is_not_locked() -> None:
    loop = ObedientRow(locked_topology(free_until(0.5)))
    commands, _ = loop.run(60)
    assert not commands.lock_max_mhz.any()


def test_what_a_lock_sheds_for_nothing_is_shed_before_anybody_is_limited_further() -> None:
    """Half of the row keeps its speed at half its clock: the other half is hardly capped."""
    held = []
    for free in (1.0, 0.5):
        law = free_until(free)
        half = np.arange(48) % 4 < 2
        topology = locked_topology(law, priority=0, oversubscription=1.0)
        loop = LockedRow(replace(topology, clock_lock=half))
        loop.changes = {"budget_watts": 0.7 * topology.tree.rating_watts}
        loop.turn(60)
        loop.wanted[:] = 690.0
        _, decisions = loop.turn(120)
        assert np.all(decisions.band == Band.CAPPING)
        held.append(float(decisions.decided_cap_watts[~half].mean()))
    assert held[1] > held[0] + 100.0


def test_the_watts_that_a_lock_sheds_do_not_end_the_capping_that_sheds_them() -> None:
    loop = LockedRow(locked_topology(free_until(0.5)))
    loop.turn(60)
    loop.wanted[:] = 690.0
    loop.turn(30)
    bands = {int(loop.turn(1)[1].band.max()) for _ in range(200)}
    assert bands == {int(Band.CAPPING)}


def test_a_domain_that_only_watches_locks_nothing() -> None:
    loop = ObedientRow(locked_topology(free_until(0.5), enforce=False))
    loop.caps[:] = DEFAULT_WATTS
    loop.run(60)
    loop.demand[:] = 690.0
    _, decisions = loop.run(8)
    assert np.all(decisions.band == Band.CAPPING)
    assert not decisions.lock_max_mhz.any()


def test_locks_go_when_the_demand_does() -> None:
    loop = LockedRow(locked_topology(free_until(0.5)))
    loop.turn(60)
    loop.wanted[:] = 690.0
    commands, _ = loop.turn(60)
    assert commands.lock_max_mhz.all()
    loop.wanted[:] = 150.0
    commands, decisions = loop.turn(200)
    assert np.all(decisions.band == Band.NORMAL)
    assert not commands.lock_max_mhz.any()


def work(entry: str) -> KnownWork:
    return KnownWork(entry, shipped_catalogue()[entry])


def actuators(*works: KnownWork | None, allowed: tuple[str, ...]) -> Topology:
    """A row in which these works share the first board."""
    pods = [
        PodSpec("default", f"pod-{i}", ("n0-0",), {}, work=known) for i, known in enumerate(works)
    ]
    policies = [make_policy("all", 0, allowedActuators=list(allowed))]
    nodes = [make_node(f"n{i}") for i in range(2)]
    return build_topology([rack("a", None)], policies, nodes, pods, profiles())


BOTH = ("PowerLimit", "ClockLock")


@pytest.mark.parametrize(
    ("entry", "locked"),
    [
        ("decoder-decode", True),  # waits for memory
        ("memory-stream", True),
        ("vision-preprocess", True),  # waits for launches
        ("decoder-prefill", False),
        ("finetune", False),
        ("rnn-sequential", False),  # draws little, but each step waits for the one before
    ],
)
def test_the_work_decides_between_actuators_that_the_policy_allows(
    entry: str, locked: bool
) -> None:
    assert bool(actuators(work(entry), allowed=BOTH).clock_lock[0]) is locked


def test_a_policy_permits_and_never_forces_by_preference() -> None:
    decode = work("decoder-decode")
    assert not actuators(decode, allowed=("PowerLimit",)).clock_lock[0]
    assert actuators(None, allowed=("ClockLock",)).clock_lock[0]


def test_unknown_work_counts_as_bound_by_its_clock() -> None:
    assert not actuators(None, allowed=BOTH).clock_lock.any()


def test_one_tenant_that_loses_by_a_lock_keeps_the_board_from_it() -> None:
    decode, prefill = work("decoder-decode"), work("decoder-prefill")
    assert actuators(decode, decode, allowed=BOTH).clock_lock[0]
    assert not actuators(decode, prefill, allowed=BOTH).clock_lock[0]
    assert not actuators(decode, None, allowed=BOTH).clock_lock[0]


def test_a_doubtful_verdict_locks_nothing() -> None:
    body = {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "WorkloadProfile",
        "metadata": {"name": "job-x", "namespace": "default"},
        "spec": {"kind": "Serving", "workload": "decoder-decode", "confidence": 0.9},
    }
    doubtful = KnownWork(
        "job-x", shipped_catalogue()["decoder-decode"], WorkloadProfile.from_json(body)
    )
    assert not actuators(doubtful, allowed=BOTH).clock_lock[0]


def test_work_that_waits_for_launches_gives_its_clock_up_whole() -> None:
    law = actuators(work("vision-preprocess"), allowed=BOTH).lock_law
    assert law is not None
    assert law.free_share[0] == pytest.approx(0.4)
    assert law.open_watts[0] < 200.0
