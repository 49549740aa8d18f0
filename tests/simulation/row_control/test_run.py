"""A row under a policy: what is held, what falls, and what the books say."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.row_control.faults import RowFault, RowFaultKind
from simulation.row_control.row_policy import StaticCaps, Uncapped
from simulation.row_control.run import RowRun, RowSetup
from simulation.row_control.work import HIGH, LOW, LevelWork
from tests.simulation.row_control.rows import (
    SERVERS,
    halves,
    small_row,
    topology_of,
    wattpack_run,
)
from wattpack.errors import InputError

K = RowFaultKind
NODES = np.ones(SERVERS, dtype=np.bool_)


def test_wattpack_raises_from_guaranteed_caps_and_keeps_the_breaker_cool() -> None:
    run = wattpack_run(small_row(), [(0.0, 300.0), (30.0, 690.0)])
    result = run.run(90.0)
    assert result.trips == 0
    assert result.violations == {}
    assert result.max_heat.max() < 0.25
    assert result.cap_watts[25].min() > result.cap_watts[0].max()
    # The class that matters more is raised first.
    assert result.cap_watts[15, HIGH] > result.cap_watts[15, LOW] + 50.0
    assert (result.done[-1] > 0.0).all()


def test_the_same_row_without_caps_trips() -> None:
    n = SERVERS * 8
    work = LevelWork(halves(n), [(0.0, 690.0)])
    run = RowRun(RowSetup(small_row()), work, lambda _: Uncapped(np.full(n, 700.0)))
    result = run.run(120.0)
    assert result.trips > 0
    assert result.peak_ratio[0] > 1.0
    assert result.above_seconds[0] > 5.0


def test_static_caps_cost_their_share_and_nothing_else() -> None:
    n = SERVERS * 8
    work = LevelWork(halves(n), [(0.0, 600.0)])
    run = RowRun(RowSetup(small_row()), work, lambda _: StaticCaps(np.full(n, 450.0)))
    result = run.run(30.0)
    assert result.cap_changes == 0
    assert result.violations == {}
    assert result.done[-1].sum() == pytest.approx(n * 30.0 * 450.0 / 600.0, rel=0.05)


def test_a_dead_controller_leaves_guaranteed_caps_within_a_lease_and_a_write() -> None:
    crash = RowFault(K.CONTROLLER_DOWN, 40.0, 60.0)
    run = wattpack_run(small_row(), [(0.0, 300.0)], crash)
    guaranteed = topology_of(small_row()).guaranteed_watts
    run.run(40.0)
    before = run.actuators.limit_watts.ravel().copy()
    assert (before > guaranteed + 1.0).all()
    result = run.run(5.0)
    assert (run.actuators.limit_watts.ravel() <= guaranteed + 1e-6).all()
    assert result.expired == SERVERS * 8
    after = run.run(60.0)
    assert after.violations == {}
    # The next leader has a higher epoch, which every actuator accepts, and raises again.
    assert (run.actuators.epoch == 2).all()
    assert (run.actuators.limit_watts.ravel() > guaranteed + 1.0).all()


def test_lost_messages_expire_leases_and_nobody_falls_without_loss() -> None:
    scenario = small_row()
    calm = wattpack_run(scenario, [(0.0, 300.0)]).run(60.0)
    cut = RowFault(K.MESSAGE_LOSS, 30.0, 60.0, NODES, 1.0)
    lost = wattpack_run(scenario, [(0.0, 300.0)], cut).run(60.0)
    assert calm.expired == 0
    assert lost.expired >= SERVERS * 8
    assert lost.trips == 0


def test_a_rebooted_server_is_dark_then_capped_before_it_works() -> None:
    node = np.arange(SERVERS) == 2
    reboot = RowFault(K.NODE_REBOOT, 30.0, 50.0, node)
    run = wattpack_run(small_row(), [(0.0, 500.0)], reboot)
    run.run(45.0)
    assert not run.plant.up[2]
    assert run.plant.servers.host_watts[2] >= 0.0
    done = run.work.done()[2 * 8]
    run.run(5.0)
    assert run.work.done()[2 * 8] == done
    run.run(2.5)
    assert run.plant.up[2]
    guaranteed = run.actuators.guaranteed_watts[2]
    assert (run.actuators.limit_watts[2] <= guaranteed + 1e-6).all()
    run.run(30.0)
    assert run.actuators.boot[2] == 2
    assert (run.actuators.epoch == 1).all()


def test_frozen_readings_stand_still_while_the_counter_goes_on() -> None:
    every = np.ones(SERVERS * 8, dtype=np.bool_)
    frozen = RowFault(K.READINGS_FROZEN, 10.0, 30.0, every)
    run = wattpack_run(small_row(), [(0.0, 200.0), (12.0, 400.0)], frozen)
    run.run(20.0)
    policy = run.policy
    draws = policy._draw.copy()  # type: ignore[attr-defined]
    run.run(3.0)
    assert (policy._draw == draws).all()  # type: ignore[attr-defined]
    assert (policy._energy > draws + 50.0).any()  # type: ignore[attr-defined]


def test_boards_that_ignore_caps_are_seen_by_the_monitor_as_nothing_of_ours() -> None:
    some = np.zeros(SERVERS * 8, dtype=np.bool_)
    some[:2] = True
    deaf = RowFault(K.IGNORES_CAP, 20.0, 60.0, some)
    result = wattpack_run(small_row(), [(0.0, 650.0)], deaf).run(60.0)
    assert result.trips == 0
    assert "I3" not in result.violations


def test_the_monitor_counts_a_cap_above_guaranteed_without_a_lease() -> None:
    run = wattpack_run(small_row(), [(0.0, 300.0)])
    run.run(3.0)
    run.actuators.cap_watts[:] = 700.0
    run.actuators.deadline_ns[:] = np.iinfo(np.int64).max // 2
    run.monitor.check(np.full(SERVERS, run.plant.now_ns, float), run.actuators.cap_watts < 0)
    assert run.monitor.counts["I3"] == 1


def test_the_monitor_counts_guaranteed_caps_that_break_the_floor() -> None:
    run = wattpack_run(small_row(), [(0.0, 300.0)])
    run.actuators.guaranteed_watts[:] = 700.0
    run.monitor.check(np.full(SERVERS, run.plant.now_ns, float), run.actuators.cap_watts < 0)
    assert run.monitor.counts["I1"] >= 1


@pytest.mark.parametrize("raised_watts", [0.0, 12.0])
def test_with_a_declared_line_the_monitor_counts_what_servers_can_draw_beside_held_boards(
    raised_watts: float,
) -> None:
    plain, by_line = (
        small_row(row=small_row().row.model_dump() | {"rated_servers": 3.8, "host_line": line})
        for line in (False, True)
    )
    guaranteed = topology_of(by_line).guaranteed_watts
    assert guaranteed.min() > topology_of(plain).guaranteed_watts.max() + 20.0
    seen = {}
    for name, scenario in (("line", by_line), ("none", plain)):
        run = wattpack_run(scenario, [(0.0, 300.0)])
        run.actuators.guaranteed_watts[:] = guaranteed.reshape(SERVERS, 8) + raised_watts
        run.monitor.check(np.full(SERVERS, run.plant.now_ns, float), run.actuators.cap_watts < 0)
        seen[name] = run.monitor.counts["I1"]
    # Without the line the same caps are too high; with it a few watts more are.
    assert seen["none"] >= 1
    assert (seen["line"] >= 1) == (raised_watts > 0.0)


def test_a_row_with_a_declared_line_runs_as_one_without() -> None:
    row = small_row().row.model_dump() | {"rated_servers": 3.8, "host_line": True}
    crash = RowFault(K.CONTROLLER_DOWN, 40.0, 60.0)
    result = wattpack_run(small_row(row=row), [(0.0, 300.0), (30.0, 690.0)], crash).run(120.0)
    assert result.trips == 0
    assert result.violations == {}
    assert result.expired >= SERVERS * 8
    # Everything at its guaranteed cap, fans still at speed, cools the breaker.
    fallen = (result.seconds > 48.0) & (result.seconds < 60.0)
    assert 0.5 < result.load_ratio[fallen, 0].max() < 1.0


def test_a_seed_decides_a_run() -> None:
    levels = [(0.0, 300.0), (20.0, 650.0)]
    first = wattpack_run(small_row(seed=5), levels).run(40.0)
    again = wattpack_run(small_row(seed=5), levels).run(40.0)
    other = wattpack_run(small_row(seed=6), levels).run(40.0)
    assert (first.load_ratio == again.load_ratio).all()
    assert (first.load_ratio != other.load_ratio).any()


def test_levels_out_of_order_are_refused() -> None:
    with pytest.raises(InputError, match="levels"):
        LevelWork(halves(4), [(1.0, 300.0)])
    with pytest.raises(InputError, match="begin_seconds"):
        RowFault(K.API_DOWN, 5.0, 2.0)
