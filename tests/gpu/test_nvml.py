"""The NVML adapter, on recordings of a real H200 and on every way in which NVML can fail."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpu.device import (
    GpuError,
    GpuInvalidArgument,
    GpuLost,
    GpuNoPermission,
    GpuNotSupported,
    GpuTimeout,
    GpuUnavailable,
)
from gpu.nvml.calls import FIELD_VALUES, SYSTEM, XID_EVENTS
from gpu.nvml.nvml_device import NvmlDevice, NvmlDriver, open_nvml
from gpu.nvml.return_codes import ERRORS, NvmlFailure, typed_error
from gpu.replay.recorder import record
from gpu.replay.replayed_device import ReplayCalls, load_recording, open_recording, parse_recording
from tests.telemetry.telemetry_builders import FIXTURES, SECOND, KnownNvml
from wattpack.clock import ManualClock
from wattpack.errors import InputError, PermanentError, TransientError

RECORDINGS = ("idle", "matmul", "decode")


def replayed(name: str) -> tuple[NvmlDriver, ManualClock]:
    clock = ManualClock(start_ns=SECOND)
    return open_recording(FIXTURES / f"{name}.jsonl.gz", clock), clock


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_real_h200_tells_its_identity_and_limits_in_watts(name: str) -> None:
    driver, _ = replayed(name)
    (device,) = driver.devices()
    assert device.identity.model == "NVIDIA H200"
    assert device.identity.uuid.startswith("GPU-")
    assert not device.identity.mig_enabled
    limits = device.limits()
    assert (limits.min_watts, limits.max_watts, limits.default_watts) == (200.0, 700.0, 700.0)
    assert (limits.limit_watts, limits.enforced_limit_watts) == (700.0, 700.0)
    assert device.max_clock_mhz() == 1980
    assert driver.driver_version() == "580.159.04"


def test_a_real_h200_under_load_reads_as_it_was() -> None:
    driver, clock = replayed("matmul")
    (device,) = driver.devices()
    idle = device.read(clock.monotonic_ns())
    assert 100.0 < idle.draw_watts < 140.0
    clock.advance_seconds(12.0)
    busy = device.read(clock.monotonic_ns())
    assert 680.0 < busy.draw_watts < 700.0
    assert busy.instant_draw_watts is not None
    assert 650.0 < busy.instant_draw_watts < 760.0
    assert busy.utilisation is not None
    assert busy.utilisation > 0.9
    assert busy.throttle_reasons == 0x4
    assert busy.sm_clock_mhz is not None
    assert 1300 < busy.sm_clock_mhz < 1980
    assert busy.memory_clock_mhz == 3201
    assert busy.temperature_celsius is not None
    assert 30 < busy.temperature_celsius < 80
    assert busy.memory_temperature_celsius is not None
    assert busy.ecc_uncorrected == 0
    assert busy.xid_events == ()
    assert busy.monotonic_ns == clock.monotonic_ns()
    assert len(device.processes()) == 1


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_carried_energy_follows_the_real_counter_within_one_percent(name: str) -> None:
    driver, clock = replayed(name)
    (device,) = driver.devices()
    recording = load_recording(FIXTURES / f"{name}.jsonl.gz")
    start_ns = clock.monotonic_ns()
    first = last = device.read(start_ns).energy_joules
    assert first is not None
    for _ in range(5 * 19):
        clock.advance_seconds(0.2)
        reading = device.read(clock.monotonic_ns())
        assert reading.energy_joules is not None
        assert last is not None
        assert reading.energy_joules >= last
        last = reading.energy_joules
    end = recording.answer(0, "field 83", clock.monotonic_ns() - start_ns)
    begin = recording.answer(0, "field 83", 0)
    assert end is not None
    assert begin is not None
    counted = (end["value"][2] - begin["value"][2]) / 1000.0
    assert last - first == pytest.approx(counted, rel=0.01)


def test_a_replayed_board_refuses_writes() -> None:
    driver, _ = replayed("idle")
    (device,) = driver.devices()
    with pytest.raises(GpuNoPermission):
        device.set_power_limit(500.0)
    with pytest.raises(GpuError):
        device.lock_clocks(1000)
    with pytest.raises(GpuNoPermission):
        device.reset_clocks()


def test_copies_of_a_recorded_board_have_their_own_uuids() -> None:
    driver = open_recording(FIXTURES / "idle.jsonl.gz", ManualClock(), copies=8)
    assert len({device.identity.uuid for device in driver.devices()}) == 8


def test_every_code_of_the_library_has_its_typed_error() -> None:
    import pynvml

    codes = {
        value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(value, int)
    }
    assert codes <= set(ERRORS)
    for code in codes:
        error = typed_error(NvmlFailure(code, "call"), "GPU-a")
        assert isinstance(error, (TransientError, PermanentError))
        assert "GPU-a: call: " in str(error)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, GpuUnavailable),
        (2, GpuInvalidArgument),
        (3, GpuNotSupported),
        (4, GpuNoPermission),
        (9, GpuUnavailable),
        (10, GpuTimeout),
        (13, GpuNotSupported),
        (15, GpuLost),
        (16, GpuLost),
        (24, GpuInvalidArgument),
        (999, GpuUnavailable),
        (12345, GpuUnavailable),
    ],
)
def test_a_return_code_becomes_the_error_that_says_whether_to_retry(
    code: int, kind: type[GpuError]
) -> None:
    calls = KnownNvml({})
    device = NvmlDevice(calls, 0)
    calls.answers["nvmlDeviceGetFieldValues"] = NvmlFailure(code, "fields")
    calls.answers["nvmlDeviceGetPowerUsage"] = NvmlFailure(code, "power")
    with pytest.raises(kind) as caught:
        device.read(0)
    assert type(caught.value) is kind


def test_milliwatts_and_millijoules_end_at_the_adapter() -> None:
    calls = KnownNvml({"nvmlDeviceGetTotalEnergyConsumption": 123_456})
    reading = NvmlDevice(calls, 0).read(SECOND)
    assert reading.draw_watts == 400.0
    assert reading.instant_draw_watts == 410.0
    assert reading.energy_joules == 123.456


def test_a_board_without_power_fields_falls_back_to_the_old_calls() -> None:
    calls = KnownNvml({FIELD_VALUES: [[185, 3, 0], [186, 3, 0]], "nvmlDeviceGetPowerUsage": 61_000})
    reading = NvmlDevice(calls, 0).read(SECOND)
    assert reading.draw_watts == 61.0
    assert reading.instant_draw_watts is None
    assert reading.energy_joules is None


def test_what_a_board_does_not_offer_is_none_and_not_asked_twice() -> None:
    calls = KnownNvml({})
    device = NvmlDevice(calls, 0, slow_period_ns=0)
    assert device.read(0).ecc_corrected is None
    for k in range(1, 7):
        device.read(k * SECOND)
    assert calls.asked.count(("nvmlDeviceGetTotalEccErrors", 0, 1)) == 1


def test_an_optional_value_that_fails_for_now_is_asked_again() -> None:
    calls = KnownNvml({"nvmlDeviceGetUtilizationRates": NvmlFailure(999, "use")})
    device = NvmlDevice(calls, 0, slow_period_ns=0)
    assert device.read(0).utilisation is None
    calls.answers["nvmlDeviceGetUtilizationRates"] = {"gpu": 50, "memory": 25}
    assert device.read(SECOND).utilisation == 0.5


def test_a_board_lost_in_the_middle_of_a_reading_is_lost() -> None:
    calls = KnownNvml({"nvmlDeviceGetUtilizationRates": NvmlFailure(15, "use")})
    with pytest.raises(GpuLost):
        NvmlDevice(calls, 0).read(0)


def test_the_costly_energy_counter_is_read_seldom_and_carried_forward() -> None:
    calls = KnownNvml({"nvmlDeviceGetTotalEnergyConsumption": 1_000_000})
    device = NvmlDevice(calls, 0)
    first = device.read(0)
    later = device.read(2 * SECOND)
    assert calls.asked.count(("nvmlDeviceGetTotalEnergyConsumption",)) == 1
    assert (first.energy_joules, later.energy_joules) == (1000.0, 1800.0)
    calls.answers["nvmlDeviceGetTotalEnergyConsumption"] = 20_000_000
    assert device.read(31 * SECOND).energy_joules == 20000.0


def test_a_board_above_its_limit_has_its_counter_read_every_second() -> None:
    calls = KnownNvml({"nvmlDeviceGetTotalEnergyConsumption": 1_000_000})
    device = NvmlDevice(calls, 0)
    device.limits()
    device.read(0)
    calls.answers["nvmlDeviceGetEnforcedPowerLimit"] = 300_000
    calls.answers["nvmlDeviceGetTotalEnergyConsumption"] = 1_500_000
    device.limits()
    assert device.read(SECOND).energy_joules == 1500.0


def test_a_counter_that_restarts_with_the_driver_is_believed() -> None:
    calls = KnownNvml({"nvmlDeviceGetTotalEnergyConsumption": 50_000_000})
    device = NvmlDevice(calls, 0)
    device.read(0)
    calls.answers["nvmlDeviceGetTotalEnergyConsumption"] = 10_000
    assert device.read(40 * SECOND).energy_joules == 10.0


def test_the_set_limit_is_read_again_when_the_enforced_one_moves() -> None:
    calls = KnownNvml({})
    device = NvmlDevice(calls, 0)
    assert device.limits().limit_watts == 700.0
    calls.answers["nvmlDeviceGetPowerManagementLimit"] = 450_000
    calls.answers["nvmlDeviceGetEnforcedPowerLimit"] = 450_000
    assert device.limits().limit_watts == 450.0


def test_a_write_that_changed_nothing_shows_in_the_next_read_back() -> None:
    calls = KnownNvml({"nvmlDeviceSetPowerManagementLimit": None})
    device = NvmlDevice(calls, 0)
    device.limits()
    device.set_power_limit(450.5)
    assert ("nvmlDeviceSetPowerManagementLimit", 450_500) in calls.asked
    before = calls.asked.count(("nvmlDeviceGetPowerManagementLimit",))
    assert device.limits().limit_watts == 700.0
    assert calls.asked.count(("nvmlDeviceGetPowerManagementLimit",)) == before + 1


def test_a_clock_lock_spans_from_the_lowest_clock_and_is_never_an_equal_pair() -> None:
    calls = KnownNvml(
        {
            "nvmlDeviceGetSupportedMemoryClocks": [3201, 1593],
            "nvmlDeviceGetSupportedGraphicsClocks": [1980, 990, 345],
            "nvmlDeviceSetGpuLockedClocks": None,
            "nvmlDeviceResetGpuLockedClocks": None,
        }
    )
    device = NvmlDevice(calls, 0)
    device.lock_clocks(990)
    assert calls.asked[-1] == ("nvmlDeviceSetGpuLockedClocks", 345, 990)
    with pytest.raises(GpuInvalidArgument):
        device.lock_clocks(345)
    device.reset_clocks()


def test_compute_graphics_and_mps_processes_are_listed_once_each() -> None:
    calls = KnownNvml(
        {
            "nvmlDeviceGetComputeRunningProcesses_v3": [{"pid": 7, "usedGpuMemory": 100}],
            "nvmlDeviceGetGraphicsRunningProcesses_v3": [{"pid": 7, "usedGpuMemory": None}],
            "nvmlDeviceGetMPSComputeRunningProcesses_v3": [{"pid": 9, "usedGpuMemory": 5}],
        }
    )
    listed = NvmlDevice(calls, 0).processes()
    assert [(p.pid, p.memory_bytes) for p in listed] == [(7, 100), (9, 5)]


def test_an_xid_is_reported_once() -> None:
    xids = [[79], []]
    calls = KnownNvml({XID_EVENTS: lambda index: xids.pop(0)})
    device = NvmlDevice(calls, 0, slow_period_ns=SECOND)
    assert device.read(0).xid_events == (79,)
    assert device.read(SECOND // 2).xid_events == ()
    assert [device.read(k * SECOND).xid_events for k in range(1, 6)] == [()] * 5
    assert xids == []


def test_a_board_that_does_not_answer_at_start_leaves_the_others_usable() -> None:
    def uuid(index: int) -> str:
        if index == 1:
            raise NvmlFailure(15, "nvmlDeviceGetUUID")
        return f"GPU-{index}"

    driver = NvmlDriver(KnownNvml({"nvmlDeviceGetUUID": uuid}, count=3))
    assert [d.identity.index for d in driver.devices()] == [0, 2]
    assert isinstance(driver.unidentified[1], GpuLost)
    driver.close()


def test_a_machine_without_a_driver_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu.nvml.binding as live

    def no_driver() -> None:
        raise live.pynvml.NVMLError(live.pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(live.pynvml, "nvmlInit", no_driver)
    with pytest.raises(GpuUnavailable, match="install the NVIDIA driver"):
        open_nvml()


def test_live_calls_turn_codes_and_structures_into_plain_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import gpu.nvml.binding as live

    nvml = live.pynvml
    monkeypatch.setattr(nvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(nvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByIndex", lambda index: f"handle {index}")
    calls = live.LiveNvml()

    def refuse(handle: str) -> None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NO_PERMISSION)

    memory = nvml.c_nvmlMemory_t()
    memory.used = 12
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda handle: memory)
    monkeypatch.setattr(nvml, "nvmlDeviceGetName", lambda handle: b"NVIDIA H200")
    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", refuse)
    assert calls.call("nvmlDeviceGetMemoryInfo", 0)["used"] == 12
    assert calls.call("nvmlDeviceGetName", 0) == "NVIDIA H200"
    with pytest.raises(NvmlFailure) as caught:
        calls.call("nvmlDeviceGetPowerUsage", 0)
    assert caught.value.code == 4
    with pytest.raises(NvmlFailure) as caught:
        calls.call("nvmlDeviceGetSomethingNewer", SYSTEM)
    assert caught.value.code == 13
    fields = (nvml.c_nvmlFieldValue_t * 2)()
    fields[0].fieldId, fields[0].valueType, fields[0].value.ullVal = 185, 3, 400_000
    fields[1].fieldId, fields[1].nvmlReturn = 186, 3
    assert live.plain_fields(fields) == [[185, 0, 400_000], [186, 3, 0]]
    calls.close()
    calls.close()


def test_what_is_recorded_replays_with_its_error_codes(tmp_path: Path) -> None:
    calls = KnownNvml(
        {"nvmlSystemGetDriverVersion": "1.2", "nvmlDeviceGetMigMode": NvmlFailure(4, "mig")}
    )
    file = tmp_path / "recording.jsonl.gz"
    with gzip.open(file, "wt") as out:
        assert record(calls, ManualClock(), out, seconds=2, hz=5, label="test") == 10
    clock = ManualClock()
    replay = ReplayCalls(load_recording(file), clock)
    driver = NvmlDriver(replay)
    assert driver.devices()[0].read(0).draw_watts == 400.0
    with pytest.raises(NvmlFailure) as caught:
        replay.call("nvmlDeviceGetMigMode", 0)
    assert caught.value.code == 4
    assert {name for name, *_ in calls.asked if "Set" in name or "Reset" in name} == set()


HEADER = json.dumps({"format": "wattpack.io/nvml-recording/v1"})


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [HEADER],
        ["{"],
        [json.dumps({"format": "other"})],
        ["[]"],
        [HEADER, "nonsense"],
        [HEADER, "[]"],
        [HEADER, json.dumps({"t_ns": "1", "answers": {}})],
        [HEADER, json.dumps({"t_ns": 1, "answers": {"0": {"call()": {"watts": 1}}}})],
        [HEADER, json.dumps({"t_ns": 1, "answers": {"0": {"call()": 3}}})],
        [HEADER, json.dumps({"t_ns": 1, "answers": {"first": {}}})],
        [HEADER, json.dumps({"t_ns": -5, "answers": {}})],
        [HEADER, json.dumps({"t_ns": 0, "answers": {}})],
    ],
)
def test_a_file_that_is_no_recording_is_refused(lines: list[Any]) -> None:
    with pytest.raises(InputError):
        parse_recording(lines, "test")


def test_a_truncated_or_missing_file_is_refused(tmp_path: Path) -> None:
    whole = (FIXTURES / "idle.jsonl.gz").read_bytes()
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError):
        load_recording(cut)
    with pytest.raises(InputError):
        load_recording(tmp_path / "missing.jsonl.gz")
    cut.write_bytes(b"no gzip at all")
    with pytest.raises(InputError):
        load_recording(cut)
