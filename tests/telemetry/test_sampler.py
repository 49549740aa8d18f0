"""Rings, means and rises of the sampler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.app.agent_reports import describe, read_report
from gpu.device import GpuLost, GpuReading, GpuTimeout, PowerLimits
from gpu.device_reader import Extra, InlineReader
from telemetry.report_messages import build_hello, build_report
from telemetry.sampler import Point, RiseTracker, Sampler
from tests.examples import examples
from tests.telemetry.telemetry_builders import (
    SECOND,
    ScriptedDevice,
    actuator_status,
    device_status,
    limits,
    node_state,
    reading,
)
from wattpack.errors import InputError
from wattpack.power import energy_trust
from wattpack.power.energy_trust import ENERGY_WINDOW_NS
from wattpack.units import GpuUuid

STEP = SECOND // 5


def energy_mean_watts(points: list[Point]) -> float | None:
    return energy_trust.energy_mean_watts((at_ns, joules) for at_ns, _, joules in reversed(points))


def test_the_energy_mean_is_the_counter_difference_over_three_seconds() -> None:
    points = [(k * STEP, 999.0, 100.0 * k * 0.2 + (50.0 if k > 10 else 0.0)) for k in range(31)]
    assert energy_mean_watts(points) == pytest.approx(100.0)
    assert energy_mean_watts(points[:20]) == pytest.approx(100.0 + 50.0 / 3.0)


def test_a_short_history_uses_what_there_is_and_none_without_a_counter() -> None:
    assert energy_mean_watts([]) is None
    assert energy_mean_watts([(0, 1.0, 5.0)]) is None
    assert energy_mean_watts([(0, 1.0, 5.0), (SECOND, 1.0, 205.0)]) == pytest.approx(200.0)
    assert energy_mean_watts([(0, 1.0, None), (SECOND, 1.0, None)]) is None


def test_a_counter_reset_does_not_make_a_negative_mean() -> None:
    points = [(0, 1.0, 9e6), (SECOND, 1.0, 10.0), (2 * SECOND, 1.0, 110.0)]
    assert energy_mean_watts(points) == pytest.approx(100.0)
    assert energy_mean_watts(points[:2]) is None


@examples(50)
@given(
    watts=st.lists(st.floats(0, 1000), max_size=40),
    window_steps=st.integers(1, 20),
)
def test_the_rise_is_the_largest_difference_within_the_window(
    watts: list[float], window_steps: int
) -> None:
    tracker = RiseTracker(window_steps * STEP, 1000 * STEP)
    found = [tracker.add(k * STEP, value) for k, value in enumerate(watts)]
    expected = max(
        (
            later - earlier
            for i, earlier in enumerate(watts)
            for later in watts[i : i + window_steps + 1]
        ),
        default=0.0,
    )
    assert (found[-1] if found else 0.0) == pytest.approx(max(0.0, expected))


def test_a_rise_is_forgotten_after_the_horizon() -> None:
    tracker = RiseTracker(2 * SECOND, 10 * SECOND)
    tracker.add(0, 100.0)
    assert tracker.add(SECOND, 400.0) == 300.0
    assert tracker.add(11 * SECOND, 400.0) == 300.0
    assert tracker.add(12 * SECOND, 400.0) == 0.0


def sampler_of(*devices: ScriptedDevice) -> Sampler:
    return Sampler(InlineReader(devices))


def test_a_device_that_fails_keeps_its_last_good_reading_and_its_error() -> None:
    fail: list[Exception] = []

    def read(now_ns: int) -> GpuReading:
        if fail:
            raise fail[0]
        return reading(300.0, now_ns)

    sampler = sampler_of(ScriptedDevice(0, read), ScriptedDevice(1, lambda t: reading(5.0, t)))
    assert sampler.missing_share() == 1.0
    sampler.sample(SECOND)
    assert sampler.missing_share() == 0.0
    fail.append(GpuTimeout("stuck"))
    broken, fine = sampler.sample(2 * SECOND)
    assert not broken.fresh
    assert broken.draw_watts() == 300.0
    assert broken.reading is not None
    assert broken.reading.monotonic_ns == SECOND
    assert isinstance(broken.error, GpuTimeout)
    assert fine.fresh
    assert sampler.missing_share() == 0.5
    fail.clear()
    assert sampler.sample(3 * SECOND)[0].fresh


def test_a_device_that_never_answered_has_no_watts() -> None:
    def read(now_ns: int) -> GpuReading:
        raise GpuLost("gone")

    (sample,) = sampler_of(ScriptedDevice(0, read)).sample(SECOND)
    assert sample.draw_watts() is None
    assert sample.limits is None


def test_xid_events_add_up_by_code() -> None:
    events = [(79, 13), (), (13,)]
    device = ScriptedDevice(0, lambda t: reading(1.0, t, xid_events=events.pop(0)))
    sampler = sampler_of(device)
    for k in range(3):
        (sample,) = sampler.sample(k * SECOND)
    assert sample.xid_counts == {79: 1, 13: 2}


def test_limits_are_read_back_every_second_and_kept_between() -> None:
    sampler = sampler_of(ScriptedDevice(0, lambda t: reading(1.0, t)))
    reads: list[Extra] = []
    reader = sampler._reader
    original = reader.read_all

    def counting(now_ns: int, extra: Extra) -> object:
        reads.append(extra)
        return original(now_ns, extra)

    reader.read_all = counting  # type: ignore[method-assign,assignment]
    for k in range(11):
        (sample,) = sampler.sample(k * STEP)
    assert sample.limits is not None
    assert sum(extra.limits for extra in reads) == 3


def test_the_ring_holds_its_span_and_no_more() -> None:
    sampler = Sampler(InlineReader([ScriptedDevice(0, lambda t: reading(1.0, t))]))
    for k in range(100):
        sampler.sample(k * STEP)
    ring = sampler.history(GpuUuid("GPU-0"))
    assert ring[-1][0] - ring[0][0] == 10 * SECOND
    with pytest.raises(InputError):
        sampler.history(GpuUuid("GPU-9"))


def test_a_ring_shorter_than_the_energy_window_is_refused() -> None:
    with pytest.raises(InputError):
        Sampler(InlineReader([]), ring_ns=ENERGY_WINDOW_NS - 1)


ALL_ONES = (2**32 - 1) / 1000.0


@pytest.mark.parametrize(
    "changes",
    [
        {"draw_watts": ALL_ONES},
        {"draw_watts": float("nan")},
        {"draw_watts": -1.0},
        {"instant_draw_watts": ALL_ONES},
        {"energy_joules": (2**64 - 1) / 1000.0},
    ],
    ids=str,
)
def test_a_board_whose_sensor_breaks_takes_no_other_of_its_server_with_it(
    changes: dict[str, float],
) -> None:
    """A report with a figure that no board can give is refused as a whole."""
    odd: dict[str, float] = {}
    device = ScriptedDevice(0, lambda t: reading(at_ns=t, **odd))
    sampler = sampler_of(device, ScriptedDevice(1, lambda t: reading(300.0, t)))
    devices = describe(build_hello(node_state(*sampler.sample(SECOND)), "1", host_unit=True))
    odd |= changes
    actuator = actuator_status(device_status("GPU-0"), device_status("GPU-1"))
    report = build_report(node_state(*sampler.sample(2 * SECOND), actuator=actuator), 1)
    taken = read_report(report, devices, 0)
    assert np.isnan(taken.draw_watts).tolist() == [True, False]
    assert taken.controlled.all()
    assert "is no board's" in str(sampler.samples()[0].error)
    odd.clear()
    assert sampler.sample(3 * SECOND)[0].fresh


def test_limits_that_no_board_has_are_not_taken() -> None:
    class Odd(ScriptedDevice):
        def limits(self) -> PowerLimits:
            return limits(enforced_limit_watts=ALL_ONES)

    sampler = sampler_of(Odd(0, lambda t: reading(at_ns=t)))
    (sample,) = sampler.sample(SECOND)
    assert sample.limits is None
    assert sample.fresh
    assert describe(build_hello(node_state(sample), "1", host_unit=True))
