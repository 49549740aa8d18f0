"""Builders for telemetry tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from actuator.lease_messages import (
    ActuatorStatus,
    ApplyResult,
    DeviceState,
    DeviceStatus,
    LeaseCommand,
)
from gpu.device import GpuIdentity, GpuProcess, GpuReading, PowerLimits
from gpu.nvml.return_codes import NvmlFailure
from telemetry.node_state import NodeState
from telemetry.sampler import DeviceSample
from wattpack.clock import SystemClock, Wake
from wattpack.units import GpuUuid

FIXTURES = Path(__file__).parent / "fixtures" / "h200"
SECOND = 1_000_000_000


def identity(index: int = 0, **changes: Any) -> GpuIdentity:
    values: dict[str, Any] = {
        "uuid": GpuUuid(f"GPU-{index}"),
        "model": "NVIDIA H200",
        "index": index,
    }
    return GpuIdentity(**(values | changes))


def reading(watts: float = 400.0, at_ns: int = SECOND, **changes: Any) -> GpuReading:
    return GpuReading(**({"monotonic_ns": at_ns, "draw_watts": watts} | changes))


def limits(current: float = 700.0, **changes: Any) -> PowerLimits:
    values = {
        "min_watts": 200.0,
        "max_watts": 700.0,
        "default_watts": 700.0,
        "limit_watts": current,
        "enforced_limit_watts": current,
    }
    return PowerLimits(**(values | changes))


def sample(index: int = 0, watts: float | None = 400.0, **changes: Any) -> DeviceSample:
    values: dict[str, Any] = {
        "identity": identity(index),
        "reading": None if watts is None else reading(watts),
        "limits": limits(),
        "max_clock_mhz": 1980,
    }
    return DeviceSample(**(values | changes))


def node_state(*samples: DeviceSample, **changes: Any) -> NodeState:
    values: dict[str, Any] = {
        "node": "n0",
        "boot_id": "boot-os",
        "now_ns": 2 * SECOND,
        "samples": samples,
    }
    return NodeState(**(values | changes))


def device_status(uuid: str = "GPU-0", **changes: Any) -> DeviceStatus:
    values: dict[str, Any] = {
        "uuid": uuid,
        "limit_watts": 500.0,
        "enforced_limit_watts": 500.0,
        "guaranteed_watts": 300.0,
        "lock_max_mhz": None,
        "lease_active": True,
        "lease_remaining_ms": 3000,
        "confirmed_sequence": 7,
        "failed_writes": 0,
        "tampered": 0,
        "state": DeviceState.OK,
    }
    return DeviceStatus(**(values | changes))


def actuator_status(*devices: DeviceStatus, **changes: Any) -> ActuatorStatus:
    values: dict[str, Any] = {
        "boot_id": "boot-actuator",
        "nonce": 11,
        "clock_ns": 5 * SECOND,
        "highest_epoch": 2,
        "highest_sequence": 7,
        "devices": {device.uuid: device for device in devices},
    }
    return ActuatorStatus(**(values | changes))


class KnownActuator:
    """An actuator port that answers a fixed status and keeps what it was given."""

    def __init__(self, status: ActuatorStatus, *, accepts: bool = True) -> None:
        self.answer = status
        self.accepts = accepts
        self.error: Exception | None = None
        self.commands: list[LeaseCommand] = []

    def status(self) -> ActuatorStatus:
        if self.error:
            raise self.error
        return self.answer

    def apply(self, command: LeaseCommand) -> ApplyResult:
        if self.error:
            raise self.error
        self.commands.append(command)
        return ApplyResult(self.accepts, "" if self.accepts else "epoch")


class KnownNvml:
    """NVML calls answered from a table: a value, an ``NvmlFailure``, a function."""

    def __init__(self, answers: Mapping[str, Any], count: int = 1) -> None:
        self.answers: dict[str, Any] = {
            "nvmlDeviceGetCount": count,
            "nvmlDeviceGetUUID": "GPU-a",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetFieldValues": [[185, 0, 400_000], [186, 0, 410_000]],
            "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetPowerManagementLimit": 700_000,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            **answers,
        }
        self.asked: list[tuple[Any, ...]] = []
        self.closed = False

    def call(self, name: str, index: int, *args: int) -> Any:
        self.asked.append((name, *args))
        answer = self.answers.get(name, NvmlFailure(3, name))
        if isinstance(answer, NvmlFailure):
            raise answer
        return answer(index, *args) if callable(answer) else answer

    def close(self) -> None:
        self.closed = True


class ScriptedDevice:
    """A device whose ``read`` does what the test says."""

    def __init__(self, index: int, on_read: Callable[[int], GpuReading]) -> None:
        self.identity = identity(index)
        self.on_read = on_read
        self.listed: tuple[GpuProcess, ...] = ()

    def read(self, now_ns: int) -> GpuReading:
        return self.on_read(now_ns)

    def limits(self) -> PowerLimits:
        return limits()

    def max_clock_mhz(self) -> int:
        return 1980

    def processes(self) -> tuple[GpuProcess, ...]:
        return self.listed

    def set_power_limit(self, watts: float) -> None:
        raise AssertionError("nothing here may write")

    def lock_clocks(self, max_mhz: int) -> None:
        raise AssertionError("nothing here may write")

    def reset_clocks(self) -> None:
        raise AssertionError("nothing here may write")


class PatientClock(SystemClock):
    """A clock on which a deadline only passes when the test says that it has.

    Waiting blocks until the handle is set; once ``expired`` is set, every deadline has passed.
    """

    def __init__(self) -> None:
        self.expired = threading.Event()
        self.now_ns = SECOND

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        event = wake.event  # type: ignore[union-attr]
        while not event.wait(0.01):
            if self.expired.is_set():
                self.now_ns = max(self.now_ns, deadline_ns)
                return False
        event.clear()
        return True
