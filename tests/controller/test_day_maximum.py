"""What a missing forecast falls back to."""

from __future__ import annotations

from controller.day_maximum import HOUR_NS, DayMaximum


def test_the_highest_draw_of_the_last_day_is_kept_and_older_ones_are_forgotten() -> None:
    maximum = DayMaximum()
    maximum.add({"row": 900.0}, 0)
    maximum.add({"row": 500.0, "rack": 100.0}, 5 * HOUR_NS)
    assert maximum.of("row") == 900.0
    maximum.add({"row": 400.0}, 24 * HOUR_NS)
    assert maximum.of("row") == 500.0
    assert maximum.of("rack") == 100.0
    maximum.add({"row": 300.0}, 60 * HOUR_NS)
    assert maximum.of("row") == 300.0
    assert maximum.of("rack") is None


def test_a_domain_that_was_never_seen_has_no_maximum() -> None:
    assert DayMaximum().of("row") is None


def test_a_clock_that_goes_back_forgets_the_future() -> None:
    maximum = DayMaximum()
    maximum.add({"row": 900.0}, 30 * HOUR_NS)
    maximum.add({"row": 100.0}, 2 * HOUR_NS)
    assert maximum.of("row") == 100.0
