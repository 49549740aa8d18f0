"""What the console says of DemandForecasts of services, whatever the API server holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.app.service_forecast_source import ServiceForecastSource
from console.service_forecasts import (
    SHOWN_FORECASTS,
    STATES,
    forecasts_view,
    misses_too_often,
    read_service_forecast,
)
from simulation.kube import EmbeddedKube
from tests.console.service_forecasts import LEVELS, NOW_SECONDS, ago, forecast, ready
from tests.console.test_console_http import Console
from tests.console.views import make_view
from wattpack.api import DemandForecast
from wattpack.clock import ManualClock
from wattpack.kube.fault_injection import FaultRates, FaultyKube

RESOURCE = DemandForecast.meta.resource
OF_DOMAIN = {"target": {"powerDomain": "row", "series": "domain_draw_watts/row"}}
LATER = NOW_SECONDS + 1621
AWAY = ready(holds=False, reason="HistoryUnavailable", message="HTTP 503")


def missed(count: int, of: int = 100) -> dict[str, Any]:
    """Counts of live windows, and of all, that agree."""
    return {"coverageN": of, "violations": count, "liveWindows": of, "liveViolations": count}


def shown(*bodies: dict[str, Any], now_seconds: float = NOW_SECONDS) -> Any:
    rows = [row for body in bodies if (row := read_service_forecast(body)) is not None]
    return forecasts_view(rows, now_seconds)["forecasts"]


def put(api: EmbeddedKube, body: dict[str, Any]) -> None:
    namespace = body["metadata"]["namespace"]
    stored = api.create(RESOURCE, body, namespace)
    said = {**stored, "status": body["status"]}
    api.replace(RESOURCE, said, namespace, subresource="status")


def tell(api: EmbeddedKube, name: str, **status: Any) -> None:
    stored = api.get(RESOURCE, name, "team")
    said = {**stored, "status": {**stored["status"], **status}}
    api.replace(RESOURCE, said, "team", subresource="status")


def test_a_forecast_in_use_is_shown_with_all_that_it_tells() -> None:
    (row,) = shown(forecast())
    assert (row["name"], row["subject"], row["unit"]) == ("team/chat", "chat", "requests/s")
    assert (row["state"], row["why"]) == ("Forecast", "")
    assert (row["now"], row["p50"], row["p95"], row["p99"]) == (43.2, 64.1, 76.5, 84.9)
    assert row["account"]["live_windows"] == 16
    assert [tier["weight"] for tier in row["account"]["tiers"]] == [0.64, 0.36]
    assert (row["tokens"]["requestP99"], row["tokens"]["p99"]) == (2210, 35200)
    assert (row["replicas"]["count"], row["replicas"]["reason"][:9]) == (9, "p95 of 47")
    assert row["data_until_seconds"] == NOW_SECONDS - 180


@pytest.mark.parametrize(
    ("changes", "now_seconds", "state", "why"),
    [
        ({}, NOW_SECONDS, "Forecast", ""),
        ({"flags": ["gaps"]}, NOW_SECONDS, "Flagged", ""),
        ({"fallback": True, "method": "last-24h-max"}, NOW_SECONDS, "Fallback", "last-24h-max"),
        (missed(4, of=30), NOW_SECONDS, "Missed", "4 of 30 live windows"),
        ({"flags": ["above-p99"]}, NOW_SECONDS, "Contradicted", "newest value"),
        ({"now": 90.0}, NOW_SECONDS, "Contradicted", "newest value"),
        ({}, LATER, "Expired", "no newer forecast"),
        ({"flags": ["above-p99"]}, LATER, "Expired", "no newer forecast"),
        (
            {"conditions": [ready(holds=False, reason="HistoryStale", message="ends at noon")]},
            LATER,
            "NotReady",
            "HistoryStale: ends at noon",
        ),
        ({"conditions": [AWAY]}, NOW_SECONDS, "Kept", "HistoryUnavailable: HTTP 503"),
        ({"conditions": [AWAY]}, LATER, "Expired", "no newer forecast"),
        ({"conditions": [AWAY], "p99": None}, NOW_SECONDS, "NotReady", "HTTP 503"),
        ({"conditions": []}, NOW_SECONDS, "NotReady", "no forecaster"),
        ({"observedGeneration": 0}, NOW_SECONDS, "NotReady", "earlier spec"),
    ],
)
def test_each_state_is_told_with_its_reason(
    changes: dict[str, Any], now_seconds: float, state: str, why: str
) -> None:
    (row,) = shown(forecast(**changes), now_seconds=now_seconds)
    assert row["state"] == state
    assert why in row["why"]
    assert bool(why) == bool(row["why"])


def test_the_worst_come_first_and_of_one_state_those_that_missed_most() -> None:
    found = shown(
        forecast("fine"),
        forecast("flagged", flags=["gaps"]),
        forecast("fallen", fallback=True),
        forecast("missed", **missed(9)),
        forecast("missed-more", **missed(12)),
        forecast("passed", flags=["above-p99"]),
        forecast("old", validUntil=ago(1)),
        forecast("waits", conditions=[]),
    )
    assert [row["name"] for row in found] == [
        "team/waits", "team/old", "team/passed", "team/missed-more", "team/missed", "team/fallen",
        "team/flagged", "team/fine",
    ]  # fmt: skip
    assert [row["state"] for row in found] == sorted(
        (row["state"] for row in found), key=STATES.index
    )


@pytest.mark.parametrize(
    ("windows", "missed", "expected"),
    [
        (None, None, False),
        (0, 0, False),
        (1, 1, False),  # one miss is no alarm
        (34, 4, True),  # 4 - 1.645 * 2 = 0.71, over 2 % of 34
        (36, 4, True),  # coverage of 0.889 over at least 20 windows
        (100, 5, False),  # 5 - 1.645 * 2.236 = 1.32 of 2; coverage 0.95 exactly
        (100, 6, True),
        (400, 9, False),
    ],
)
def test_misses_beyond_luck_are_those_that_alerts_tell(
    windows: int | None, missed: int | None, expected: bool
) -> None:
    assert misses_too_often(windows, missed) is expected


@pytest.mark.parametrize(
    "broken",
    [
        {"spec": {}},
        {"spec": None},
        {"status": {"p99": "much"}},
        {"status": {"tokens": {"mean": -1}}},
        {"status": {"conditions": [{"type": "Ready"}]}},
    ],
)
def test_one_that_cannot_be_read_is_said_and_the_others_are_shown(broken: Any) -> None:
    found = shown({**forecast("odd"), **broken}, forecast())
    assert [row["name"] for row in found] == ["team/odd", "team/chat"]
    assert found[0]["state"] == "NotReady"
    assert "unreadable" in found[0]["why"]


def test_forecasts_of_power_domains_have_a_panel_of_their_own() -> None:
    assert shown(forecast("row", spec=OF_DOMAIN), forecast("row", spec={**OF_DOMAIN, "x": 1})) == []


def test_more_than_a_page_holds_are_counted_and_the_worst_are_among_the_shown() -> None:
    rows = [read_service_forecast(forecast(f"s{i:03d}")) for i in range(SHOWN_FORECASTS + 3)]
    rows.append(read_service_forecast(forecast("zz", conditions=[])))
    view: Any = forecasts_view([row for row in rows if row], NOW_SECONDS)
    assert (len(view["forecasts"]), view["more"]) == (SHOWN_FORECASTS, 4)
    assert view["forecasts"][0]["name"] == "team/zz"
    assert view["states"] == {"NotReady": 1, "Forecast": SHOWN_FORECASTS + 3}


@pytest.fixture
def api() -> EmbeddedKube:
    return EmbeddedKube(ManualClock())


@pytest.fixture
def source(api: EmbeddedKube) -> ServiceForecastSource:
    return ServiceForecastSource(api, ManualClock())


def names(view: Any) -> list[str]:
    return [row["name"] for row in view["forecasts"]]


def test_forecasts_are_followed_and_only_those_of_visible_namespaces_are_shown(
    api: EmbeddedKube, source: ServiceForecastSource
) -> None:
    assert source.ages()["forecasts"].seconds is None
    source.pump()
    first, _ = source.view(None, NOW_SECONDS)
    put(api, forecast())
    put(api, forecast("row", spec=OF_DOMAIN))
    source.pump()
    second, view = source.view(None, NOW_SECONDS)
    assert second > first
    assert names(view) == ["team/chat"]
    assert source.view(None, NOW_SECONDS + 1) == (second, view)
    assert source.namespaces() == {"team"}
    _, little = source.view(frozenset({"other"}), NOW_SECONDS)
    assert (names(little), little["hidden"]) == ([], 1)
    assert source.view(None, NOW_SECONDS) == (second, view)
    assert source.ages()["forecasts"].seconds == 0.0
    api.delete(RESOURCE, "chat", "team")
    source.pump()
    assert names(source.view(None, NOW_SECONDS)[1]) == []


def test_what_grows_too_old_is_told_without_a_change_of_the_object(
    api: EmbeddedKube, source: ServiceForecastSource
) -> None:
    put(api, forecast())
    source.pump()
    fresh, _ = source.view(None, NOW_SECONDS)
    old, view = source.view(None, LATER)
    assert (old > fresh, view["states"]) == (True, {"Expired": 1})
    # A simulation that begins anew goes back in time.
    assert source.view(None, NOW_SECONDS)[1]["states"] == {"Forecast": 1}


def test_a_silent_api_server_makes_forecasts_stale_and_its_return_fresh() -> None:
    clock = ManualClock()
    api = FaultyKube(EmbeddedKube(clock), FaultRates(), clock=clock)
    source = ServiceForecastSource(api, clock)
    source.pump()
    api.is_down = True
    for _ in range(60):
        clock.advance_seconds(1)
        source.pump()
    assert source.ages()["forecasts"].is_stale
    assert source.ages()["forecasts"].cause
    api.is_down = False
    clock.advance_seconds(60)
    source.pump()
    assert source.ages()["forecasts"].seconds == 0.0


def test_a_fan_has_every_level_and_the_day_as_it_was_seen(
    api: EmbeddedKube, source: ServiceForecastSource
) -> None:
    put(api, forecast())
    source.pump()
    tell(api, "chat", now=47.0, dataUntil=ago(-1020))
    source.pump()
    fan: Any = source.fan("team/chat")
    assert fan["levels"] == list(LEVELS)
    assert [len(values) for values in fan["values"]] == [36] * 4
    assert (fan["start_seconds"], fan["step_seconds"]) == (NOW_SECONDS - 180, 600)
    assert [value for value in fan["past"]["values"] if value is not None] == [43.2, 47.0]
    assert source.fan("team/chat", frozenset({"other"})) is None
    assert source.fan("team/nobody") is None


def test_an_object_that_tells_no_steps_has_an_empty_fan(
    api: EmbeddedKube, source: ServiceForecastSource
) -> None:
    put(api, {**forecast(), "status": {}})
    source.pump()
    fan: Any = source.fan("team/chat")
    assert (fan["levels"], fan["past"]["values"]) == ([], [])


def test_names_and_fans_need_the_right_to_list_pods_of_their_namespace(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view(), insecure=False)
    put(console.api, forecast())
    console.forecasts.pump()
    theirs = console.grant("default")
    assert names(console.client.get("/api/v1/forecasts", headers=theirs).json()) == []
    path = "/api/v1/forecasts/team/chat"
    assert console.client.get(path, headers=theirs).status_code == 404


def test_who_may_list_pods_of_a_namespace_sees_its_forecasts(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view(), insecure=False)
    put(console.api, forecast())
    console.forecasts.pump()
    ours = console.grant("team")
    assert names(console.client.get("/api/v1/forecasts", headers=ours).json()) == ["team/chat"]
    assert console.client.get("/api/v1/forecasts/team/chat", headers=ours).json()["levels"]
