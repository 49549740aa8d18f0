"""Activity of a board's units: what NVML's GPM tells is believed only where it can be."""

from __future__ import annotations

import io
import json
import logging
import math
from typing import Any

import pytest

from gpu.device import GpuLost, GpuReading
from gpu.nvml import gpm
from gpu.nvml.calls import GPM_METRICS
from gpu.nvml.nvml_device import NvmlDevice, NvmlDriver
from gpu.nvml.return_codes import NvmlFailure
from gpu.replay.recorder import record
from gpu.replay.replayed_device import ReplayCalls, parse_recording
from tests.telemetry.telemetry_builders import SECOND, KnownNvml
from wattpack.clock import ManualClock

# A matrix times one row on an H200, 1 s (benchmarks/data/h200_served/gpm.json, "one_row").
ONE_ROW = {1: 98.177, 2: 91.991, 5: 3.302, 10: 83.454}


def answers(percents: dict[int, float], code: int = 0, utilisation: int = 100) -> dict[str, Any]:
    """A board that samples at the first call, as the binding does, and then answers."""
    asked: list[int] = []

    def metrics(index: int, *ids: int) -> list[list[float]] | None:
        asked.append(index)
        return [[m, code, percents[m]] for m in ids] if len(asked) > 1 else None

    return {
        GPM_METRICS: metrics,
        "nvmlDeviceGetUtilizationRates": {"gpu": utilisation, "memory": 50},
    }


def after_two_minutes(table: dict[str, Any]) -> GpuReading:
    device = NvmlDevice(KnownNvml(table), 0)
    for k in range(121):
        reading = device.read(k * SECOND)
    return reading


def activities(reading: GpuReading) -> tuple[float | None, ...]:
    return tuple(getattr(reading, name) for name in gpm.METRICS.values())


def test_a_board_that_offers_gpm_tells_what_its_units_did() -> None:
    reading = after_two_minutes(answers(ONE_ROW))
    assert activities(reading) == pytest.approx((0.98177, 0.91991, 0.03302, 0.83454))


def test_before_the_second_sample_nothing_is_known() -> None:
    device = NvmlDevice(KnownNvml(answers(ONE_ROW)), 0)
    assert activities(device.read(0)) == (None,) * 4
    assert activities(device.read(59 * SECOND)) == (None,) * 4
    assert None not in activities(device.read(60 * SECOND))


def test_a_metric_is_asked_for_once_a_minute_and_no_sooner() -> None:
    nvml = KnownNvml(answers(ONE_ROW))
    device = NvmlDevice(nvml, 0)
    for k in range(5 * 120):
        device.read(k * SECOND // 5)
    assert sum(call[0] == GPM_METRICS for call in nvml.asked) == 2


@pytest.mark.parametrize(
    "percents",
    [
        ONE_ROW | {10: math.nan},  # what a window of 0.02 s gave
        ONE_ROW | {5: math.inf},
        ONE_ROW | {10: 100.4},
        ONE_ROW | {1: -0.1},
        dict.fromkeys(ONE_ROW, 0.0),  # of a board that NVML calls busy
    ],
)
def test_what_cannot_be_is_unknown_altogether(percents: dict[int, float]) -> None:
    assert activities(after_two_minutes(answers(percents))) == (None,) * 4


def test_one_failed_metric_leaves_all_unknown() -> None:
    assert activities(after_two_minutes(answers(ONE_ROW, code=999))) == (None,) * 4


def test_an_idle_board_may_show_zeros() -> None:
    idle = answers(dict.fromkeys(ONE_ROW, 0.0), utilisation=0)
    assert activities(after_two_minutes(idle)) == (0.0,) * 4


@pytest.mark.parametrize("code", [3, 4, 13])
def test_a_node_without_gpm_says_so_once_and_does_without(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An older board, no permission, an older driver: eight boards, one line, no further call."""
    nvml = KnownNvml({GPM_METRICS: NvmlFailure(code, GPM_METRICS)}, count=8)
    boards = NvmlDriver(nvml).devices()
    with caplog.at_level(logging.WARNING):
        for k in range(120):
            readings = [board.read(k * SECOND) for board in boards]
    assert [record.name for record in caplog.records] == ["gpu.nvml.gpm"]
    assert sum(call[0] == GPM_METRICS for call in nvml.asked) == 8
    assert all(activities(reading) == (None,) * 4 for reading in readings)
    assert all(reading.draw_watts == 400.0 for reading in readings)


def test_a_passing_failure_is_tried_again() -> None:
    nvml = KnownNvml({GPM_METRICS: NvmlFailure(999, GPM_METRICS)})
    device = NvmlDevice(nvml, 0)
    for k in range(181):
        device.read(k * SECOND)
    assert sum(call[0] == GPM_METRICS for call in nvml.asked) == 4


def test_a_lost_board_is_lost_here_too() -> None:
    device = NvmlDevice(KnownNvml({GPM_METRICS: NvmlFailure(15, GPM_METRICS)}), 0)
    with pytest.raises(GpuLost):
        device.read(0)


def test_a_recording_of_a_board_with_gpm_replays_its_activity() -> None:
    clock, out = ManualClock(), io.StringIO()
    table = answers(ONE_ROW) | {"nvmlSystemGetDriverVersion": "580"}
    record(KnownNvml(table), clock, out, seconds=125, hz=1, label="one row")
    lines = out.getvalue().splitlines()
    assert json.loads(lines[1])["answers"]["0"]["gpmMetrics(1,2,5,10)"] == {"value": None}
    replay = ManualClock()
    calls = ReplayCalls(parse_recording(lines), replay)
    (device,) = NvmlDriver(calls).devices()
    device.read(replay.monotonic_ns())
    replay.advance_seconds(95.0)
    assert activities(device.read(replay.monotonic_ns()))[3] == pytest.approx(0.83454)
