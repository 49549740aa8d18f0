"""The page in a real browser, against a real console process part and a scripted controller."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from console.histories import DayBins
from simulation.pod_work import NAMESPACE
from tests.console.capacity_plans import plan
from tests.console.console_bench import Bench, Gate
from tests.console.screenshots import keep_screenshot
from tests.console.service_forecasts import forecast
from tests.console.test_service_forecasts import put
from tests.console.views import WALL_NS, make_view
from wattpack.api import CapacityPlan
from wattpack.kube.port import PODS, PRIORITY_CLASSES

PLANS = CapacityPlan.meta.resource
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def gpu_pod(name: str, gpus: int, priority_class: str = "") -> dict[str, object]:
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "priorityClassName": priority_class,
            "schedulingGates": [{"name": "wattpack.io/placement"}],
            "containers": [{"name": "c", "image": "i", "resources": resources}],
        },
    }


def is_red(page: Page) -> None:
    expect(page.locator("#state")).to_have_text("STALE", timeout=25_000)
    expect(page.locator("#connection")).to_have_attribute("data-age", "red")


def is_live(page: Page) -> None:
    expect(page.locator("#connection")).to_have_text("live", timeout=25_000)
    expect(page.locator("#state")).not_to_have_text("STALE")


def test_the_page_shows_the_fleet_and_says_why_a_gpu_is_capped(bench: Bench, page: Page) -> None:
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(bench.url)
    page.wait_for_selector("#domains tbody tr:nth-child(5)")
    assert "row" in page.inner_text("#domains tbody tr:first-child")
    forecast = page.locator("#domains tbody tr:first-child td:nth-child(8)")
    expect(forecast).to_have_attribute(
        "title",
        "wattpack-system/row: ridge\nuntil a new chat works (244 s): p99 340.0 kW\n"
        "12.0 kW more may be promised to priorities from 1000 on, at a risk of 1 %\n"
        "30.0 kW more may be promised, at a risk of 5 %",
    )
    expect(page.locator("#state")).to_have_text("CAPPING")
    expect(page.locator("#headroom")).to_have_text("24.8 kW")
    expect(page.locator("#capped-note")).to_contain_text("of 416 GPUs: 40 band")
    assert "reached the cap band" in page.inner_text("#feed")
    page.focus("#heat")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#why")).to_contain_text("and without caps less than")
    expect(page.locator("#why")).to_contain_text("Power goes to")
    page.wait_for_selector("#power-past canvas")
    page.wait_for_selector("#power-future canvas")
    is_live(page)
    assert errors == []
    assert all(request.startswith((bench.url, "data:")) for request in requests)


def test_the_answer_changes_when_the_cluster_changes(bench: Bench, page: Page) -> None:
    page.goto(bench.url)
    expect(page.locator("#heat-summary")).to_contain_text("40 of 416")
    bench.changes["capped"] = 0
    bench.changes["draw"] = 0.8
    expect(page.locator("#heat-summary")).to_have_text("0 of 416 GPUs capped")
    expect(page.locator("#state")).to_have_text("SAFE")


def test_what_would_be_capped_in_dry_run_is_not_told_as_capped(bench: Bench, page: Page) -> None:
    bench.changes["dry_run"] = True
    page.goto(bench.url)
    expect(page.locator("#heat-summary")).to_have_text(
        "0 of 416 GPUs capped, 40 would be", timeout=25_000
    )
    expect(page.locator("#capped")).to_have_text("0")
    expect(page.locator("#capped-note")).to_have_text("of 416 GPUs: 40 would be, but for dry run")
    row = page.locator("#domains tbody tr:first-child td:nth-child(10)")
    expect(row).to_have_text("0 / 416, 40 would be")
    bench.changes["dry_run"] = False
    expect(page.locator("#heat-summary")).to_have_text("40 of 416 GPUs capped")
    expect(row).to_have_text("40 / 416")


def test_gpu_types_show_their_roofline_draw_and_cap_curves(bench: Bench, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(bench.url)
    is_live(page)
    page.click("#gpu-types summary")
    expect(page.locator("#gpu-type-note")).to_contain_text("kernels measured; idle")
    for chart in ("roofline", "draw", "curve"):
        page.wait_for_selector(f"#gpu-{chart} canvas")
    expect(page.locator("#gpu-roofline-legend")).to_contain_text("matrix products")
    keep_screenshot(page, "console-gpu-types.png", "#gpu-types")
    page.select_option("#gpu-type-choice", "A100-SXM")
    expect(page.locator("#gpu-type-note")).to_contain_text("no kernels measured on this type")
    expect(page.locator("#gpu-roofline")).to_be_hidden()
    expect(page.locator("#gpu-curve canvas")).to_be_visible()
    assert errors == []


def see_a_day(bench: Bench) -> None:
    """The console has been there for nineteen hours of a rising and falling draw."""
    row, days = make_view().domains[0], DayBins()
    for i in range(-19 * 6, 0):
        draw = 1000 * (290 + 25 * math.sin(i / 20) + 4 * math.sin(i * 1.7))
        days.add((WALL_NS // 10**9 + 600 * i) * 1000, [row.model_copy(update={"draw_watts": draw})])
    bench.console.live._days = days


@pytest.mark.parametrize("look", ["light", "dark"])
def test_a_forecast_shows_its_window_its_record_and_its_models(
    bench: Bench, page: Page, look: str
) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    see_a_day(bench)
    page.goto(bench.url)
    is_live(page)
    facts = page.locator("#forecast-facts")
    expect(page.locator("#forecast-domain")).to_have_text("row")
    expect(page.locator("#forecast-state")).to_have_text("in use")
    expect(facts).to_contain_text("15 of 16 live windows, 1 violation; over at most 26.4 % of them")
    expect(facts).to_contain_text("(95 % sure); 24 of 24 rehearsed")
    expect(facts).to_contain_text("1.31 × the peaks that came")
    expect(facts).to_contain_text("lightgbm/150.0 %")
    expect(facts).to_contain_text("16 live windows and 144 rehearsed")
    expect(facts).to_contain_text("adds 3.1 kW to the p99")
    expect(facts).to_contain_text("models fitted on data until 2 h 0 min ago")
    expect(page.locator("#forecast-chart canvas")).to_be_visible()
    chart = re.compile("^row: draw before 26.* kW to 3.* kW, peak of the coming hours p50 318.2 kW")
    expect(page.locator("#forecast-chart")).to_have_attribute("aria-label", chart)
    keep_screenshot(page, f"console-forecast-{look}.png", "#forecast")
    page.select_option("#domain-choice", "rack-2")
    expect(page.locator("#forecast-domain")).to_have_text("rack-2")
    assert errors == []


def test_a_forecast_that_is_contradicted_shows_no_line_to_plan_with(
    bench: Bench, page: Page
) -> None:
    bench.changes["state"] = "Contradicted"
    page.goto(bench.url)
    is_live(page)
    expect(page.locator("#forecast-state")).to_have_text("contradicted")
    expect(page.locator("#forecast-facts")).to_contain_text("above its p99 in 7 of 10 minutes")
    expect(page.locator("#forecast-facts")).not_to_contain_text("p99 held")
    bench.changes["state"] = "Forecast"
    expect(page.locator("#forecast-state")).to_have_text("in use")
    expect(page.locator("#forecast-facts")).to_contain_text("15 of 16 live windows")


@pytest.mark.parametrize("fault", ["answers 503", "repeats itself"])
def test_a_frozen_controller_is_stale_with_its_cause_and_comes_back(
    bench: Bench, page: Page, fault: str
) -> None:
    page.goto(bench.url)
    is_live(page)
    bench.status, bench.is_frozen = (503, False) if fault == "answers 503" else (200, True)
    # Between 3 and 10 s: nobody should take the figures for news, nobody need be alarmed yet.
    expect(page.locator("#connection")).to_have_attribute("data-age", "grey", timeout=25_000)
    expect(page.locator("section[data-age=grey]").first).to_contain_text("old")
    expect(page.locator("#state")).not_to_have_text("STALE")
    is_red(page)
    cause = "HTTP 503" if fault == "answers 503" else "nothing new"
    expect(page.locator("#state-why")).to_contain_text(cause)
    expect(page.locator("section[data-age=red]").first).to_contain_text("old")
    bench.status, bench.is_frozen = 200, False
    is_live(page)


def test_a_stopped_console_is_noticed_and_a_new_one_is_found(bench: Bench, page: Page) -> None:
    page.goto(bench.url)
    is_live(page)
    port = bench.console.port
    bench.console.stop()
    is_red(page)
    bench.console = bench.open_console(port)
    is_live(page)


@pytest.mark.parametrize("status", [429, 502])
def test_the_stream_comes_back_after_an_error_of_a_proxy(
    bench: Bench, page: Page, status: int
) -> None:
    gate = Gate(bench.url)
    try:
        page.goto(gate.url)
        is_live(page)
        gate.status = status
        is_red(page)
        expect(page.locator("#state-why")).to_contain_text(str(status))
        assert gate.refused >= 2
        gate.status = 200
        is_live(page)
    finally:
        gate.stop()


def test_eight_tabs_are_all_live_and_share_one_stream(bench: Bench, page: Page) -> None:
    tabs = [page, *[page.context.new_page() for _ in range(7)]]
    for tab in tabs:
        tab.goto(bench.url)
    for tab in tabs:
        is_live(tab)
        expect(tab.locator("#heat-summary")).to_contain_text("40 of 416")
    for tab in tabs[:4]:
        tab.close()
    bench.changes["capped"] = 7
    for tab in tabs[4:]:
        expect(tab.locator("#heat-summary")).to_contain_text("7 of 416")


def test_without_shared_workers_a_page_connects_by_itself(bench: Bench, page: Page) -> None:
    page.add_init_script("delete window.SharedWorker")
    page.goto(bench.url)
    is_live(page)
    bench.changes["capped"] = 7
    expect(page.locator("#heat-summary")).to_contain_text("7 of 416")


@pytest.mark.parametrize("anchor", ["#domain=%", "#domain=%E0%A4%A", "#domain=nobody", "#%"])
def test_a_broken_address_is_harmless(bench: Bench, page: Page, anchor: str) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(bench.url + anchor)
    is_live(page)
    expect(page.locator("#domain-choice")).to_have_value("row")
    assert errors == []


def test_a_new_page_begins_with_the_history(bench: Bench, page: Page) -> None:
    page.goto(bench.url)
    is_live(page)
    while len(page.request.get(bench.url + "api/v1/history/row").json()["timeMs"]) < 5:
        page.wait_for_timeout(300)
    with page.expect_response("**/api/v1/history/row") as answer:
        page.reload()
    assert len(answer.value.json()["timeMs"]) > 4
    page.wait_for_selector("#power-past canvas")


def test_pending_pods_are_shown_by_cause(bench: Bench, page: Page) -> None:
    bench.api.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    for name, urgency in (("train-0", ""), ("train-1", ""), ("train-2", "urgent")):
        bench.api.create(PODS, gpu_pod(name, 8, urgency), NAMESPACE)
    page.goto(bench.url)
    expect(page.locator("#pending summary")).to_contain_text("3 pods · 24 GPUs")
    page.click("#pending summary")
    expect(page.locator("#pending tbody tr").first).to_contain_text("train-2")


def put_plans(bench: Bench, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        stored = bench.api.create(PLANS, body, "team")
        bench.api.replace(PLANS, {**stored, "status": body["status"]}, "team", subresource="status")


def test_capacity_plans_show_what_to_run_what_it_costs_and_why(bench: Bench, page: Page) -> None:
    put_plans(bench, plan(), plan("sad", ready=False, replicas=[]))
    page.goto(bench.url)
    expect(page.locator("#capacity-count")).to_have_text("2 plans, 1 without an answer")
    expect(page.locator("#capacity summary").first).to_contain_text("team/sad")
    expect(page.locator("#capacity .message").first).to_contain_text("power budget of the plan")
    page.click("#capacity summary:has-text('team/chat')")
    chat = page.locator("#capacity details[open]", has_text="team/chat")
    expect(chat.locator(".mix li")).to_have_count(3)
    expect(chat.locator(".block")).to_have_count(12)
    expect(chat).to_contain_text("5 × H200-SXM at 700 W")
    expect(chat).to_contain_text("without stock of old-a100: $3.20 an hour less")
    expect(chat).to_contain_text("count on 62.0 % to 78.0 % of the mean rates")
    expect(chat).to_contain_text("as if everything took 1.28 times as long")
    wide, narrow = (chat.locator(".blocks").nth(i).bounding_box() for i in (2, 1))
    assert wide is not None
    assert narrow is not None
    # Eight A100 boards against three H200s: width is boards.
    assert wide["width"] / narrow["width"] == pytest.approx(8 / 3, rel=0.05)


def test_a_tab_that_opens_later_begins_with_all_that_the_first_one_has(
    bench: Bench, page: Page
) -> None:
    put_plans(bench, plan())
    page.goto(bench.url)
    is_live(page)
    later = page.context.new_page()
    later.goto(bench.url)
    expect(later.locator("#capacity summary").first).to_contain_text("team/chat")
    expect(later.locator("#domains tbody tr").first).to_contain_text("row")
    expect(later.locator("#pending")).not_to_be_empty()
    expect(later.locator("#feed")).to_contain_text("reached the cap band")


def test_a_name_in_a_plan_is_text_and_nothing_else(bench: Bench, page: Page) -> None:
    odd = plan(ratesFrom="Given")
    odd["status"]["replicas"][0]["offer"] = "<img src=x onerror=alert(1)>"
    put_plans(bench, odd)
    page.goto(bench.url)
    expect(page.locator("#capacity")).to_contain_text("<img src=x")
    expect(page.locator("#capacity img")).to_have_count(0)


def test_gpus_are_found_by_text_and_read_in_a_table(bench: Bench, page: Page) -> None:
    page.goto(bench.url)
    is_live(page)
    page.fill("#search", "node-003")
    expect(page.locator("#found")).to_have_text("8 found")
    page.keyboard.press("Enter")
    expect(page.locator("#why")).to_contain_text("node-003")
    page.click("#gpu-table-details summary")
    expect(page.locator("#gpu-table tbody tr")).to_have_count(8)
    for mode in ("cap", "temperature", "pod"):
        page.click(f"label:has(input[value={mode}])")


def test_ten_thousand_gpus_are_drawn(bench: Bench, page: Page) -> None:
    bench.changes["gpus"] = 10_000
    page.goto(bench.url)
    expect(page.locator("#heat-summary")).to_contain_text("10,000 GPUs", timeout=20_000)
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


@pytest.mark.parametrize("look", ["light", "dark", "phone", "stale"])
def test_the_page_can_be_read(bench: Bench, page: Page, look: str) -> None:
    page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 844})
    for i in range(5):
        bench.api.create(PODS, gpu_pod(f"train-{i}", 8), NAMESPACE)
    put_plans(bench, plan())
    put(bench.api, forecast())
    page.goto(bench.url)
    is_live(page)
    expect(page.locator("#service-chart canvas")).to_be_visible()
    page.focus("#heat")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#why")).to_contain_text("Lifted when")
    if look == "stale":
        bench.status = 503
        is_red(page)
    page.mouse.move(1, 1)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0
    if look == "phone":
        for id in ("headroom", "state"):
            box = page.locator(f"#{id}").bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < 400
    keep_screenshot(page, f"console-{look}.png")
