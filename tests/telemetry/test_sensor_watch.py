"""I7 at the node: readings that stand still or hide energy are not believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpu.device import GpuReading, GpuStale
from gpu.device_reader import InlineReader
from gpu.nvml.nvml_device import NvmlDevice
from gpu.replay.replayed_device import open_recording
from gpu.simulated import BoardBank, node_boards
from telemetry.node_state import NodeState
from telemetry.report_messages import build_report
from telemetry.sampler import Sampler
from telemetry.sensor_watch import SensorWatch
from tests.telemetry.telemetry_builders import SECOND, KnownNvml, actuator_status, device_status
from wattpack.clock import ManualClock
from wattpack.units import NodeName
from wattpack.wire.v1 import power_pb2

FIXTURES = Path(__file__).with_name("fixtures") / "h200"
STEP_NS = SECOND // 5


def board() -> tuple[KnownNvml, Sampler]:
    """A board by NVML, and the node's sampler."""
    calls = KnownNvml({"nvmlDeviceGetTotalEnergyConsumption": 1_000_000})
    return calls, Sampler(InlineReader([NvmlDevice(calls, 0)]))


def run(
    calls: KnownNvml, sampler: Sampler, seconds: int, real_watts: float, shown_mw: int | None
) -> list[bool]:
    """Freshness after each round; ``shown_mw`` None shows the real draw, never twice the same."""
    fresh = []
    for k in range(seconds * 5):
        now_ns = (sampler.rounds + 1) * STEP_NS
        counter = calls.answers["nvmlDeviceGetTotalEnergyConsumption"]
        calls.answers["nvmlDeviceGetTotalEnergyConsumption"] = counter + round(200 * real_watts)
        shown = round(real_watts * 1000) + k % 7 if shown_mw is None else shown_mw
        calls.answers["nvmlDeviceGetFieldValues"] = [[185, 0, shown], [186, 0, shown]]
        (sample,) = sampler.sample(now_ns)
        fresh.append(sample.fresh)
    return fresh


def test_i7_a_sensor_that_stands_still_while_the_board_draws_is_stale() -> None:
    calls, sampler = board()
    assert all(run(calls, sampler, 10, 400.0, None))
    fresh = run(calls, sampler, 10, 650.0, 400_000)
    assert fresh[0]
    assert not any(fresh[3 * 5 :])
    (sample,) = sampler.samples()
    assert isinstance(sample.error, GpuStale)
    state = NodeState("n", "b", sampler.rounds * STEP_NS, sampler.samples())
    status = actuator_status(device_status(sample.identity.uuid))
    (told,) = build_report(
        NodeState("n", "b", state.now_ns, state.samples, actuator=status), 1
    ).devices
    assert told.state == power_pb2.DEVICE_STATE_UNREADABLE
    assert all(run(calls, sampler, 3, 650.0, None))


def test_a_board_that_really_draws_so_steadily_is_believed_and_costs_little() -> None:
    calls, sampler = board()
    assert all(run(calls, sampler, 60, 82.4, 82_400))
    assert calls.asked.count(("nvmlDeviceGetTotalEnergyConsumption",)) <= 5


def test_i7_a_sensor_that_shows_too_little_is_found_by_the_counter() -> None:
    calls, sampler = board()
    assert all(run(calls, sampler, 30, 400.0, None))
    for k in range(65):
        fresh = run(calls, sampler, 1, 600.0, 300_000 + k)  # moves, so it does not stand still
    assert not fresh[-1]
    for _ in range(35):
        fresh = run(calls, sampler, 1, 600.0, None)
    assert fresh[-1]


@pytest.mark.parametrize("name", ["idle", "matmul", "decode"])
def test_a_real_board_is_never_called_stale(name: str) -> None:
    clock = ManualClock()
    sampler = Sampler(InlineReader(open_recording(FIXTURES / f"{name}.jsonl.gz", clock).devices()))
    for _ in range(5 * 18):
        clock.advance_seconds(0.2)
        assert all(sample.fresh for sample in sampler.sample(clock.monotonic_ns()))


def test_simulated_boards_with_their_sensor_gain_are_believed_through_every_load() -> None:
    bank = BoardBank(node_boards(NodeName("n"), 32, "NVIDIA H200"), seed=3)
    sampler = Sampler(InlineReader(bank.driver(NodeName("n")).devices()))
    for second in range(90):
        demand = np.full(32, 75.0 if second % 30 < 10 else 690.0)
        for step in range(5):
            now_ns = second * SECOND + (step + 1) * STEP_NS
            bank.advance(demand, now_ns)
            assert all(sample.fresh for sample in sampler.sample(now_ns))


def test_without_any_counter_five_identical_readings_and_some_patience_are_enough() -> None:
    watch = SensorWatch()
    verdicts = [watch.look(GpuReading(k * SECOND, 200.0)) for k in range(8)]
    assert [bool(verdict) for verdict in verdicts] == [False] * 5 + [True] * 3
    assert watch.look(GpuReading(9 * SECOND, 201.0)) == ""


def test_the_same_reading_seen_twice_is_no_new_one() -> None:
    watch = SensorWatch()
    assert not any(watch.look(GpuReading(0, 200.0)) for _ in range(50))
    # Two readings in a long while, however often each was shown.
    assert not any(watch.look(GpuReading(60 * SECOND, 200.0)) for _ in range(50))
