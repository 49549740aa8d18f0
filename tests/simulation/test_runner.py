"""Whole runs in virtual time: reproducible, safe under faults, and judged from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from simulation.app.earlier_days import earlier_days
from simulation.app.twin_run import TwinRun, run_twin
from simulation.monitor import InvariantMonitor
from simulation.results import TwinResult
from simulation.world import World
from tests.simulation.twin_builders import small_scenario
from wattpack.errors import InputError

ISSUE_KEYS = {
    "trips", "brakes", "invariant_violations", "max_breaker_heat", "peak_draw_ratio",
    "seconds_above_rating", "energy_joules", "trace_rate_factor", "tokens_served", "slowdown_p50",
    "slowdown_p99", "pods_placed", "pods_pending", "pods_moved", "forecast_coverage_p99",
    "cap_to_effect_seconds_p99", "wall_seconds",
}  # fmt: skip
TIGHT = {"rated_servers": 2.75, "rack_rated_servers": 1.6}


@pytest.fixture(scope="module")
def result() -> TwinResult:
    return run_twin(small_scenario())


def test_a_summary_has_every_promised_key(result: TwinResult) -> None:
    assert set(result.model_dump()) >= ISSUE_KEYS
    assert result.simulated
    assert result.plant_frozen
    assert result.forecast_coverage_n == 0, "no promised window of six hours ends in 20 s"
    json.dumps(result.model_dump(), allow_nan=False)


def test_the_product_places_pods_serves_requests_and_breaks_nothing(result: TwinResult) -> None:
    assert (result.trips, result.invariant_violations) == (0, 0), result.violations
    assert result.pods_placed >= 5
    assert result.tokens_served["high"] > 0
    assert result.uncapped_tokens_served["high"] > 0
    assert set(result.slowdown_p99) >= {"high", "low"}


def test_times_to_tokens_are_told_by_class(result: TwinResult) -> None:
    assert "high" in result.request_seconds
    assert "high" in result.uncapped_request_seconds
    for one in (*result.request_seconds.values(), *result.uncapped_request_seconds.values()):
        assert 0.0 < one.first_token_p50 <= one.first_token_p99
        assert 0.0 < one.per_token_p50 <= one.per_token_p99 < 1.0


def test_the_same_seed_gives_the_same_digest_and_another_seed_another(result: TwinResult) -> None:
    assert run_twin(small_scenario()).digest == result.digest
    assert run_twin(small_scenario(seed=8)).digest != result.digest


def test_the_digest_does_not_depend_on_the_process(result: TwinResult) -> None:
    code = (
        "from simulation.app.twin_run import run_twin\n"
        "from tests.simulation.twin_builders import small_scenario\n"
        "print(run_twin(small_scenario()).digest)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": "."}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == result.digest


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="policy"):
        run_twin(small_scenario(), policy="hope")  # type: ignore[arg-type]


def test_a_tight_breaker_holds_under_a_step_to_full_power_while_the_controller_dies() -> None:
    faults = [
        {"kind": "demand_step", "at_seconds": 24.0, "duration_seconds": 15.0},
        {"kind": "controller_crash", "at_seconds": 25.0, "duration_seconds": 10.0},
    ]
    scenario = small_scenario(faults=faults, row=small_scenario().row.model_dump() | TIGHT)
    result = run_twin(scenario)
    assert result.uncapped_peak_draw_ratio > 1.15
    assert (result.trips, result.invariant_violations) == (0, 0), result.violations
    assert result.cap_to_effect_n > 0


def test_lost_telemetry_and_a_reboot_break_nothing() -> None:
    faults = [
        {"kind": "telemetry_loss", "at_seconds": 22.0, "duration_seconds": 8.0, "share": 0.5},
        {"kind": "node_reboot", "at_seconds": 28.0, "duration_seconds": 5.0, "target": "node-001"},
        {"kind": "silent_write_failure", "at_seconds": 20.0, "duration_seconds": 20.0,
         "share": 0.05},
    ]  # fmt: skip
    result = run_twin(small_scenario(faults=faults))
    assert (result.trips, result.invariant_violations) == (0, 0), result.violations


def test_the_monitor_sees_a_cap_without_a_lease_and_a_board_above_its_cap() -> None:
    run = TwinRun(small_scenario(duration_seconds=10.0, warmup_seconds=5.0))
    run.run()
    assert run.monitor.count == 0, run.monitor.details
    table = run.nodes.tables["node-000"]
    for uuid, entry in table.entries().items():
        assert entry.lease_deadline_ns is not None, uuid
    later_ns = run.world.now_ns + 60 * 10**9
    run.monitor.check(later_ns)  # leases have run out by then, caps were never lowered
    assert any(text.startswith("I3") for text in run.monitor.details)
    run.world.bank.set_limits(run.world.bank.max_limit_watts)
    run.monitor.check(later_ns)
    run.monitor.check(later_ns + 5 * 10**9)
    assert any(text.startswith("I10") for text in run.monitor.details)


def test_the_monitor_sees_guaranteed_caps_that_cannot_be_carried() -> None:
    scenario = small_scenario(row=small_scenario().row.model_dump() | {"rated_servers": 1.5})
    world = World(scenario)
    monitor = InvariantMonitor(world, {})
    monitor._check_floor(np.full(len(world.bank), 200.0), 0)
    assert any(text.startswith("I1") for text in monitor.details)


def test_the_monitor_counts_held_servers_by_their_line_where_one_is_declared() -> None:
    highest = {}
    for line in (False, True):
        row = small_scenario().row.model_dump() | {"host_line": line}
        world = World(small_scenario(row=row))
        monitor, caps = InvariantMonitor(world, {}), 200.0
        while not monitor.details:
            caps += 5.0
            monitor._check_floor(np.full(len(world.bank), caps), 0)
        highest[line] = caps
    assert 700.0 > highest[True] > highest[False] > 205.0


def test_earlier_days_have_a_trough_and_end_where_the_run_begins() -> None:
    world = World(small_scenario())
    days = earlier_days(world, 1_700_000_000 * 10**9)
    row = days.means["domain_draw_watts/row"]
    assert len(row) == 2 * 144
    assert days.start_seconds % 600 == 0
    assert row[-72:].min() < 0.95 * row[-3:].mean()
    assert all((days.maxima[name] >= days.means[name]).all() for name in days.means)
    again = earlier_days(World(small_scenario()), 1_700_000_000 * 10**9)
    assert np.array_equal(again.means["domain_draw_watts/row"], row)
