"""The panel of services' forecasts in a real browser."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.console_bench import Bench
from tests.console.screenshots import keep_screenshot
from tests.console.service_forecasts import ago, forecast, ready
from tests.console.test_service_forecasts import RESOURCE, missed, put, tell

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def of_many_kinds(bench: Bench) -> None:
    """One of each kind of trouble, and two that are in use."""
    tokens = {"series": "output_tokens_per_second/chat"}
    put(bench.api, forecast(spec={"tokens": tokens, "replicas": {"rate": 5.5}}))
    plain: dict[str, Any] = {"tokens": None, "replicas": None, "lead": None}
    power = {"target": {"workload": "code", "series": "workload_draw_watts/code"}}
    put(bench.api, forecast("code", spec=power, now=41e3, p50=52e3, p95=60e3, p99=66e3, **plain))
    late = "HistoryStale", "the newest observation ends at 2023-11-14T21:05:00Z"
    stale = ready(holds=False, reason=late[0], message=late[1])
    put(bench.api, forecast("digest", conditions=[stale], **plain))
    put(bench.api, forecast("embed", **missed(4, of=30), **plain))
    put(bench.api, forecast("rerank", flags=["above-p99"], **plain))
    fallen: dict[str, Any] = {"fallback": True, "method": "last-24h-max", "tiers": []}
    put(bench.api, forecast("vision", flags=["gaps"], **fallen, **plain))


def see_a_day(bench: Bench) -> None:
    """The console has been there for nineteen hours."""
    days = bench.console.forecasts._days
    start = 1_700_000_000
    for i in range(-19 * 6, 0):
        value = 38 + 14 * math.sin(i / 20 + 0.4) + 1.5 * math.sin(i * 1.7)
        days.note("team/chat", (start + 600 * i) * 1000, value)


def rows(page: Page) -> Any:
    return page.locator("#services-table tbody tr")


@pytest.mark.parametrize("look", ["light", "dark"])
def test_services_are_listed_worst_first_and_the_chosen_one_is_drawn(
    bench: Bench, page: Page, look: str
) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    of_many_kinds(bench)
    page.goto(bench.url)
    expect(rows(page)).to_have_count(6, timeout=25_000)
    told = [page.locator("#services-table .chip").nth(i).inner_text() for i in range(6)]
    assert told == [
        "not ready", "contradicted", "missed too often", "fall-back", "in use", "in use",
    ]  # fmt: skip
    expect(page.locator("#services-count")).to_have_text(
        "6 forecasts: 1 not ready, 1 contradicted, 1 missed too often, 1 fall-back"
    )
    # The worst is chosen by itself, and has no line that somebody could plan with.
    facts = page.locator("#service-facts")
    expect(page.locator("#service-name")).to_have_text("team/digest")
    expect(facts).to_contain_text("HistoryStale: the newest observation ends at")
    expect(facts).not_to_contain_text("Peak expected")
    see_a_day(bench)
    page.click("#services-table button:has-text('team/chat')")
    chat = rows(page).filter(has_text="team/chat")
    expect(chat).to_have_attribute("data-chosen", "true")
    for text in ("43.2 requests/s", "84.9 requests/s", "100.0 % of 16", "35,200", "ridge 36 %"):
        expect(chat).to_contain_text(text)
    expect(page.locator("#service-state")).to_have_text("in use")
    expect(facts).to_contain_text("p50 64.1 requests/s, p95 76.5 requests/s, p99 84.9 requests/s")
    expect(facts).to_contain_text("9 now: p95 of 47 requests/s within 244 s")
    expect(facts).to_contain_text("short in 3.1 % of windows")
    expect(facts).to_contain_text("412 a request, one in 100 over 2,210")
    expect(facts).to_contain_text("16 of 16 live windows, 0 violations")
    expect(facts).to_contain_text("adds 3.1 requests/s to the p99")
    expect(page.locator("#service-levels")).to_have_text("each step, p50 to p99")
    expect(page.locator("#service-chart canvas")).to_be_visible()
    drawn = re.compile("^team/chat: newest value 43.2 requests/s, peak of the coming window p50")
    expect(page.locator("#service-chart")).to_have_attribute("aria-label", drawn)
    keep_screenshot(page, f"console-services-{look}.png", "#services")
    expect(rows(page).filter(has_text="team/code")).to_contain_text("66.0 kW")
    assert errors == []


def test_a_forecast_moves_up_when_it_goes_wrong_and_the_choice_and_the_focus_stay(
    bench: Bench, page: Page
) -> None:
    put(bench.api, forecast("aa"))
    put(bench.api, forecast("bb"))
    page.goto(bench.url)
    expect(rows(page)).to_have_count(2, timeout=25_000)
    expect(page.locator("#services-count")).to_have_text("2 forecasts, all in use")
    button = page.locator("#services-table button", has_text="team/bb")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#service-name")).to_have_text("team/bb")
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-pressed", "true")
    tell(bench.api, "bb", flags=["above-p99"])
    expect(rows(page).first).to_contain_text("team/bb")
    expect(page.locator("#service-state")).to_have_text("contradicted")
    expect(button).to_be_focused()
    tell(bench.api, "aa", validUntil=ago(60))
    expect(rows(page).first).to_contain_text("too old")
    expect(page.locator("#service-name")).to_have_text("team/bb")
    bench.api.delete(RESOURCE, "bb", "team")
    expect(page.locator("#service-name")).to_have_text("team/aa")


def test_without_a_forecast_of_a_service_the_panel_says_so(bench: Bench, page: Page) -> None:
    page.goto(bench.url)
    expect(page.locator("#services-more")).to_have_text(
        "No DemandForecast of a service.", timeout=25_000
    )
    expect(page.locator("#services-table")).to_be_hidden()
    expect(page.locator("#service")).to_be_hidden()


def test_more_than_the_page_lists_are_counted(bench: Bench, page: Page) -> None:
    for i in range(53):
        put(bench.api, forecast(f"s{i:03d}"))
    page.goto(bench.url)
    expect(page.locator("#services-more")).to_have_text(
        "and 3 more, none of them worse", timeout=25_000
    )
    expect(rows(page)).to_have_count(50)


def test_a_name_of_a_series_is_text_and_nothing_else(bench: Bench, page: Page) -> None:
    odd = {"target": {"series": "<img src=x onerror=alert(1)>", "unit": "<b>x</b>"}}
    put(bench.api, forecast("odd", spec=odd))
    page.goto(bench.url)
    expect(page.locator("#service-name")).to_contain_text("<img src=x", timeout=25_000)
    expect(page.locator("#services img, #services b")).to_have_count(0)


def test_a_phone_shows_what_counts_and_nothing_runs_over(bench: Bench, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    of_many_kinds(bench)
    page.goto(bench.url)
    expect(rows(page)).to_have_count(6, timeout=25_000)
    page.click("#services-table button:has-text('team/chat')")
    expect(page.locator("#service-chart canvas")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    table = page.locator("#services-table")
    assert table.evaluate("t => t.scrollWidth <= t.parentElement.clientWidth")
