"""The console's pure parts: frames, first line, explanations, pods, decisions, histories."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from console.cap_reasons import explain_gpu
from console.decision_feed import feed, in_kilowatts
from console.frames import FULL, UNKNOWN, Cursor, FrameBook
from console.freshness import Age, age
from console.histories import DAY_BINS, POINTS, DayBins, Histories
from console.overview import overview, time_to_limit
from console.placement_rows import CAUSES, placement_view, pod_row
from controller.cap_reason import CapReason
from scheduler_plugin.documents.plan_document import PendingReason
from tests.console.views import make_view
from wattpack.errors import InputError
from wattpack.live_view import LiveDecision, LiveForecast, LiveView
from wattpack.units import NS_PER_SECOND

FRESH = Age(0.2)


def with_gpus(view: LiveView, **columns: list[Any]) -> LiveView:
    return view.model_copy(update={"gpus": view.gpus.model_copy(update=columns)})


def with_domain(view: LiveView, index: int, **values: object) -> LiveView:
    domains = list(view.domains)
    domains[index] = domains[index].model_copy(update=values)
    return view.model_copy(update={"domains": domains})


class Browser:
    """Follows a frame book as the page does: a cursor, and columns kept up to date."""

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.columns: dict[str, list[Any]] = {}
        self.names: list[str] = []
        self.received = 0

    def follow(self, book: FrameBook) -> dict[str, Any]:
        events, self.cursor = book.since(self.cursor)
        self.names = [name for name, _ in events]
        self.received = sum(len(body) for _, body in events)
        bodies = {}
        for name, text in events:
            body = bodies[name] = json.loads(text)
            if name == "topology":
                self.columns = body
            elif name == "topology-change":
                self._change(body)
        return bodies

    def _change(self, body: dict[str, Any]) -> None:
        for name, values in self.columns.items():
            added = body["rows"].get(name, [])
            values[body["start"] : body["start"] + body["remove"]] = added
            for row, value in body["set"].get(name, []):
                values[row] = value


def test_a_browser_gets_the_fleet_once_and_then_small_frames() -> None:
    book, browser = FrameBook(), Browser()
    book.take(make_view(tick=1), FRESH)
    browser.follow(book)
    assert browser.names == [
        "topology",
        "caps",
        "temperature",
        "decisions",
        "forecasts",
        "domains",
        "tick",
    ]
    book.take(make_view(tick=2), FRESH)
    browser.follow(book)
    assert browser.names == ["decisions", "tick"]


def test_a_tick_of_ten_thousand_gpus_in_160_racks_stays_below_25_kilobytes() -> None:
    book, browser = FrameBook(), Browser()
    for tick in (1, 2):
        book.take(make_view(gpus=10_000, racks=160, tick=tick), FRESH)
        browser.follow(book)
    assert browser.received < 25_000


def test_one_pod_that_moves_among_ten_thousand_gpus_costs_less_than_a_kilobyte() -> None:
    book, browser = FrameBook(), Browser()
    view = make_view(gpus=10_000)
    book.take(view, FRESH)
    browser.follow(book)
    pods = list(view.gpus.pod)
    pods[4000:4008] = ["team/new-0"] * 8
    moved = with_gpus(view, pod=pods)
    book.take(moved, FRESH)
    change = json.dumps(browser.follow(book)["topology-change"])
    assert len(change) < 1000
    assert browser.columns["pod"] == pods


@pytest.mark.parametrize("kept", [range(8, 416), range(408), [*range(100), *range(108, 416)], []])
def test_nodes_that_come_and_go_are_told_by_difference(kept: Any) -> None:
    book, browser = FrameBook(), Browser()
    whole = make_view()
    part = with_gpus(
        whole,
        **{name: [column[i] for i in kept] for name, column in whole.gpus.model_dump().items()},
    )
    for view in (whole, part, whole):
        book.take(view, FRESH)
        browser.follow(book)
        assert browser.columns["uuid"] == view.gpus.uuid
        assert browser.columns["node"] == view.gpus.node
        assert browser.names[0] != "topology" or view is whole


def test_a_browser_that_is_far_behind_gets_the_fleet_again() -> None:
    book, browser = FrameBook(), Browser()
    view = make_view()
    book.take(view, FRESH)
    browser.follow(book)
    for i in range(100):
        book.take(with_gpus(view, pod=[f"n/{i}"] * 416), FRESH)
    browser.follow(book)
    assert browser.names[0] == "topology"
    assert browser.columns["pod"] == ["n/99"] * 416


def test_levels_are_shares_of_the_request_and_unknown_is_not_zero() -> None:
    book, browser = FrameBook(), Browser()
    view = make_view(gpus=97)
    book.take(view, FRESH)
    decoded = base64.b64decode(browser.follow(book)["tick"]["draws"])
    assert decoded[96] == UNKNOWN
    assert decoded[0] == round(FULL * (view.gpus.draw_watts[0] or 0.0) / 700.0)


# -- the first line ------------------------------------------------------------------------------


def test_the_first_line_is_safe_and_names_the_tightest_domain() -> None:
    line = overview(make_view(capped=0, draw=0.8), FRESH)
    assert (line.state, line.domain, line.capped) == ("SAFE", "row", {})
    assert line.headroom_share == pytest.approx(0.2)
    tight = with_domain(make_view(capped=0, draw=0.8), 2, draw_watts=80_000.0)
    assert overview(tight, FRESH).domain == "rack-2"


def test_capped_gpus_are_told_by_reason() -> None:
    view = make_view(capped=0)
    reasons = [0] * 416
    reasons[:15] = [*(int(r) for r in CapReason if r != CapReason.NOT_CAPPED), 77]
    line = overview(with_gpus(view, reason=reasons), FRESH)
    assert line.capped == {
        "brake": 1, "band": 1, "worst case": 1, "starting": 3, "not raised": 4,
        "silent": 1, "untrusted": 1, "override": 1, "dry run": 1, "other": 1,
    }  # fmt: skip
    assert line.state == "CAPPING"
    assert line.to_json()["cappedGpus"] == 14, "of 15, one would be and is not"


@pytest.mark.parametrize(
    ("view", "old", "state", "says"),
    [
        (None, Age(None, "controller-0: HTTP 503"), "STALE", "HTTP 503"),
        (make_view(), Age(12.0, "controller-0: HTTP 503"), "STALE", "HTTP 503"),
        (make_view().model_copy(update={"leading": False}), FRESH, "STALE", "no controller leads"),
        (make_view().model_copy(update={"domains": []}), FRESH, "STALE", "no power domain"),
        (make_view(), FRESH, "CAPPING", "cap band"),
        (with_domain(make_view(), 0, draw_watts=4e5), FRESH, "CAPPING", "its cap band is 335.9 kW"),
        (
            make_view(),
            FRESH,
            "CAPPING",
            "draws 328.8 kW; capping ends once it stays below 311.2 kW",
        ),
        (with_domain(make_view(), 0, capped_gpus=0), FRESH, "CAPPING", "; no GPU is capped now"),
        (with_domain(make_view(), 3, band="BRAKE"), FRESH, "BRAKE", "rack-3"),
    ],
)
def test_the_worst_that_is_known_gives_the_state(
    view: LiveView | None, old: Age, state: str, says: str
) -> None:
    line = overview(view, old)
    assert line.state == state
    assert says in line.why


WINDOW = LiveForecast(
    start_seconds=0.0, step_seconds=600, p50_watts=[1e5] * 36, p99_watts=[2e5] * 18 + [4e5] * 18
)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"draw_watts": 900_000.0}, "at the cap band now"),
        ({"forecast_p99_watts": None}, "unknown: no forecast"),
        ({"forecast_state": "NoForecast"}, "unknown: no forecast"),
        ({"forecast_state": "Contradicted"}, "unknown: measured draw contradicts"),
        ({"forecast_state": "Fallback"}, "reached at the last day's peak"),
        ({"forecast_window": WINDOW}, "in 2 h 50 min (p99 400.0 kW)"),
        ({"forecast_window": WINDOW, "cap_band_watts": 5e5}, "not within 5 h 50 min"),
        ({"forecast_window": None}, "reached by the p99"),
        (
            {"forecast_window": WINDOW, "forecast_p99_watts": 3e5, "draw_watts": 3.2e5},
            "unknown: the draw is above the p99 of 300.0 kW",
        ),
    ],
)
def test_the_time_to_the_limit_is_told_by_the_forecast(
    values: dict[str, object], says: str
) -> None:
    domain = with_domain(make_view(draw=0.9), 0, **values).domains[0]
    assert time_to_limit(domain, 600.0).startswith(says)


def test_an_age_turns_to_a_cause_when_it_is_grey() -> None:
    now = 100 * NS_PER_SECOND
    assert age(now, now - 2 * NS_PER_SECOND, "x").cause == ""
    assert age(now, now - 4 * NS_PER_SECOND, "HTTP 503").cause == "HTTP 503"
    assert "nothing new" in age(now, now - 4 * NS_PER_SECOND, "").cause
    assert age(now, now - 11 * NS_PER_SECOND, "").is_stale
    assert age(now, None, "").is_stale


# -- why a GPU is capped -------------------------------------------------------------------------


def test_a_capped_gpu_is_explained_by_observation_limit_release_holders_and_remedy() -> None:
    answer = explain_gpu(make_view(), "GPU-00000")
    assert answer["reason"] == "DOMAIN_BAND"
    assert answer["bindingDomain"] == "row"
    assert "335.9 kW" in str(answer["limit"])
    assert "draw less than 311.2 kW" in str(answer["lifts"])
    assert answer["drawWatts"] == make_view().gpus.draw_watts[0]
    holders = answer["holders"]
    assert isinstance(holders, list)
    assert holders[0]["priority"] == 1000
    assert [h["drawWatts"] for h in holders] == sorted(h["drawWatts"] for h in holders)[::-1]
    assert any("PriorityClass" in action for action in answer["actions"])  # type: ignore[attr-defined]
    assert "not capped" in str(explain_gpu(make_view(), "GPU-00200")["sentence"])


@pytest.mark.parametrize("reason", [*map(int, CapReason), 99])
def test_every_reason_has_an_answer_also_one_of_a_newer_controller(reason: int) -> None:
    view = with_gpus(make_view(), reason=[reason] * 416, binding_domain=[-1] * 416)
    answer = explain_gpu(view, "GPU-00000")
    assert answer["sentence"]
    assert answer["lifts"]
    assert "{" not in json.dumps([answer["sentence"], answer["limit"], answer["actions"]])


def test_a_gpu_that_is_held_by_its_clock_too_says_so() -> None:
    clocks = [990, *[0] * (len(make_view().gpus.uuid) - 1)]
    view = with_gpus(make_view(), lock_max_mhz=clocks)
    told = str(explain_gpu(view, "GPU-00000")["work"])
    assert "its clock is locked to 990 MHz beside the limit" in told
    assert "locked" not in str(explain_gpu(view, "GPU-00001")["work"])


def test_pods_of_other_namespaces_are_not_named() -> None:
    answer = explain_gpu(make_view(), "GPU-00000", frozenset({"mine"}))
    assert "default/" not in json.dumps(answer)


def test_an_unknown_gpu_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="uuid"):
        explain_gpu(make_view(), "GPU-99999")


# -- pods ----------------------------------------------------------------------------------------


def pod(name: str, gpus: object = "4", **spec: object) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": f"u-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}], **spec},
    }


GATED: dict[str, object] = {"schedulingGates": [{"name": "wattpack.io/placement"}]}


def shown(pods: list[dict[str, Any]], plans: list[dict[str, Any]]) -> dict[str, Any]:
    return placement_view([row for p in pods if (row := pod_row(p)) is not None], plans)


def plan(name: str, created: str, pending: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"createdAt": created, "pending": pending}}


def test_pending_pods_are_grouped_by_the_cause_of_the_newest_plan() -> None:
    full = {"reason": "PowerDomainFull", "message": "rack-3 needs 6580 W, 120 W left"}
    pending = [full | {"podUid": "u-a"}, full | {"podUid": "u-b"}]
    plans = [plan("old", "2026-01-01", [{"podUid": "u-a"}]), plan("new", "2026-01-02", pending)]
    view = shown([pod("a", **GATED), pod("b", "2", **GATED), pod("c", **GATED)], plans)
    group = next(g for g in view["groups"] if g["reason"] == "PowerDomainFull")
    assert (group["count"], group["gpus"]) == (2, 6)
    assert group["words"] == "no power left below a breaker"
    assert group["message"] == "rack-3 needs 6.6 kW, 120 W left"
    assert [p["name"] for p in view["plans"]] == ["new", "old"]
    assert {g["reason"] for g in view["groups"]} == {"PowerDomainFull", "WaitingForPlan"}


def test_pods_of_a_group_are_sorted_by_priority_and_then_by_age() -> None:
    young = pod("young", **GATED)
    young["metadata"]["creationTimestamp"] = "2026-01-01T01:00:00Z"
    important = pod("important", priority=1000, **GATED)
    view = shown([young, pod("old", **GATED), important], [])
    assert [p["name"] for p in view["groups"][0]["pods"]] == ["n/important", "n/old", "n/young"]


def test_finished_pods_are_neither_placed_nor_pending() -> None:
    done = pod("done") | {"status": {"phase": "Succeeded"}}
    running = pod("running", nodeName="node-1") | {"status": {"phase": "Running"}}
    view = shown([done, running], [])
    assert (view["placed"], view["pending"]) == (1, 0)


@pytest.mark.parametrize(
    ("gpus", "count"), [("1k", 1000), ("4e0", 4), (8, 8), ("nonsense", 0), (None, 0), ("-1", 0)]
)
def test_any_quantity_that_the_api_admits_gives_a_row(gpus: object, count: int) -> None:
    view = shown([pod("a", gpus)], [])
    assert sum(g["gpus"] for g in view["groups"]) == count


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"name": "a"}, "spec": {"containers": None}},
        {"metadata": {"name": "a"}, "spec": {"containers": [{"resources": None}]}},
        {"metadata": {"name": "a"}, "spec": {"containers": [{}], "initContainers": None}},
        {"metadata": {"name": "a"}, "spec": None, "status": None},
        pod("a", creationTimestamp=None) | {"status": {"phase": None}},
        pod("a", priority="high", schedulingGates=None),
    ],
)
def test_odd_pods_end_nothing(body: dict[str, Any]) -> None:
    assert shown([body], [])["placed"] == 0


def test_every_cause_of_the_planner_is_explained() -> None:
    assert {str(reason) for reason in PendingReason} <= set(CAUSES)


# -- decisions and histories ---------------------------------------------------------------------


def decision(kind: str, second: int, domain: str = "row") -> LiveDecision:
    return LiveDecision(
        id=f"{kind}-{second}", wall_time_ns=second * NS_PER_SECOND, epoch=1, domain=domain,
        kind=kind, message="draw 352000 W, limit 700 W",
    )  # fmt: skip


def test_what_flaps_is_one_line_with_a_count() -> None:
    flapping = [decision("MeterMismatch" if i % 2 else "MeterAgrees", 80 - i) for i in range(78)]
    lines = feed([*flapping, decision("Capping", 1)])
    assert [line["kind"] for line in lines] == ["MeterAgrees", "Capping"]
    assert lines[0]["count"] == 78
    assert (lines[0]["timeMs"], lines[0]["sinceMs"]) == (80_000, 3_000)


def test_bands_of_a_domain_are_told_one_by_one() -> None:
    lines = feed([decision("Capping", 3), decision("Normal", 2), decision("Capping", 1)])
    assert [line["count"] for line in lines] == [1, 1, 1]


def test_a_kind_of_a_newer_controller_is_spelled_out() -> None:
    assert feed([decision("BreakerOiled", 1)])[0]["words"] == "breaker oiled"


def test_servers_of_each_refused_domain_have_a_line_of_their_own_and_it_alarms() -> None:
    lines = feed([decision("ServersCountedAside", 2), decision("ServersCountedAside", 1)])
    assert [line["words"] for line in lines] == ["counts servers of a refused domain"] * 2
    assert {line["tone"] for line in lines} == {"alarm"}
    (lost,) = feed([decision("ServersUncounted", 1)])
    assert (lost["words"], lost["tone"]) == ("has servers that nobody counts", "alarm")
    (back,) = feed([decision("ServersCountedBack", 1)])
    assert back["tone"] == "calm"


def test_there_is_one_unit() -> None:
    assert in_kilowatts("draw 352,000 W of 700 W, 12.5 W") == "draw 352.0 kW of 700 W, 12.5 W"


def test_a_history_is_bounded_ordered_and_shows_its_gaps() -> None:
    histories, domain = Histories(), make_view().domains[0]
    for second in [1, 2, 2, 1, 3, 60]:
        histories.add(second * 1000, second * NS_PER_SECOND, [domain])
    columns = histories.columns("row")
    assert columns["timeMs"] == [1000.0, 2000.0, 3000.0, 31_500.0, 60_000.0]
    assert columns["drawWatts"][3] is None
    for second in range(100, 100 + 3 * POINTS):
        histories.add(second * 1000, second * NS_PER_SECOND, [domain])
    assert len(histories.columns("row")["timeMs"]) == POINTS
    assert histories.columns("nobody")["timeMs"] == []


def test_a_day_is_kept_in_means_of_ten_minutes_with_its_gaps() -> None:
    days, domain = DayBins(), make_view().domains[0]
    for second, draw in ((600, 10.0), (1100, 30.0), (1200, 7.0), (2400, 5.0)):
        days.add(second * 1000, [domain.model_copy(update={"draw_watts": draw})])
    assert days.columns("row") == {
        "startSeconds": [600.0, 1200.0, 1800.0, 2400.0], "drawWatts": [20.0, 7.0, None, 5.0],
    }  # fmt: skip
    for at in range(5, 5 + 3 * DAY_BINS):
        days.add(at * 600_000, [domain])
    columns = days.columns("row")
    assert len(columns["startSeconds"]) == len(days.bins["row"]) == DAY_BINS
    assert columns["startSeconds"][-1] == (4 + 3 * DAY_BINS) * 600.0
    assert days.columns("nobody") == {"startSeconds": [], "drawWatts": []}


def test_a_simulation_at_many_times_real_time_shows_no_gaps() -> None:
    histories, domain = Histories(), make_view().domains[0]
    for second in range(10):
        histories.add(second * 60_000, second * NS_PER_SECOND, [domain])
    assert None not in histories.columns("row")["drawWatts"]


def test_a_cursor_is_a_value() -> None:
    assert replace(Cursor(), tick=1) != Cursor()
