"""The console's HTTP side: health, who may look, hardening, the event stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from console.app import event_stream
from console.app.capacity_plan_source import CapacityPlanSource
from console.app.console_http import Sources, create_app
from console.app.event_stream import Hub, Position
from console.app.gpu_types_source import GpuTypesSource
from console.app.live_source import LiveSource
from console.app.placement_source import PlacementSource
from console.app.service_forecast_source import ServiceForecastSource
from console.freshness import Age
from simulation.kube.embedded_api import EmbeddedKube
from tests.console.views import make_view
from wattpack.clock import ManualClock
from wattpack.http_access import LIVE_VIEW, HttpAccess, pods_in
from wattpack.kube.port import TokenIdentity
from wattpack.live_view import LiveView


class FixedLive(LiveSource):
    """A source whose view and age a test sets."""

    def __init__(self, view: LiveView | None, age: Age) -> None:
        super().__init__((), ManualClock())
        self.view, self.age = view, age

    def latest(self) -> tuple[LiveView | None, Age]:
        return self.view, self.age


class Console:
    """The application around sources that a test sets."""

    def __init__(self, folder: Path, view: LiveView | None, *, insecure: bool = True) -> None:
        (folder / "static").mkdir()
        (folder / "static" / "index.html").write_text("<title>wattpack</title>")
        (folder / "secret.txt").write_text("secret")
        clock = ManualClock()
        self.api = EmbeddedKube(clock)
        self.live = FixedLive(view, Age(0.0) if view else Age(None, "controller-0: HTTP 503"))
        self.placement = PlacementSource(self.api, clock)
        self.placement.pump()
        self.capacity = CapacityPlanSource(self.api, clock)
        self.capacity.pump()
        self.forecasts = ServiceForecastSource(self.api, clock)
        self.forecasts.pump()
        access = HttpAccess(["console.example"], None if insecure else self.api, clock)
        gpu_types = GpuTypesSource(self.api, clock)
        sources = Sources(
            self.live, self.placement, gpu_types, self.capacity, self.forecasts, access
        )
        app = create_app(sources, folder / "static")
        self.client = TestClient(app, base_url="http://console.example")

    def grant(self, *namespaces: str) -> dict[str, str]:
        """Headers of somebody who may look, and list pods in these namespaces."""
        self.api.register_token("t", TokenIdentity("ann"))
        self.api.allow("ann", LIVE_VIEW)
        for namespace in namespaces:
            self.api.allow("ann", pods_in(namespace))
        return {"Authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/healthz", 200),
        ("/livez", 200),
        ("/api/v1/live", 200),
        ("/api/v1/placement", 200),
        ("/api/v1/gpu-types", 200),
        ("/api/v1/capacity", 200),
        ("/api/v1/forecasts", 200),
        ("/api/v1/forecasts/team/nobody", 404),
        ("/api/v1/forecasts/%00/%25", 404),
        ("/api/v1/history/row", 200),
        ("/api/v1/history/nobody", 200),
        ("/api/v1/history/%25", 200),
        ("/api/v1/explain/gpu/GPU-00000", 200),
        ("/api/v1/explain/gpu/%00", 404),
        ("/api/v1/explain/gpu/nobody", 404),
        ("/../secret.txt", 404),
        ("/%2e%2e/secret.txt", 404),
        ("/%00", 404),
        ("/" + "a" * 5000, 404),
        ("/no-such-page", 404),
    ],
)
def test_each_path_answers_as_documented(tmp_path: Path, path: str, status: int) -> None:
    answer = Console(tmp_path, make_view()).client.get(path)
    assert answer.status_code == status
    assert "secret" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_console_never_writes(tmp_path: Path, method: str) -> None:
    answer = Console(tmp_path, make_view()).client.request(method, "/api/v1/live")
    assert answer.status_code == 405


def test_health_tells_staleness_with_its_cause_and_liveness_does_not(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view())
    console.live.age = Age(12.0, "controller-0: HTTP 503")
    answer = console.client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["stale"] == {"live": "controller-0: HTTP 503"}
    assert console.client.get("/livez").status_code == 200


def test_health_tells_that_nobody_leads(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view().model_copy(update={"leading": False}))
    assert "no controller leads" in console.client.get("/healthz").text


def test_without_a_controller_the_console_says_so(tmp_path: Path) -> None:
    client = Console(tmp_path, None).client
    assert client.get("/api/v1/live").status_code == 503
    assert "HTTP 503" in client.get("/healthz").text


def test_strangers_and_foreign_names_see_nothing(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view(), insecure=False)
    for path in (
        "/api/v1/live",
        "/api/v1/placement",
        "/api/v1/capacity",
        "/api/v1/forecasts",
        "/api/v1/forecasts/team/chat",
        "/api/v1/stream",
        "/api/v1/history/row",
    ):
        assert console.client.get(path).status_code == 401
        evil = {"Host": "evil.example", **console.grant()}
        assert console.client.get(path, headers=evil).status_code == 403
    assert console.client.get("/healthz").status_code == 200


def test_names_of_pods_need_the_right_to_list_them(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view(), insecure=False)
    hidden = console.client.get("/api/v1/live", headers=console.grant())
    assert hidden.status_code == 200
    assert "default/" not in hidden.text
    shown = console.client.get("/api/v1/live", headers=console.grant("default"))
    # Refusals are kept for some seconds; another namespace was never asked for.
    assert shown.status_code == 200


def test_the_right_to_list_pods_shows_their_names(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view(), insecure=False)
    assert "default/" in console.client.get("/api/v1/live", headers=console.grant("default")).text


def hub(console: Console) -> Hub:
    return Hub(console.live, console.placement, console.capacity, console.forecasts, "b1")


def names(events: list[tuple[str, str]]) -> list[str]:
    return [name for name, _ in events]


def test_a_stream_gets_everything_once_and_then_a_pulse_each_second(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view())
    stream = hub(console)
    first, position = stream.events(Position(), None)
    assert names(first) == [
        "topology", "caps", "temperature", "decisions", "forecasts", "domains", "tick",
        "placement", "capacity", "service-forecasts", "pulse",
    ]  # fmt: skip
    second, position = stream.events(position, None)
    assert names(second) == ["pulse"]
    console.live.view = make_view(tick=2)
    third, _ = stream.events(position, None)
    assert names(third)[-2:] == ["tick", "pulse"]


def test_the_pulse_of_a_frozen_controller_says_stale_and_why(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view())
    console.live.age = Age(30.0, "controller-0: HTTP 503")
    events, _ = hub(console).events(Position(), None)
    pulse = json.loads(dict(events)["pulse"])
    assert pulse["state"] == "STALE"
    assert pulse["ages"]["live"] == {"seconds": 30.0, "cause": "controller-0: HTTP 503"}


def test_streams_of_different_rights_do_not_see_each_others_pods(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view())
    stream = hub(console)
    everything, _ = stream.events(Position(), None)
    little, _ = stream.events(Position(), frozenset({"other"}))
    assert "default/pod-0" in dict(everything)["topology"]
    assert "default/pod-0" not in dict(little)["topology"]


def test_a_stream_whose_rights_change_begins_anew(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view())
    stream = hub(console)
    stream.events(Position(), None)
    _, position = stream.events(Position(), frozenset({"other"}))
    events, _ = stream.events(position, None)
    assert "default/pod-0" in dict(events)["topology"]
    assert "placement" in dict(events)


def test_a_stream_outlives_the_frames_that_many_others_push_out(tmp_path: Path) -> None:
    console = Console(tmp_path, make_view())
    stream = hub(console)
    _, position = stream.events(Position(), None)
    for i in range(20):
        stream.events(Position(), frozenset({f"n{i}"}))
    events, _ = stream.events(position, None)
    assert "topology" in dict(events)


def test_too_many_streams_are_told_when_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "MAX_STREAMS", 0)
    answer = Console(tmp_path, make_view()).client.get("/api/v1/stream")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "5"
