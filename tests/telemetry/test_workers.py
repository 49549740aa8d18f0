"""One stuck driver call never stalls the other devices."""

from __future__ import annotations

import threading

import pytest
from telemetry_builders import SECOND, PatientClock, ScriptedDevice, reading

from telemetry.device import (
    GpuLost,
    GpuNotSupported,
    GpuReading,
    GpuTimeout,
    GpuUnavailable,
    PowerLimits,
)
from telemetry.workers import Extra, InlineReader, Outcome, WorkerReader, read_device


def healthy(index: int) -> ScriptedDevice:
    return ScriptedDevice(index, lambda now_ns: reading(100.0 + index, now_ns))


def test_a_hanging_device_times_out_and_the_others_are_read() -> None:
    release, hangs = threading.Event(), threading.Event()
    clock = PatientClock()

    def hang(now_ns: int) -> GpuReading:
        hangs.set()
        assert release.wait(30)
        return reading(1.0, now_ns)

    # The healthy device answers only after the other one hangs, so the order is certain.
    def after_the_hang(now_ns: int) -> GpuReading:
        assert hangs.wait(30)
        clock.expired.set()
        return reading(7.0, now_ns)

    reader = WorkerReader([ScriptedDevice(0, hang), ScriptedDevice(1, after_the_hang)], clock)
    stuck, fine = _until(reader, clock, lambda out: out[1].reading is not None)
    assert isinstance(stuck.error, GpuTimeout)
    assert fine.reading is not None
    assert fine.reading.average_watts == 7.0
    release.set()
    reader.close()


def _until(reader: WorkerReader, clock: PatientClock, good: object) -> list[Outcome]:
    outcomes = reader.read_all(clock.monotonic_ns())
    for _ in range(100):
        if good(outcomes):  # type: ignore[operator]
            return outcomes
        clock.expired.set()
        outcomes = reader.read_all(clock.monotonic_ns())
    raise AssertionError(outcomes)


def test_a_stuck_device_is_asked_nothing_more_until_its_call_returns() -> None:
    release, done = threading.Event(), threading.Event()
    asked: list[int] = []
    clock = PatientClock()

    def hang_once(now_ns: int) -> GpuReading:
        asked.append(now_ns)
        if len(asked) == 1:
            clock.expired.set()
            assert release.wait(30)
            done.set()
        return reading(2.0, now_ns)

    reader = WorkerReader([ScriptedDevice(0, hang_once)], clock)
    for _ in range(3):
        (outcome,) = reader.read_all(clock.monotonic_ns())
        assert isinstance(outcome.error, GpuTimeout)
    assert len(asked) == 1
    assert threading.active_count() < 20
    release.set()
    assert done.wait(30)
    clock.expired.clear()
    outcomes = _until(reader, clock, lambda out: out[0].reading is not None)
    assert outcomes[0].reading is not None
    assert len(asked) >= 2
    reader.close()


def test_a_round_with_a_stuck_device_ends_when_the_healthy_ones_have_answered() -> None:
    release = threading.Event()
    clock = PatientClock()

    def hang(now_ns: int) -> GpuReading:
        clock.expired.set()
        assert release.wait(30)
        return reading(1.0, now_ns)

    reader = WorkerReader([ScriptedDevice(0, hang), healthy(1)], clock)
    reader.read_all(clock.monotonic_ns())
    clock.expired.clear()  # from here on, waiting for the stuck device would block for ever
    for _ in range(3):
        stuck, fine = reader.read_all(clock.monotonic_ns())
        assert isinstance(stuck.error, GpuTimeout)
        assert fine.reading is not None
    release.set()
    reader.close()


def test_errors_stay_with_their_device() -> None:
    def lost(now_ns: int) -> GpuReading:
        raise GpuLost("off the bus")

    def defect(now_ns: int) -> GpuReading:
        raise ZeroDivisionError("a bug")

    devices = [ScriptedDevice(0, lost), ScriptedDevice(1, defect), healthy(2)]
    reader = WorkerReader(devices, PatientClock())
    first, second, third = reader.read_all(SECOND)
    assert isinstance(first.error, GpuLost)
    assert isinstance(second.error, GpuUnavailable)
    assert "ZeroDivisionError" in str(second.error)
    assert third.reading is not None
    reader.close()


@pytest.mark.parametrize("extra", [Extra.NOTHING, Extra.LIMITS, Extra.LIMITS | Extra.PROCESSES])
def test_extras_are_read_only_when_asked_for(extra: Extra) -> None:
    outcome = InlineReader([healthy(0)]).read_all(SECOND, extra)[0]
    assert (outcome.limits is not None) is bool(extra & Extra.LIMITS)
    assert (outcome.max_clock_mhz is not None) is bool(extra & Extra.LIMITS)
    assert (outcome.processes is not None) is bool(extra & Extra.PROCESSES)


def test_a_board_without_limits_still_gives_its_reading() -> None:
    device = healthy(0)

    def limits() -> PowerLimits:
        raise GpuNotSupported("a vGPU")

    device.limits = limits  # type: ignore[method-assign]
    outcome = read_device(device, SECOND, Extra.LIMITS)
    assert outcome.reading is not None
    assert outcome.limits is None
    assert outcome.error is None
