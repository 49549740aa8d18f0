"""What a missing forecast falls back to."""

from __future__ import annotations

from controller.day_maximum import HOUR_NS, DayMaximum


def day_of(watts: float, hours: int = 25, first: int = 0) -> DayMaximum:
    maximum = DayMaximum()
    for hour in range(first, first + hours):
        maximum.add({"row": watts}, hour * HOUR_NS)
    return maximum


def test_the_highest_draw_of_the_last_day_is_kept_and_older_ones_are_forgotten() -> None:
    maximum = day_of(500.0)
    maximum.add({"row": 900.0}, 25 * HOUR_NS)
    for hour in range(26, 49):
        maximum.add({"row": 400.0}, hour * HOUR_NS)
    assert maximum.of("row") == 900.0
    maximum.add({"row": 300.0}, 49 * HOUR_NS)
    assert maximum.of("row") == 400.0


def test_less_than_a_day_has_no_maximum_of_a_day() -> None:
    """A restarted controller took the maximum of its first seconds for the day's."""
    maximum = day_of(500.0, hours=24)
    assert maximum.of("row") is None
    maximum.add({"row": 500.0}, 24 * HOUR_NS)
    assert maximum.of("row") == 500.0


def test_a_day_with_few_measured_hours_speaks_for_none() -> None:
    maximum = DayMaximum()
    for hour in (0, 1, 23, 24):
        maximum.add({"row": 500.0}, hour * HOUR_NS)
    assert maximum.of("row") is None


def test_recorded_hours_stand_in_for_the_day_before_a_restart() -> None:
    maximum = DayMaximum()
    maximum.preload("row", {hour: 100.0 + hour for hour in range(10, 34)})
    maximum.add({"row": 50.0}, 34 * HOUR_NS)
    assert maximum.of("row") == 133.0
    gaps = DayMaximum()
    gaps.preload("row", {10: 900.0})
    gaps.add({"row": 50.0}, 34 * HOUR_NS)
    assert gaps.of("row") is None


def test_a_domain_that_was_never_seen_has_no_maximum() -> None:
    assert DayMaximum().of("row") is None


def test_a_clock_that_goes_back_forgets_the_future() -> None:
    maximum = day_of(900.0, first=30)
    maximum.add({"row": 100.0}, 2 * HOUR_NS)
    assert maximum.of("row") is None
    for hour in range(3, 27):
        maximum.add({"row": 100.0}, hour * HOUR_NS)
    assert maximum.of("row") == 100.0
