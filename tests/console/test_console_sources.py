"""What the console reads: fresh or stale live views, watches of pods, any bad answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from console.app.live_source import LiveSource, ReplicaReader
from console.app.placement_source import PlacementSource
from simulation.kube.embedded_api import EmbeddedKube
from tests.console.views import make_view
from wattpack import live_client
from wattpack.clock import ManualClock
from wattpack.http_access import HttpAccess
from wattpack.http_port import HttpAnswer, HttpPort, health
from wattpack.kube.claim_follower import CLAIM_KINDS
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import PODS
from wattpack.live_view import LiveView


class Controller:
    """A controller replica whose answer a test sets."""

    def __init__(self) -> None:
        self.status, self.view, self.body = 200, make_view(), b""
        access = HttpAccess.insecure((), ManualClock())
        self.http = HttpPort("127.0.0.1", 0, {"/v1/live": health(self._answer)}, access)
        self.http.start()
        self.url = f"http://127.0.0.1:{self.http.port}/v1/live"

    def says(self, **changes: object) -> None:
        self.view = self.view.model_copy(update=changes)

    def _answer(self) -> HttpAnswer:
        body = self.body or self.view.model_dump_json().encode()
        return HttpAnswer(self.status, "application/json", body)


@pytest.fixture
def controllers() -> Iterator[list[Controller]]:
    replicas = [Controller(), Controller()]
    replicas[1].says(leading=False, tick=500)
    yield replicas
    for replica in replicas:
        replica.http.stop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source(controllers: list[Controller], clock: ManualClock) -> LiveSource:
    return LiveSource([c.url for c in controllers], clock)


def shown(source: LiveSource) -> LiveView:
    view, _ = source.latest()
    assert view is not None
    return view


def test_the_leader_is_shown_not_the_standby_with_more_ticks(source: LiveSource) -> None:
    source.poll()
    assert shown(source).leading


def test_controllers_at_503_age_with_their_cause(
    controllers: list[Controller], source: LiveSource, clock: ManualClock
) -> None:
    source.poll()
    assert source.latest()[1].cause == ""
    for controller in controllers:
        controller.status = 503
    for _ in range(30):
        clock.advance_seconds(1)
        source.poll()
    _, age = source.latest()
    assert age.seconds == 30.0
    assert age.cause.count("HTTP 503") == 2
    assert age.is_stale


def test_an_answer_that_repeats_itself_ages_like_no_answer(
    source: LiveSource, clock: ManualClock
) -> None:
    for _ in range(12):
        source.poll()
        clock.advance_seconds(1)
    _, age = source.latest()
    assert age.seconds == 12.0
    assert "nothing new" in age.cause


def test_a_new_leader_with_the_same_tick_number_is_new(
    controllers: list[Controller], source: LiveSource
) -> None:
    source.poll()
    controllers[0].http.stop()
    controllers[1].says(leading=True, epoch=4, tick=controllers[0].view.tick)
    source.poll()
    assert shown(source).epoch == 4


def test_a_dead_leader_gives_way_to_a_standby_that_says_that_nobody_leads(
    controllers: list[Controller], source: LiveSource, clock: ManualClock
) -> None:
    source.poll()
    controllers[0].status = 503
    for tick in range(501, 506):
        clock.advance_seconds(1)
        controllers[1].says(tick=tick)
        source.poll()
    assert not shown(source).leading


def test_a_view_of_a_newer_release_is_read(
    controllers: list[Controller], source: LiveSource
) -> None:
    body = controllers[0].view.model_dump_json().replace('{"wall', '{"novelty":{"a":1},"wall', 1)
    controllers[0].body = body.encode()
    source.read(controllers[0].url)
    assert shown(source).leading


def test_a_view_that_lacks_a_field_is_told_by_the_field(
    controllers: list[Controller], source: LiveSource, clock: ManualClock
) -> None:
    body = controllers[0].view.model_dump_json().replace('"epoch"', '"age"')
    for controller in controllers:
        controller.body = body.encode()
    source.poll()
    view, age = source.latest()
    assert view is None
    assert "epoch" in age.cause


def test_histories_keep_what_was_shown(
    controllers: list[Controller], source: LiveSource, clock: ManualClock
) -> None:
    for second in range(1, 6):
        controllers[0].says(tick=second, wall_time_ns=second * 10**9)
        source.poll()
        clock.advance_seconds(1)
    assert source.history("row")["timeMs"] == [1000.0, 2000.0, 3000.0, 4000.0, 5000.0]


def serve_once(answer: bytes) -> tuple[str, threading.Thread]:
    """An address that gives one answer and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/v1/live", thread


