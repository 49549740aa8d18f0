"""The controller's HTTP port under bad requests and bad readers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from simulation.kube import EmbeddedKube
from wattpack.clock import ManualClock
from wattpack.http_access import METRICS, HttpAccess
from wattpack.http_port import MAX_CONNECTIONS, HttpAnswer, HttpPort, Route, health
from wattpack.kube.port import TokenIdentity


def broken() -> HttpAnswer:
    raise RuntimeError("a page with a fault")


@pytest.fixture
def port() -> Iterator[HttpPort]:
    page = HttpAnswer(200, "text/plain", b"x" * 4_000_000)
    kube = EmbeddedKube(ManualClock())
    kube.register_token("reader", TokenIdentity("prometheus"))
    kube.register_token("other", TokenIdentity("somebody"))
    kube.allow("prometheus", METRICS)
    routes = {
        "/page": health(lambda: page),
        "/broken": health(broken),
        "/metrics": Route(lambda caller: HttpAnswer(200, "text/plain", b"1"), METRICS),
    }
    http = HttpPort("127.0.0.1", 0, routes, HttpAccess(["ours.example"], kube, ManualClock()))
    http.start()
    yield http
    http.stop()


def ask(port: HttpPort, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port.port), timeout=10) as client:
        client.sendall(request)
        return client.recv(64)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /page HTTP/1.0", b"200"),
        (b"GET /page?x=%00%ff HTTP/1.0", b"200"),
        (b"GET /nothing HTTP/1.0", b"404"),
        (b"GET /../../etc/passwd HTTP/1.0", b"404"),
        (b"GET /broken HTTP/1.0", b"500"),
        (b"POST /page HTTP/1.0", b"501"),
        (b"DELETE /page HTTP/1.0", b"501"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.0", b"414"),
        (b"GET /page HTTP/1.0\r\n" + b"X: y\r\n" * 200, b"431"),
    ],
)
def test_a_request_is_answered_by_its_status_and_the_port_lives_on(
    port: HttpPort, request_line: bytes, status: bytes
) -> None:
    assert status in ask(port, request_line + b"\r\n\r\n").split(b"\r\n")[0]
    assert b"200" in ask(port, b"GET /page HTTP/1.0\r\n\r\n")


def test_readers_that_leave_or_say_nothing_stop_nobody(port: HttpPort) -> None:
    silent = [socket.create_connection(("127.0.0.1", port.port)) for _ in range(20)]
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port.port)) as leaver:
            leaver.sendall(b"GET /page HTTP/1.0\r\n\r\n")
    assert b"200" in ask(port, b"GET /page HTTP/1.0\r\n\r\n")
    for client in silent:
        client.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Host: ours.example\r\nAuthorization: Bearer reader\r\n", b"200"),
        (b"Host: 127.0.0.1:9\r\nAuthorization: bearer reader\r\n", b"200"),
        (b"Host: ours.example\r\n", b"401"),
        (b"Host: ours.example\r\nAuthorization: Bearer forged\r\n", b"401"),
        (b"Host: ours.example\r\nAuthorization: Bearer other\r\n", b"403"),
        (b"Host: evil.example\r\nAuthorization: Bearer reader\r\n", b"403"),
        (b"Host: ours.example\r\nHost: ours.example\r\nAuthorization: Bearer reader\r\n", b"403"),
        (b"Authorization: Bearer reader\r\n", b"403"),
    ],
)
def test_metrics_are_for_those_who_may_read_them_under_our_own_name(
    port: HttpPort, headers: bytes, status: bytes
) -> None:
    assert status in ask(port, b"GET /metrics HTTP/1.1\r\n" + headers + b"\r\n").split(b"\r\n")[0]


def test_more_idle_readers_than_there_are_places_lock_nobody_out(port: HttpPort) -> None:
    silent = [
        socket.create_connection(("127.0.0.1", port.port)) for _ in range(2 * MAX_CONNECTIONS)
    ]
    assert b"200" in ask(port, b"GET /page HTTP/1.0\r\n\r\n")
    # The oldest were sent away; those after them still wait.
    silent[0].settimeout(10.0)
    assert silent[0].recv(1) == b""
    for client in silent:
        client.close()
