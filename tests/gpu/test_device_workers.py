"""One stuck driver call never stalls the other devices."""

from __future__ import annotations

import threading

import pytest

from gpu.device import (
    GpuLost,
    GpuNotSupported,
    GpuReading,
    GpuTimeout,
    GpuUnavailable,
    PowerLimits,
)
from gpu.device_reader import Extra, InlineReader, Outcome, read_device
from gpu.workers.worker_reader import WorkerReader
from tests.telemetry.telemetry_builders import SECOND, PatientClock, ScriptedDevice, reading
from wattpack.clock import Wake


def healthy(index: int) -> ScriptedDevice:
    return ScriptedDevice(index, lambda now_ns: reading(100.0 + index, now_ns))


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_hanging_device_times_out_and_the_others_are_read(position: int) -> None:
    release = threading.Event()
    clock = PatientClock()

    def hang(now_ns: int) -> GpuReading:
        clock.expired.set()  # time passes while the call hangs
        assert release.wait(30)
        return reading(1.0, now_ns)

    devices = [healthy(i) for i in range(3)]
    devices[position].on_read = hang
    reader = WorkerReader(devices, clock)
    outcomes = _until(reader, clock, lambda out: sum(o.reading is not None for o in out) == 2)
    assert isinstance(outcomes[position].error, GpuTimeout)
    release.set()
    reader.close()


def test_devices_behind_a_hanging_one_are_read_in_the_same_round() -> None:
    release, others = threading.Event(), threading.Semaphore(0)

    class Clock(PatientClock):
        waits = 0

        def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
            # The first wait ends by the stall, the second once the others have answered.
            self.waits += 1
            if self.waits == 2:
                for _ in range(3):
                    assert others.acquire(timeout=30)
            self.now_ns = deadline_ns
            return False

    clock = Clock()

    def hang(now_ns: int) -> GpuReading:
        assert release.wait(30)
        return reading(1.0, now_ns)

    reader = WorkerReader([ScriptedDevice(0, hang), *(healthy(i) for i in range(1, 4))], clock)
    original = reader.executor._work

    def work(round_: object, key: str) -> None:
        original(round_, key)  # type: ignore[arg-type]
        others.release()

    reader.executor._work = work  # type: ignore[method-assign]
    stuck, *fine = reader.read_all(SECOND)
    assert isinstance(stuck.error, GpuTimeout)
    assert all(outcome.reading is not None for outcome in fine)
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
    before = set(threading.enumerate())
    for _ in range(3):
        (outcome,) = reader.read_all(clock.monotonic_ns())
        assert isinstance(outcome.error, GpuTimeout)
    assert len(asked) == 1
    # Those of other tests that end meanwhile, or do not, are not this one's.
    assert len(set(threading.enumerate()) - before) <= 1
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


@pytest.mark.parametrize("extra", [Extra(), Extra(limits=True), Extra(limits=True, processes=True)])
def test_extras_are_read_only_when_asked_for(extra: Extra) -> None:
    outcome = InlineReader([healthy(0)]).read_all(SECOND, extra)[0]
    assert (outcome.limits is not None) is extra.limits
    assert (outcome.max_clock_mhz is not None) is extra.limits
    assert (outcome.processes is not None) is extra.processes


def test_a_board_without_limits_still_gives_its_reading() -> None:
    device = healthy(0)

    def limits() -> PowerLimits:
        raise GpuNotSupported("a vGPU")

    device.limits = limits  # type: ignore[method-assign]
    outcome = read_device(device, SECOND, Extra(limits=True))
    assert outcome.reading is not None
    assert outcome.limits is None
    assert outcome.error is None
