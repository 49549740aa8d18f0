"""Starts of random runs satisfy I1 and I2, and a run begins as it was drawn."""

from __future__ import annotations

import numpy as np
import pytest

from controller.tick_values import Band, PowerSettings
from simulation.row_control.controller_memory import FIRST_EPOCH, KINDS, draw_memory
from simulation.row_control.faults import RowFault, RowFaultKind, RowFaults
from simulation.row_control.jump_judge import JumpJudge
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.start_states import RowStart, draw_start
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.row_control.work import LevelWork
from tests.simulation.row_control.rows import SERVERS, halves, small_row, topology_of
from wattpack.units import NS_PER_SECOND

SCENARIO = small_row()
PLANT = RowPlant(SCENARIO, START_NS)
TOPOLOGY = topology_of(SCENARIO)
LEASE_SECONDS = 4.0
STARTS = [draw_start(s, PLANT, TOPOLOGY.guaranteed_watts, LEASE_SECONDS) for s in range(200)]
K = RowFaultKind


def judge_by_hand(start: RowStart) -> bool:
    """I2 for the row and both racks, from the page: caps, overshoot, gains, hosts, losses."""
    constants = SCENARIO.plant
    fits = True
    for domain, members in enumerate((np.ones(SERVERS, bool), *(PLANT.members(d) for d in (1, 2)))):
        boards = 8 * members.sum()
        gpus = start.cap_watts[members].sum() * 1.05 * (1.0 + 0.09 / np.sqrt(boards))
        hosts = members.sum() * constants.worst_host_watts
        ratio = (gpus + hosts) / constants.supply_efficiency / PLANT.breakers.rating_watts[domain]
        heat = start.heat[domain]
        if ratio > 1.0:
            ratios = np.full(3, ratio)
            heat += (LEASE_SECONDS + 1.8) / PLANT.breakers.earliest_seconds(ratios)[domain]
        fits &= ratio <= 1.5 and heat <= (0.25 if domain == 0 else 0.5) + 1e-9
    return bool(fits)


def test_a_start_is_a_function_of_its_seed() -> None:
    again = draw_start(7, PLANT, TOPOLOGY.guaranteed_watts, LEASE_SECONDS)
    assert np.array_equal(again.cap_watts, STARTS[7].cap_watts)
    assert np.array_equal(again.heat, STARTS[7].heat)


def test_every_start_survives_a_jump_and_many_are_as_high_as_that_allows() -> None:
    guaranteed = TOPOLOGY.guaranteed_watts.reshape(SERVERS, 8)
    default = PLANT.bank.default_limit_watts.reshape(SERVERS, 8)
    assert all(judge_by_hand(start) for start in STARTS)
    raised = [s for s in STARTS if (s.cap_watts > guaranteed + 50.0).any()]
    assert len(raised) > 100
    judge = JumpJudge(PLANT, LEASE_SECONDS)
    # Eight watts a board more would be too much for a good part of them.
    full = [
        s
        for s in raised
        if not judge.survives(s.heat, np.minimum(s.cap_watts + 8.0, default).sum(axis=1)).all()
    ]
    assert len(full) > 20


def test_starts_hold_leases_locks_heat_and_servers_out_of_band() -> None:
    guaranteed = TOPOLOGY.guaranteed_watts.reshape(SERVERS, 8)
    for start in STARTS:
        above = (start.cap_watts > guaranteed + 0.5).any(axis=1)
        assert np.array_equal(above, start.lease_seconds > 0.0)
        assert start.lease_seconds.max() <= LEASE_SECONDS
        assert (start.cap_watts[start.out_of_band] == guaranteed[start.out_of_band]).all()
        assert start.heat.min() >= 0.0
        assert start.heat.max() <= 0.2
    assert any(start.out_of_band.any() for start in STARTS)
    assert any(start.lock_mhz.any() for start in STARTS)
    assert any((start.heat == 0.0).all() for start in STARTS)


def run_from(start: RowStart, *faults: RowFault) -> RowRun:
    settings = PowerSettings()
    _, state = draw_memory(3, TOPOLOGY, settings, start, PLANT)

    def policies(epoch: int) -> WattpackPolicy:
        return WattpackPolicy(TOPOLOGY, settings, epoch, state if epoch == FIRST_EPOCH else None)

    setup = RowSetup(SCENARIO, RowFaults(faults), start=start)
    return RowRun(setup, LevelWork(halves(SERVERS * 8), [(0.0, 500.0)]), policies)


def test_a_run_begins_with_what_was_drawn_and_keeps_the_invariants() -> None:
    start = next(s for s in STARTS if s.lock_mhz.any() and s.heat[0] > 0.1)
    run = run_from(start)
    assert np.array_equal(run.plant.breakers.heat, start.heat)
    assert np.array_equal(run.plant.bank.limit_watts, start.cap_watts.ravel())
    assert np.array_equal(run.plant.bank.lock_max_mhz, start.lock_mhz.ravel())
    result = run.run(20.0)
    assert result.violations == {}
    assert result.trips == 0


def test_a_leader_in_the_middle_of_its_term_lets_no_lease_end_and_is_not_recovering() -> None:
    start = next(s for s in STARTS if s.lease_seconds.all() and s.heat[0] > 0.1)
    run = run_from(start)
    policy = run.policy
    assert isinstance(policy, WattpackPolicy)
    assert policy.state.commitments.epoch == FIRST_EPOCH
    assert run.run(8.0).expired == 0
    assert not policy.state.recovering.any()


def test_nobody_lifts_a_server_out_of_band_and_after_a_reload_it_is_late() -> None:
    start = next(s for s in STARTS if s.out_of_band.any())
    late = start.out_of_band
    reload = RowFault(K.DRIVER_RELOAD, 20.0, 20.0, late)
    run = run_from(start, reload)
    guaranteed = TOPOLOGY.guaranteed_watts.reshape(SERVERS, 8)
    run.run(19.0)
    assert (run.actuators.limit_watts[late] == guaranteed[late]).all()
    assert (run.actuators.limit_watts[~late] > guaranteed[~late] + 10.0).any()
    run.run(30.0)
    default = PLANT.bank.default_limit_watts.reshape(SERVERS, 8)
    assert (run.actuators.limit_watts[late] == default[late]).all()
    run.run(15.0)
    assert (run.actuators.limit_watts[late] == guaranteed[late]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_is_empty_or_knows_heat_bands_and_its_term(kind: str) -> None:
    settings = PowerSettings()
    start = next(s for s in STARTS if s.lease_seconds.any() and s.heat.any())
    drawn = [draw_memory(s, TOPOLOGY, settings, start, PLANT) for s in range(60)]
    states = [state for name, state in drawn if name == kind]
    assert states
    known = kind != "new"
    assert all(np.array_equal(s.heat, start.heat) == known for s in states)
    assert all(s.recovering.any() != known for s in states)
    led = {s.commitments.since_ns < START_NS - NS_PER_SECOND for s in states if s.commitments.epoch}
    assert led == ({True} if kind == "leading" else set())
    if known:
        bands = np.concatenate([s.bands.band for s in states])
        assert set(bands.tolist()) == {int(band) for band in Band}
        worst = TOPOLOGY.node_worst_watts
        shares = np.concatenate([s.server_hosts.watts / worst for s in states])
        assert np.isnan(shares).any()
        assert np.nanmin(shares) > 0.2
        assert np.nanmax(shares) < 1.0
