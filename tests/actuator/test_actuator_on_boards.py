"""The actuator against simulated boards with the faults that real ones show."""

from __future__ import annotations

import random

import pytest

from actuator.app.assembly import build_table, read_bounds, start_actuator
from actuator.app.board_writes import InlineHands
from actuator.app.config_file import ActuatorConfig
from actuator.app.node_actuator import Actuator
from actuator.app.persisted_state import MemoryStore
from actuator.audit_log import AuditTrail
from actuator.lease_messages import (
    ApplyResult,
    DeviceCommand,
    DeviceState,
    DeviceStatus,
    LeaseCommand,
    Operation,
)
from gpu.simulated import BoardBank, BoardSpec
from wattpack.clock import ManualClock
from wattpack.units import GpuUuid, NodeName

NODE = NodeName("n")


class Bench:
    """Two boards with an actuator in the same process and a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock(start_ns=10**12)
        specs = [
            BoardSpec(GpuUuid(f"GPU-{i}"), "NVIDIA H200", NODE, i, 75.0, 700.0, 200.0, 700.0, 1980)
            for i in range(2)
        ]
        self.bank = BoardBank(specs, start_ns=self.clock.monotonic_ns())
        self.store = MemoryStore()
        self.sequence = 0
        self.actuator = self.started()

    def started(self) -> Actuator:
        devices = self.bank.driver(NODE).devices()
        bounds = {str(device.identity.uuid): read_bounds(device) for device in devices}
        config = ActuatorConfig({"NVIDIA H200": 400.0}, frozenset({0}))
        boot_id = self.bank.boot_id(NODE)
        table = build_table(config, devices, bounds, boot_id, random.Random(self.sequence))
        return start_actuator(table, InlineHands(devices), self.store, self.clock, AuditTrail())

    def apply(self, watts: float, lock_max_mhz: int | None = None) -> ApplyResult:
        self.sequence += 1
        operation = Operation.LOCK_CLOCKS if lock_max_mhz else Operation.SET_POWER_LIMIT
        device = DeviceCommand("GPU-0", operation, watts, lock_max_mhz)
        nonce = self.actuator.status().nonce
        return self.actuator.apply(LeaseCommand(1, self.sequence, nonce, 5000, (device,)))

    def pass_seconds(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance_seconds(1)
            self.actuator.tick()

    def limit(self, index: int = 0) -> float:
        return float(self.bank.limit_watts[index])

    def row(self, index: int = 0) -> DeviceStatus:
        return self.actuator.status().devices[f"GPU-{index}"]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_i10_a_driver_reload_is_undone_within_a_second_clock_lock_included(bench: Bench) -> None:
    bench.apply(600.0, lock_max_mhz=1200)
    bench.bank.reload_driver(NODE)
    assert (bench.limit(0), bench.limit(1)) == (700.0, 700.0)
    bench.pass_seconds()
    assert (bench.limit(0), bench.limit(1)) == (600.0, 400.0)
    assert int(bench.bank.lock_max_mhz[0]) == 1200
    assert [bench.row(i).tampered for i in (0, 1)] == [1, 1]


def test_i10_a_rebooted_node_comes_back_at_guaranteed_caps_and_without_leases(bench: Bench) -> None:
    bench.apply(600.0)
    bench.bank.reboot(NODE)
    bench.actuator = bench.started()
    assert (bench.limit(0), bench.limit(1)) == (400.0, 400.0)
    assert not bench.row().lease_active
    assert bench.actuator.status().highest_sequence == 1


def test_a_board_that_swallows_writes_becomes_uncontrolled_when_its_lease_ends(
    bench: Bench,
) -> None:
    bench.apply(600.0)
    bench.bank.silent_writes[0] = True
    bench.pass_seconds(10)
    assert (bench.limit(), bench.row().state) == (600.0, DeviceState.UNCONTROLLED)
    assert bench.row().failed_writes >= 3
    bench.bank.silent_writes[0] = False
    bench.pass_seconds()
    assert (bench.limit(), bench.row().state) == (400.0, DeviceState.OK)


@pytest.mark.parametrize("fault", ["hung", "lost"])
def test_a_board_that_answers_nothing_is_brought_down_as_soon_as_it_answers(
    bench: Bench, fault: str
) -> None:
    bench.apply(600.0)
    getattr(bench.bank, fault)[0] = True
    bench.pass_seconds(6)
    assert (bench.row(0).state, bench.row(1).state) == (DeviceState.UNREADABLE, DeviceState.OK)
    assert bench.limit() == 600.0
    getattr(bench.bank, fault)[0] = False
    bench.pass_seconds()
    assert bench.limit() == 400.0


def test_a_clock_lock_is_released_only_after_the_cap_is_in_force(bench: Bench) -> None:
    bench.apply(700.0, lock_max_mhz=1200)
    bench.bank.silent_writes[0] = True
    result = bench.apply(350.0).devices["GPU-0"]
    assert result == "power_limit had no effect, reset_clocks was not tried"
    bench.bank.silent_writes[0] = False
    bench.pass_seconds()
    assert (bench.limit(), int(bench.bank.lock_max_mhz[0])) == (350.0, 0)
