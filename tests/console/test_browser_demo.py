"""The page on the running demo: everything real but the electricity."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from simulation.app.running_demo import DemoRow
from simulation.scenario import Scenario, load_scenario
from tests.console.screenshots import keep_screenshot

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def small_scenario() -> Scenario:
    """Twelve servers behind a breaker for nine; the full row takes longer than a test should."""
    row = Scenario().row.model_dump()
    row |= {
        "groups": [{"gpu_model": "H200-SXM", "count": 9}, {"gpu_model": "H100-SXM", "count": 3}],
        "rated_servers": 9.0,
        "racks": 2,
        "rack_rated_servers": 5.0,
        "external_watts": 700.0,
    }
    services = [s.model_dump() | {"replicas": 6} for s in Scenario().services]
    return load_scenario(
        None,
        name="row12",
        row=row,
        services=services,
        training=[],
        warmup_seconds=30.0,
        trace_rate_factor=14.0,
    )


@pytest.fixture
def demo() -> Iterator[DemoRow]:
    row = DemoRow(small_scenario(), speed=None, console_port=0, replicas=2)
    row.start()
    yield row
    row.stop()


def test_the_dashboard_shows_the_running_demo(demo: DemoRow, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    assert demo.console is not None
    page.goto(f"http://127.0.0.1:{demo.console.port}/")
    expect(page.locator("#label")).to_contain_text("simulated: scenario row12", timeout=60_000)
    expect(page.locator("#domains tbody tr")).to_have_count(3)
    expect(page.locator("#pod-count")).to_contain_text("placed", timeout=60_000)
    expect(page.locator("#pod-count")).not_to_contain_text("0 placed,", timeout=90_000)
    expect(page.locator("#plans tbody tr").first).not_to_contain_text("No plan", timeout=60_000)
    expect(page.locator("#services-table tbody tr")).to_have_count(3, timeout=60_000)
    expect(page.locator("#services-count")).to_contain_text("3 forecasts")
    # Caps are raised slowly after a start: the picture is of the row at work.
    expect(page.locator("#heat-summary")).not_to_contain_text("96 of 96", timeout=120_000)
    # Simulated time starts at 22:13:20; by then batch pods compete for the rest of the row.
    expect(page.locator("#clock")).to_contain_text("22:15:", timeout=120_000)
    page.focus("#heat")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#why")).to_contain_text("node-000", timeout=30_000)
    keep_screenshot(page, "console-demo.png")
    assert errors == []
    assert demo.failure is None
    assert demo.watch.violations == []
