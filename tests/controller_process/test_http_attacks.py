"""The controller's HTTP port, and the console that reads it: bad requests and bad answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from console.app import view_sources
from console.app.view_sources import HttpLiveSource
from controller.app.controller_http import HttpAnswer, HttpPort
from wattpack.clock import ManualClock


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


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"tick":NaN}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n" + b"[" * 6000,
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_an_answer_that_is_no_live_view_is_counted_and_the_console_lives_on(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_sources, "MAX_VIEW_BYTES", 5000)
    url, thread = serve_once(answer)
    source = HttpLiveSource((url,), ManualClock())
    source.poll()
    thread.join()
    assert source.failures == 1
    assert source.latest() is None
