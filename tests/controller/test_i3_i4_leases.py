"""I3 and I4: what a GPU may hold under its lease, and who may command it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from controller.commitments import Commitments, holding, initial_commitments, record, seen
from controller.step import initial_state, step
from controller.tick_values import Commands, Observations, Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.controller.closed_loop import LOOPS, SEEDS, drive, random_topology
from tests.controller.faulty_plant import Faults


@LOOPS
@given(SEEDS)
def test_i3_every_gpu_counts_at_least_what_it_really_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    faults = Faults(
        report_lost=0.2,
        batch_lost=0.2,
        batch_delay_seconds=2,
        silent_write_failure=0.1,
        reboot=0.01,
    )
    for row in drive(topology, faults, rng, 60):
        assert np.all(np.array(row.plant.caps()) <= row.decisions.highest_cap_watts + 1e-6)


def test_i3_a_silent_node_counts_at_its_default_limits_even_after_expiry() -> None:
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    observed = make_observations(topology, 0)
    state, _, first = step(Tick(topology, observed, SETTINGS, 0), state)
    received = observed.node_received_ns.copy()
    received[1:] = seconds(60)
    late = replace(observed, node_received_ns=received)
    _, commands, decisions = step(Tick(topology, late, SETTINGS, seconds(60)), state)
    silent = topology.node_of_gpu == 0
    assert np.all(first.highest_cap_watts[silent] == topology.guaranteed_watts[silent])
    assert np.all(decisions.highest_cap_watts[silent] == topology.default_limit_watts[silent])
    assert not commands.send[0]
    assert decisions.silent_nodes[0]


def test_i3_nothing_is_sent_to_a_node_whose_report_is_too_old_to_answer() -> None:
    topology = make_topology()
    observed = make_observations(topology, 0)
    state, _, _ = step(Tick(topology, observed, SETTINGS, 0), initial_state(topology, SETTINGS))
    _, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(2.5)), state)
    assert not commands.send.any()


def test_i4_a_follower_sends_nothing() -> None:
    topology = make_topology()
    observed = make_observations(topology, 0, leading=False)
    _, commands, decisions = step(
        Tick(topology, observed, SETTINGS, 0), initial_state(topology, SETTINGS)
    )
    assert not commands.send.any()
    assert np.all(decisions.decided_cap_watts > 0)


@pytest.mark.parametrize(
    "cannot_raise", [{"may_raise": False}, {"node_epoch": np.full(4, 99)}], ids=["stale", "fenced"]
)
def test_i4_a_leader_that_may_not_raise_only_extends_or_lowers(
    cannot_raise: dict[str, object],
) -> None:
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    for tick in range(40):
        observed = make_observations(topology, seconds(tick), **cannot_raise)
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        assert commands.send.all()
        assert np.all(commands.cap_watts <= observed.gpu_limit_watts + 1e-6)


def test_i4_a_new_leader_raises_nothing_for_one_ttl() -> None:
    topology = make_topology(oversubscription=1.0)
    state = initial_state(topology, SETTINGS)
    raised_at = []
    for tick in range(60):
        epoch = 1 if tick < 30 else 2
        observed = make_observations(topology, seconds(tick), epoch=epoch)
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        if np.any(commands.cap_watts > observed.gpu_limit_watts + 1e-6):
            raised_at.append(tick)
    assert raised_at
    assert not set(raised_at) & set(range(30, 34))
    assert 35 in raised_at


def test_i4_sequence_rises_within_an_epoch_and_nonces_are_echoed() -> None:
    topology = make_topology()
    state, sequences = initial_state(topology, SETTINGS), []
    for tick in range(5):
        nonce = np.arange(10, 10 + topology.n_nodes, dtype=np.uint64)
        observed = make_observations(topology, seconds(tick), node_nonce=nonce)
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        sequences.append(commands.sequence)
        assert np.array_equal(commands.nonce, nonce)
    assert sequences == sorted(set(sequences))


def test_i4_an_epoch_out_of_reach_neither_stops_raises_nor_goes_untold() -> None:
    topology = make_topology(oversubscription=1.0)
    state, kinds, raised = initial_state(topology, SETTINGS), [], False
    for tick in range(40):
        poisoned = np.array([0, 2**31, 0, 0]) if tick >= 5 else np.zeros(4, dtype=np.int64)
        observed = make_observations(topology, seconds(tick), node_epoch=poisoned)
        state, commands, decisions = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        raised |= bool(np.any(commands.cap_watts > observed.gpu_limit_watts + 1e-6))
        kinds += [(t.domain, t.kind) for t in decisions.transitions]
    assert raised
    assert kinds == [("d1", "EpochIgnored")]


def test_i4_a_node_that_rebooted_is_not_raised_to_what_was_sent_before() -> None:
    topology = make_topology(oversubscription=1.3)
    state = initial_state(topology, SETTINGS)
    limits, sequence = topology.guaranteed_watts.copy(), 0
    for tick in range(60):
        confirmed = np.full(topology.n_gpus, sequence)
        observed = make_observations(
            topology, seconds(tick), gpu_limit_watts=limits, gpu_confirmed_sequence=confirmed
        )
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        limits, sequence = commands.cap_watts.copy(), commands.sequence
    back = topology.node_of_gpu == 0
    assert np.all(limits[back] > topology.guaranteed_watts[back] + 20.0)
    limits[back] = topology.guaranteed_watts[back]
    observed = make_observations(
        topology,
        seconds(60),
        gpu_limit_watts=limits,
        gpu_confirmed_sequence=np.where(back, 0, sequence),
        node_rebooted=np.array([True, False, False, False]),
    )
    _, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(60)), state)
    assert commands.send[0]
    assert np.all(commands.cap_watts[back] <= topology.guaranteed_watts[back] + 1e-6)


def test_i3_a_cap_of_an_earlier_term_that_ran_out_does_not_come_back() -> None:
    """Commands that leave the ring unconfirmed once lent their time to what had run out before."""
    topology = make_topology(priority=[0] * 8, nodes=(0, 0), parents=(-1,))
    now = seconds(0)
    earlier = record_for(
        topology, initial_commitments(topology.n_gpus, topology.n_nodes, 1, now), now, 1, 1, 660.0
    )
    commitments = earlier
    for second in range(1, 120):
        now = seconds(second)
        tick = Tick(topology, silent_confirmation(topology, now, epoch=2), SETTINGS, now)
        commitments = seen(tick, commitments)
        commitments = record_for(topology, commitments, now, 2, commitments.next_sequence, 264.0)
        if second > 10:
            assert holding(tick, commitments).held_watts.max() <= 264.0


def silent_confirmation(topology: Topology, now_ns: int, epoch: int) -> Observations:
    """Heard and read back, but no sequence is ever confirmed."""
    observed = make_observations(
        topology, now_ns, gpu_limit_watts=np.full(topology.n_gpus, 264.0), epoch=epoch
    )
    return replace(observed, gpu_confirmed_sequence=np.zeros(topology.n_gpus, dtype=np.int64))


def record_for(
    topology: Topology, before: Commitments, now_ns: int, epoch: int, sequence: int, watts: float
) -> Commitments:
    """The commitments after everybody was sent a cap."""
    tick = Tick(topology, silent_confirmation(topology, now_ns, epoch), SETTINGS, now_ns)
    commands = Commands(
        epoch=epoch,
        sequence=sequence,
        ttl_ms=SETTINGS.lease_ttl_ms,
        send=np.ones(topology.n_nodes, dtype=np.bool_),
        nonce=np.ones(topology.n_nodes, dtype=np.uint64),
        cap_watts=np.full(topology.n_gpus, watts),
        lock_max_mhz=np.zeros(topology.n_gpus, dtype=np.int64),
        guaranteed_watts=np.full(topology.n_gpus, 200.0),
        decided_ns=now_ns,
    )
    return record(tick, before, commands)
