"""The controller's HTTP port under bad requests and bad readers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from controller.app.controller_http import HttpAnswer, HttpPort


def broken() -> HttpAnswer:
    raise RuntimeError("a page with a fault")


@pytest.fixture
def port() -> Iterator[HttpPort]:
    page = HttpAnswer(200, "text/plain", b"x" * 4_000_000)
    http = HttpPort("127.0.0.1", 0, {"/page": lambda: page, "/broken": broken})
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