def http_answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def view_with(**gpus: Any) -> bytes:
    view = make_view(gpus=8, racks=1).model_dump()
    view["gpus"] |= gpus
    return json.dumps(view).encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: no\r\n\r\n{}",
        http_answer(b"{}"),
        http_answer(b"null"),
        http_answer(b'{"tick":NaN}'),
        http_answer(b"[" * 6000),
        http_answer(b"[" * 90_000),
        http_answer(view_with(draw_watts=[1.0])),
        http_answer(view_with(binding_domain=[7] * 8)),
        http_answer(view_with(rack=["elsewhere"] * 8)),
        http_answer(view_with(request_watts=["much"] * 8)),
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_an_answer_that_is_no_live_view_is_counted_and_the_console_lives_on(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_client, "MAX_VIEW_BYTES", 50_000)
    url, thread = serve_once(answer)
    source = LiveSource((url,), ManualClock())
    source.poll()
    thread.join()
    assert source.failures == 1
    view, age = source.latest()
    assert view is None
    assert age.cause


def test_reading_that_hangs_is_told_from_controllers_that_are_silent(
    source: LiveSource, clock: ManualClock, controllers: list[Controller]
) -> None:
    ReplicaReader(source, controllers[0].url, clock).run_once()
    clock.advance_seconds(90)
    assert source.idle_seconds() == 90.0


# -- pods and plans ------------------------------------------------------------------------------


def gpu_pod(name: str, gpus: object = "4") -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
    }


def test_pods_are_followed_not_listed_again(clock: ManualClock) -> None:
    api = EmbeddedKube(clock)
    source = PlacementSource(api, clock)
    source.pump()
    first, _ = source.view()
    api.create(PODS, gpu_pod("a"), "team")
    source.pump()
    second, view = source.view()
    assert second > first
    assert view["pending"] == 1
    source.pump()
    assert source.view() == (second, view)
    api.delete(PODS, "a", "team")
    source.pump()
    assert source.view()[1]["pending"] == 0


def test_a_pod_with_any_admitted_quantity_does_not_end_the_watch(clock: ManualClock) -> None:
    api = EmbeddedKube(clock)
    source = PlacementSource(api, clock)
    api.create(PODS, gpu_pod("thousand", "1k"), "team")
    source.pump()
    api.create(PODS, gpu_pod("next"), "team")
    source.pump()
    assert source.view()[1]["pending"] == 2
    assert not source.ages()["pods"].is_stale


def test_a_silent_api_server_makes_pods_and_plans_stale_and_its_return_fresh(
    clock: ManualClock,
) -> None:
    api = FaultyKube(EmbeddedKube(clock), FaultRates(), clock=clock)
    source = PlacementSource(api, clock)
    assert source.ages()["pods"].seconds is None
    source.pump()
    assert source.ages()["pods"].seconds == 0.0
    api.is_down = True
    for _ in range(60):
        clock.advance_seconds(1)
        source.pump()
    assert source.ages()["pods"].is_stale
    assert source.ages()["pods"].cause
    api.is_down = False
    clock.advance_seconds(60)
    source.pump()
    assert source.ages()["plans"].seconds == 0.0


def test_only_pods_of_visible_namespaces_are_shown(clock: ManualClock) -> None:
    api = EmbeddedKube(clock)
    api.create(PODS, gpu_pod("a"), "team")
    source = PlacementSource(api, clock)
    source.pump()
    assert source.view(frozenset({"other"}))[1] | {"plans": []} == {
        "placed": 0, "pending": 0, "groups": [], "plans": [], "hidden": 1,
    }  # fmt: skip


def test_gpus_that_a_pod_claims_are_shown_once_they_are_allocated(clock: ManualClock) -> None:
    api = EmbeddedKube(clock)
    source = PlacementSource(api, clock)
    body = gpu_pod("claimer", "0")
    body["spec"] |= {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}], "nodeName": "n"}
    api.create(PODS, body, "team")
    source.pump()
    assert source.view()[1]["placed"] == 0
    kind = CLAIM_KINDS[0]
    devices = [{"driver": "gpu.nvidia.com", "pool": "n", "device": f"gpu-{i}"} for i in range(2)]
    allocation = {"allocation": {"devices": {"results": devices}}}
    claim = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "c"}}
    api.create(kind, {**claim, "status": allocation}, "team")
    source.pump()
    assert source.view()[1]["placed"] == 1
    assert [row.gpus for row in source._rows.values()] == [2]
    source.stop()
