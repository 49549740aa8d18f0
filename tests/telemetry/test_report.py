"""Messages of the agent, and batches of the controller as commands."""

from __future__ import annotations

from typing import Any

import pytest

from actuator.lease_messages import DeviceState, Operation
from gpu.device import GpuTimeout
from telemetry.attribution import Attribution, PodOnGpu, ProcessOnGpu
from telemetry.report_messages import build_hello, build_report, to_command
from tests.telemetry.telemetry_builders import (
    actuator_status,
    device_status,
    identity,
    limits,
    node_state,
    reading,
    sample,
)
from wattpack.errors import InputError
from wattpack.units import GpuUuid
from wattpack.wire.v1 import power_pb2


def test_a_report_joins_readings_with_what_the_actuator_holds() -> None:
    first = sample(
        reading=reading(410.0, instant_draw_watts=433.0, energy_joules=99.0, sm_clock_mhz=1500),
        limits=limits(700.0),
    )
    actuator = actuator_status(device_status(limit_watts=500.0, lock_max_mhz=1200, failed_writes=4))
    report = build_report(node_state(first, actuator=actuator), sequence=9)
    assert (report.node, report.sequence) == ("n0", 9)
    assert (report.nonce, report.clock_ns, report.highest_epoch) == (11, 5_000_000_000, 2)
    assert report.boot_id == "boot-actuator"
    (device,) = report.devices
    assert device.state == power_pb2.DEVICE_STATE_OK
    assert (device.draw_watts, device.instant_draw_watts, device.energy_joules) == (
        410.0,
        433.0,
        99.0,
    )
    assert (device.limit_watts, device.enforced_limit_watts) == (500.0, 500.0)
    assert (device.guaranteed_watts, device.lock_max_mhz) == (300.0, 1200)
    assert (device.confirmed_sequence, device.failed_writes) == (7, 4)
    assert device.lease_active


def test_without_an_actuator_a_node_reports_itself_uncontrolled() -> None:
    report = build_report(node_state(sample()), sequence=1)
    assert report.nonce == 0
    assert report.boot_id == "boot-os"
    assert report.devices[0].state == power_pb2.DEVICE_STATE_UNCONTROLLED
    assert report.devices[0].limit_watts == 700.0


@pytest.mark.parametrize(
    ("error", "held", "state"),
    [
        (None, DeviceState.OK, power_pb2.DEVICE_STATE_OK),
        (GpuTimeout("x"), DeviceState.OK, power_pb2.DEVICE_STATE_UNREADABLE),
        (None, DeviceState.UNREADABLE, power_pb2.DEVICE_STATE_UNREADABLE),
        (None, DeviceState.UNCONTROLLED, power_pb2.DEVICE_STATE_UNCONTROLLED),
        (GpuTimeout("x"), DeviceState.UNCONTROLLED, power_pb2.DEVICE_STATE_UNCONTROLLED),
    ],
)
def test_the_worse_of_sampler_and_actuator_is_the_devices_state(
    error: Exception | None, held: DeviceState, state: int
) -> None:
    actuator = actuator_status(device_status(state=held))
    report = build_report(node_state(sample(error=error), actuator=actuator), 1)
    assert report.devices[0].state == state


def test_an_unreadable_device_reports_its_last_power_and_not_zero() -> None:
    stuck = sample(reading=reading(650.0), error=GpuTimeout("x"))
    assert build_report(node_state(stuck), 1).devices[0].draw_watts == 650.0


def test_pods_and_nameless_processes_reach_the_report() -> None:
    attribution = Attribution(
        (PodOnGpu("team", "p", "u", (), (GpuUuid("GPU-0"),)),),
        (ProcessOnGpu(GpuUuid("GPU-1"), 5, "x", 0),),
    )
    report = build_report(node_state(sample(0), sample(1), attribution=attribution), 1)
    assert [(p.namespace, p.name, p.uid, list(p.device_uuids)) for p in report.pods] == [
        ("team", "p", "u", ["GPU-0"]),
        ("", "", "", ["GPU-1"]),
    ]


def test_hello_describes_every_board() -> None:
    hello = build_hello(
        node_state(sample(0), sample(1, None, limits=None, max_clock_mhz=None)),
        "0.1",
        host_unit=True,
    )
    assert list(hello.versions) == [1]
    assert hello.host_unit
    first, second = hello.devices
    assert (first.model, first.index, first.max_clock_mhz) == ("NVIDIA H200", 0, 1980)
    assert (first.min_limit_watts, first.default_limit_watts) == (200.0, 700.0)
    assert (second.uuid, second.max_limit_watts) == (identity(1).uuid, 0.0)
    assert hello.unidentified_devices == 0


def test_hello_counts_boards_that_do_not_tell_who_they_are() -> None:
    hello = build_hello(node_state(sample(0), unidentified=2), "0.1", host_unit=True)
    assert (len(hello.devices), hello.unidentified_devices) == (1, 2)


def lease(**changes: Any) -> power_pb2.DeviceLease:
    return power_pb2.DeviceLease(**({"uuid": "GPU-0", "cap_watts": 500.0} | changes))


def batch(*devices: power_pb2.DeviceLease, **changes: Any) -> power_pb2.LeaseBatch:
    values = {"epoch": 3, "sequence": 4, "nonce": 5, "ttl_ms": 5000, "devices": devices}
    return power_pb2.LeaseBatch(**(values | changes))


def test_a_batch_becomes_a_command() -> None:
    command = to_command(
        batch(
            lease(),
            lease(uuid="GPU-1", lock_max_mhz=1200, guaranteed_watts=250.0),
            lease(uuid="GPU-2", cap_watts=0.0),
            lease(uuid="GPU-3", cap_watts=0.0, lock_max_mhz=900),
        )
    )
    assert (command.epoch, command.sequence, command.nonce, command.ttl_ms) == (3, 4, 5, 5000)
    first, second, third, fourth = command.devices
    assert (first.operation, first.cap_watts) == (Operation.SET_POWER_LIMIT, 500.0)
    assert first.guaranteed_watts is None
    assert (second.operation, second.lock_max_mhz) == (Operation.LOCK_CLOCKS, 1200)
    assert second.guaranteed_watts == 250.0
    assert third.operation is Operation.RESET
    assert (fourth.operation, fourth.cap_watts) == (Operation.LOCK_CLOCKS, None)


@pytest.mark.parametrize(
    "bad",
    [
        batch(),
        batch(lease(cap_watts=float("nan"))),
        batch(lease(cap_watts=-1.0)),
        batch(lease(cap_watts=float("inf"))),
        batch(lease(guaranteed_watts=float("nan"))),
        batch(lease(uuid="")),
        batch(lease(uuid="x" * 500)),
        batch(lease(), lease()),
        batch(*[lease(uuid=f"GPU-{i}") for i in range(65)]),
        batch(lease(), epoch=0),
        batch(lease(), sequence=0),
        batch(lease(), nonce=0),
        batch(lease(), ttl_ms=0),
        batch(lease(), ttl_ms=4_000_000),
    ],
)
def test_a_malformed_batch_is_refused_as_a_whole(bad: power_pb2.LeaseBatch) -> None:
    with pytest.raises(InputError):
        to_command(bad)
