"""The forecast panel in a real browser while the draw moves against the promise."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.console.console_bench import Bench

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def test_a_p99_that_the_draw_exceeds_is_marked_before_it_is_contradicted(
    bench: Bench, page: Page
) -> None:
    page.goto(bench.url)
    state = page.locator("#forecast-state")
    expect(state).to_have_text("in use", timeout=25_000)
    bench.changes["draw"] = 0.99
    expect(state).to_have_text("in use, exceeded now", timeout=25_000)
    bench.changes["draw"] = 0.9
    expect(state).to_have_text("in use", timeout=25_000)


def test_a_record_of_rehearsed_windows_is_not_told_as_a_calibration(
    bench: Bench, page: Page
) -> None:
    facts = page.locator("#forecast-facts")
    page.goto(bench.url)
    expect(facts).to_contain_text("16 live windows and 144 rehearsed, newest", timeout=25_000)
    bench.changes["flags"] = ("uncalibrated",)
    told = "nothing yet: too few of 16 live windows and 144 rehearsed were promised as this one is"
    expect(facts).to_contain_text(told, timeout=25_000)


def test_a_forecast_that_its_load_tells_says_so_in_words(bench: Bench, page: Page) -> None:
    facts = page.locator("#forecast-facts")
    page.goto(bench.url)
    expect(facts).to_contain_text("p99 held", timeout=25_000)
    bench.changes["flags"] = ("by-load", "foreign")
    told = "by-load: steps follow what its services serve, which tells most of its draw; foreign"
    expect(facts).to_contain_text(told, timeout=25_000)
