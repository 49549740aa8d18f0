"""The console's HTTP side: frames, explanations, hardening, bad input."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from console.app.console_http import create_app
from console.app.view_sources import HttpLiveSource, PlacementSource, placement_view
from console.cap_reasons import explain_gpu
from console.frames import FULL, UNKNOWN, FrameMaker
from simulation.kube.embedded_api import EmbeddedKube
from tests.console.views import make_view
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.live_view import LiveView


class FixedLive(HttpLiveSource):
    """A source whose view a test sets."""

    def __init__(self, view: LiveView | None) -> None:
        super().__init__((), ManualClock())
        self.view = view

    def latest(self) -> LiveView | None:
        return self.view


def make_client(tmp_path: Path, view: LiveView | None) -> TestClient:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "index.html").write_text("<title>wattpack</title>")
    (tmp_path / "secret.txt").write_text("secret")
    clock = ManualClock()
    app = create_app(
        FixedLive(view), PlacementSource(EmbeddedKube(clock), clock), tmp_path / "static"
    )
    return TestClient(app)


def test_a_browser_gets_the_topology_once_and_then_small_frames() -> None:
    maker = FrameMaker()
    first = maker.frames(make_view(tick=1))
    second = maker.frames(make_view(tick=2))
    assert [name for name, _ in first] == ["topology", "tick"]
    assert [name for name, _ in second] == ["tick"]
    assert "reasons" in json.loads(first[1][1])
    assert "reasons" not in json.loads(second[0][1])


def test_a_tick_of_ten_thousand_gpus_stays_below_twenty_kilobytes() -> None:
    maker = FrameMaker()
    maker.frames(make_view(gpus=10_000, tick=1))
    ((_, body),) = maker.frames(make_view(gpus=10_000, tick=2))
    assert len(body) < 20_000


def test_levels_are_shares_of_the_request_and_unknown_is_not_zero() -> None:
    maker = FrameMaker()
    view = make_view(gpus=97)
    body = json.loads(maker.frames(view)[1][1])
    decoded = base64.b64decode(body["levels"])
    assert decoded[96] == UNKNOWN
    assert decoded[0] == round(FULL * (view.gpus.draw_watts[0] or 0.0) / 700.0)


def test_a_capped_gpu_is_explained_by_the_domain_that_bound() -> None:
    answer = explain_gpu(make_view(), "GPU-00000")
    assert answer["reason"] == "DOMAIN_BAND"
    assert answer["bindingDomain"] == "row"
    assert "cap band" in str(answer["sentence"])
    assert "not capped" in str(explain_gpu(make_view(), "GPU-00200")["sentence"])


def test_an_unknown_gpu_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="uuid"):
        explain_gpu(make_view(), "GPU-99999")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/healthz", 200),
        ("/api/v1/live", 200),
        ("/api/v1/placement", 200),
        ("/api/v1/history/row", 200),
        ("/api/v1/explain/gpu/GPU-00000", 200),
        ("/api/v1/explain/gpu/%00", 404),
        ("/api/v1/explain/gpu/nobody", 404),
        ("/../secret.txt", 404),
        ("/%2e%2e/secret.txt", 404),
        ("/no-such-page", 404),
    ],
)
def test_each_path_answers_as_documented(tmp_path: Path, path: str, status: int) -> None:
    answer = make_client(tmp_path, make_view()).get(path)
    assert answer.status_code == status
    assert "secret" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_console_never_writes(tmp_path: Path, method: str) -> None:
    answer = make_client(tmp_path, make_view()).request(method, "/api/v1/live")
    assert answer.status_code == 405


def test_without_a_controller_the_console_says_so(tmp_path: Path) -> None:
    client = make_client(tmp_path, None)
    assert client.get("/api/v1/live").status_code == 503
    assert client.get("/healthz").json() == {"alive": True, "live": False}


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": "1k"}, 1000),
        ({"nvidia.com/gpu": "1e3"}, 1000),
        ({"amd.com/gpu": "2"}, 2),
        ({"nvidia.com/mig-1g.10gb": "3"}, 3),
    ],
)
def test_a_pod_with_any_admitted_count_of_gpus_is_shown(limits: dict[str, str], gpus: int) -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    pod = {"metadata": {"name": "a", "namespace": "n", "uid": "u1"}, "spec": spec}
    odd = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "many"}}}]}
    view = placement_view([{"metadata": {"name": "odd"}, "spec": odd}, pod], [])
    assert [(row["name"], row["gpus"]) for row in view["pending"]] == [("a", gpus)]


def test_a_pending_pod_shows_the_reason_of_the_newest_plan() -> None:
    pod = {
        "metadata": {"name": "a", "namespace": "n", "uid": "u1"},
        "spec": {
            "schedulingGates": [{"name": "wattpack.io/placement"}],
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}],
        },
    }
    entry = {"podUid": "u1", "reason": "PowerDomainFull", "message": "row needs 2,400 W"}
    plan = {
        "metadata": {"name": "p2"},
        "spec": {"createdAt": "2026-01-02T00:00:00Z", "pending": [entry]},
    }
    older = {"metadata": {"name": "p1"}, "spec": {"createdAt": "2026-01-01T00:00:00Z"}}
    view = placement_view([pod], [older, plan])
    assert view["pending"][0]["reason"] == "PowerDomainFull"
    assert view["pending"][0]["gpus"] == 4
    assert [p["name"] for p in view["plans"]] == ["p2", "p1"]
