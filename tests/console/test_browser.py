"""The page in a real browser, against a real console process part and a scripted controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from console.app.console_command import ConsoleServer
from simulation.kube.embedded_api import EmbeddedKube
from tests.console.screenshots import keep_screenshot
from tests.console.views import make_view
from wattpack.clock import SystemClock
from wattpack.http_access import HttpAccess
from wattpack.http_port import HttpAnswer, HttpPort, health

pytestmark = pytest.mark.browser


@pytest.fixture
def console() -> Iterator[tuple[str, dict[str, int]]]:
    size = {"gpus": 416, "tick": 0, "capped": 40}

    def answer() -> HttpAnswer:
        size["tick"] += 1
        view = make_view(gpus=size["gpus"], tick=size["tick"], capped=size["capped"])
        return HttpAnswer(200, "application/json", view.model_dump_json().encode())

    clock = SystemClock()
    access = HttpAccess.insecure((), clock)
    controller = HttpPort("127.0.0.1", 0, {"/v1/live": health(answer)}, access)
    controller.start()
    server = ConsoleServer(
        [f"http://127.0.0.1:{controller.port}/v1/live"],
        EmbeddedKube(clock),
        clock,
        host="127.0.0.1",
        port=0,
    )
    server.start()
    yield f"http://127.0.0.1:{server.port}/", size
    server.stop()
    controller.stop()


def test_the_page_shows_the_fleet_and_says_why_a_gpu_is_capped(
    console: tuple[str, dict[str, int]], page: Page
) -> None:
    url, _ = console
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#domains tbody tr:nth-child(5)")
    assert "row" in page.inner_text("#domains tbody tr:first-child")
    assert "40 of 416 GPUs capped" in page.inner_text("#heat-summary")
    assert "reached the cap band" in page.inner_text("#feed")
    page.focus("#heat")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#why")).to_contain_text("cap band")
    page.wait_for_selector("#power-chart canvas")
    assert errors == []
    assert all(request.startswith((url, "data:")) for request in requests)
    keep_screenshot(page, "console.png")


def test_the_answer_changes_when_the_cluster_changes(
    console: tuple[str, dict[str, int]], page: Page
) -> None:
    url, size = console
    page.goto(url)
    expect(page.locator("#heat-summary")).to_contain_text("40 of 416")
    size["capped"] = 0
    expect(page.locator("#heat-summary")).to_have_text("0 of 416 GPUs capped")


def test_ten_thousand_gpus_are_drawn(console: tuple[str, dict[str, int]], page: Page) -> None:
    url, size = console
    size["gpus"] = 10_000
    page.goto(url)
    expect(page.locator("#heat-summary")).to_contain_text("10000 GPUs")
    painted = page.evaluate(
        """() => {
          const canvas = document.querySelector('#heat');
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          let cells = 0;
          for (let i = 3; i < data.length; i += 4) if (data[i] === 255) cells++;
          return cells;
        }"""
    )
    assert painted > 10_000 * 20
