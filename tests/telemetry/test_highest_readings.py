"""The agent remembers its boards' highest readings until a report of them was heard."""

from __future__ import annotations

from gpu.device import GpuStale
from telemetry.highest_readings import HighestReadings
from tests.telemetry.telemetry_builders import sample


def seen(readings: HighestReadings, *watts: float) -> None:
    for one in watts:
        readings.saw([sample(0, one)])


def test_before_any_answer_nothing_is_told() -> None:
    readings = HighestReadings()
    seen(readings, 400.0)
    assert readings.reported(1, 1000) is None
    assert readings.reported(2, 2000) is None


def test_after_a_silence_the_highest_of_all_of_it_is_told() -> None:
    readings = HighestReadings()
    seen(readings, 650.0)
    readings.reported(1, 1000)
    readings.answered(1)
    seen(readings, 300.0, 480.0)
    readings.reported(2, 2000)  # lost, or its answer was
    seen(readings, 350.0)
    told = readings.reported(3, 3000)
    assert told is not None
    assert (told.since_clock_ns, dict(told.watts)) == (1000, {"GPU-0": 480.0})
    readings.answered(3)
    seen(readings, 320.0)
    told = readings.reported(4, 4000)
    assert told is not None
    assert (told.since_clock_ns, dict(told.watts)) == (3000, {"GPU-0": 320.0})


def test_a_late_answer_to_an_older_report_shortens_nothing() -> None:
    readings = HighestReadings()
    seen(readings, 400.0)
    readings.reported(1, 1000)
    readings.answered(1)
    seen(readings, 600.0)
    readings.reported(2, 2000)
    seen(readings, 300.0)
    readings.reported(3, 3000)
    readings.answered(2)
    told = readings.reported(4, 4000)
    assert told is not None
    assert (told.since_clock_ns, dict(told.watts)) == (1000, {"GPU-0": 600.0})


def test_a_board_that_was_unreadable_for_a_moment_tells_nothing_of_that_silence() -> None:
    readings = HighestReadings()
    seen(readings, 400.0)
    readings.reported(1, 1000)
    readings.answered(1)
    readings.saw([sample(0, 400.0, error=GpuStale("stands still")), sample(1, 300.0)])
    readings.saw([sample(0, 410.0), sample(1, 310.0)])
    told = readings.reported(2, 2000)
    assert told is not None
    assert dict(told.watts) == {"GPU-1": 310.0}
    readings.answered(2)
    seen(readings, 420.0)
    told = readings.reported(3, 3000)
    assert told is not None
    assert told.watts["GPU-0"] == 420.0  # type: ignore[index]
