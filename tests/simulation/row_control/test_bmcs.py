"""A row whose servers are read by their BMCs alone: late, lagging, silent and frozen ones."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.row_control.faults import RowFault, RowFaultKind
from simulation.row_control.run import RowRun
from simulation.row_control.wattpack_policy import WattpackPolicy
from tests.simulation.row_control.rows import SERVERS, small_row, wattpack_run

K = RowFaultKind
EVERY = np.ones(SERVERS, dtype=np.bool_)
SWINGS = [(float(t), 350.0 if t % 20 else 600.0) for t in range(0, 300, 10)]


def hosts_of(run: RowRun) -> np.ndarray:
    """What the controller is told of servers beside boards, NaN for nothing, (n_nodes,)."""
    assert isinstance(run.policy, WattpackPolicy)
    assert run.policy.seen is not None
    return run.policy.seen.host_watts


def lagging(delay_seconds: float) -> dict[str, object]:
    meter = {"period_seconds": 2.0, "delay_seconds": delay_seconds, "noise_ratio": 0.01}
    row = small_row().row.model_dump() | {"bmc_meter": meter}
    return {"row": row}


def test_the_scenario_and_the_setup_ask_the_same_bmcs() -> None:
    by_setup = wattpack_run(small_row(), SWINGS, meters=False, bmcs=True)
    row = small_row().row.model_dump() | {"bmc": "simulated"}
    by_scenario = wattpack_run(small_row(row=row), SWINGS, meters=False)
    for run in (by_setup, by_scenario):
        run.run(60.0)
    assert hosts_of(by_setup).tolist() == hosts_of(by_scenario).tolist()
    assert np.isfinite(hosts_of(by_setup)).all()


@pytest.mark.parametrize("delay_seconds", [2.0, 10.0, 20.0])
def test_whole_servers_that_are_read_late_show_what_is_drawn_beside_swinging_boards(
    delay_seconds: float,
) -> None:
    run = wattpack_run(small_row(**lagging(delay_seconds)), SWINGS, meters=False, bmcs=True)
    run.run(100.0)
    for _ in range(60):
        run.run(1.0)
        off = hosts_of(run) - run.plant.servers.host_watts
        assert off.mean() > -150.0
        assert off.mean() < 500.0
    result = run.run(10.0)
    assert result.trips == 0
    assert result.violations == {}


def test_the_row_fills_more_of_its_rating_than_at_declared_worsts() -> None:
    levels = [(0.0, 690.0)]
    loads = [
        wattpack_run(small_row(), levels, meters=False, bmcs=bmcs).run(180.0).load_ratio[-60:, 0]
        for bmcs in (False, True)
    ]
    assert loads[1].mean() > loads[0].mean() + 0.05
    assert loads[1].max() < 1.0


@pytest.mark.parametrize("kind", [K.BMC_SILENT, K.BMC_FROZEN])
def test_bmcs_that_fail_bring_declared_worsts_back_before_boards_rise_far(
    kind: RowFaultKind,
) -> None:
    levels = [(0.0, 300.0), (100.0, 690.0)]
    fault = RowFault(kind, 60.0, 160.0, EVERY)
    run = wattpack_run(small_row(), levels, fault, meters=False, bmcs=True)
    run.run(60.0)
    assert np.isfinite(hosts_of(run)).all()
    result = run.run(80.0)
    assert np.isnan(hosts_of(run)).all()
    assert result.trips == 0
    # As long as lowered caps take after such a step in any row.
    assert result.above_seconds[0] <= 2.0
    after = run.run(60.0)
    assert np.isfinite(hosts_of(run)).all()
    assert after.trips == 0
    assert after.violations == {}
    assert run.trust.hidden_heat == 0.0


def test_a_new_controller_counts_declared_worsts_until_bmcs_have_told_twenty_seconds() -> None:
    crash = RowFault(K.CONTROLLER_DOWN, 60.0, 75.0)
    run = wattpack_run(small_row(), SWINGS, crash, meters=False, bmcs=True)
    run.run(90.0)
    assert np.isnan(hosts_of(run)).all()
    run.run(30.0)
    assert np.isfinite(hosts_of(run)).all()
