"""``/metrics`` and ``/healthz`` as every process serves them, asked over real sockets."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from prometheus_client import CollectorRegistry, Gauge

from console.app import console_command
from simulation.kube import EmbeddedKube
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.heartbeat import Heartbeat
from wattpack.hosts import is_loopback
from wattpack.http_access import METRICS, HttpAccess, UnauthenticatedError
from wattpack.http_port import HttpPort
from wattpack.kube.port import TokenIdentity, UnavailableError
from wattpack.metrics_port import metrics_port, reader_access

READER = b"Authorization: Bearer reader\r\n"
OURS = b"Host: 10.1.2.3:8081\r\n"


class Served:
    """One process's port, with an API server that can be cut off."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kube = EmbeddedKube(self.clock)
        self.kube.register_token("reader", TokenIdentity("prometheus"))
        self.kube.register_token("other", TokenIdentity("somebody"))
        self.kube.allow("prometheus", METRICS)
        self.failure = ""
        registry = CollectorRegistry()
        Gauge("wattpack_secret", "Of the house", registry=registry).set(7)
        access = reader_access(
            "0.0.0.0", insecure=False, reviews=lambda: self.kube, clock=self.clock
        )
        self.http = metrics_port(("127.0.0.1", 0), registry, access, lambda: self.failure)
        self.http.start()

    def ask(self, request: bytes) -> bytes:
        """The whole answer."""
        return answer(self.http, request)


def answer(http: HttpPort, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", http.port), timeout=10) as client:
        client.sendall(request)
        whole = b""
        while part := client.recv(65536):
            whole += part
        return whole


@pytest.fixture
def served() -> Iterator[Served]:
    port = Served()
    yield port
    port.http.stop()


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OURS + READER, 200),
        (OURS, 401),
        (OURS + b"Authorization: Bearer forged\r\n", 401),
        (OURS + b"Authorization: Basic reader\r\n", 401),
        (OURS + READER + READER, 401),
        (OURS + b"Authorization: Bearer other\r\n", 403),
        (b"Host: evil.example\r\n" + READER, 403),
        (READER, 403),
    ],
)
def test_metrics_are_for_readers_whom_the_api_server_knows(
    served: Served, method: bytes, headers: bytes, status: int
) -> None:
    whole = served.ask(method + b" /metrics HTTP/1.1\r\n" + headers + b"\r\n")
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert (b"wattpack_secret 7.0" in body) == (status == 200 and method == b"GET")
    assert (body == b"") == (method == b"HEAD")


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"])
def test_no_other_method_says_anything(served: Served, method: bytes) -> None:
    whole = served.ask(method + b" /metrics HTTP/1.1\r\n" + OURS + READER + b"\r\n")
    assert whole.split()[1] == b"501"
    assert b"wattpack_secret" not in whole


@pytest.mark.parametrize(
    "hostile",
    [
        b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_huge_headers_and_other_languages_are_refused_and_the_port_lives_on(
    served: Served, hostile: bytes
) -> None:
    assert b"wattpack_secret" not in served.ask(hostile)
    assert b" 200 " in served.ask(b"GET /healthz HTTP/1.1\r\n\r\n")


def test_clients_that_stop_in_the_middle_hold_nobody_up(served: Served) -> None:
    slow = [socket.create_connection(("127.0.0.1", served.http.port)) for _ in range(200)]
    for client in slow:
        client.sendall(b"GET /metrics HTTP/1.1\r\nAuthoriz")
    assert b" 200 " in served.ask(b"GET /metrics HTTP/1.1\r\n" + OURS + READER + b"\r\n")
    for client in slow:
        client.close()


def test_health_is_open_under_any_name_and_says_what_is_wrong(served: Served) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert served.ask(request).split()[1] == b"200"
    served.failure = "the loop hangs"
    whole = served.ask(request)
    assert whole.split()[1] == b"503"
    assert whole.endswith(b"the loop hangs\n")


def test_without_an_answer_of_the_api_server_nothing_is_shown(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> TokenIdentity:
        raise UnavailableError("no answer")

    monkeypatch.setattr(served.kube, "review_token", away)
    whole = served.ask(b"GET /metrics HTTP/1.1\r\n" + OURS + READER + b"\r\n")
    assert whole.split()[1] == b"503"
    assert b"wattpack_secret" not in whole


def test_refusals_are_counted_in_what_readers_see(served: Served) -> None:
    for _ in range(3):
        served.ask(b"GET /metrics HTTP/1.1\r\n" + OURS + b"\r\n")
    text = served.ask(b"GET /metrics HTTP/1.1\r\n" + OURS + READER + b"\r\n").decode()
    assert 'wattpack_http_refused_requests_total{reason="UnauthenticatedError"} 3.0' in text


@pytest.mark.parametrize(
    ("host", "insecure", "asks"),
    [
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("10.0.0.7", False, True),
        ("127.0.0.1", False, False),
        ("::1", False, False),
        ("localhost", False, False),
        ("localhost.example", False, True),
        ("0.0.0.0", True, False),
    ],
)
def test_readers_are_asked_wherever_others_reach_the_port(
    host: str, insecure: bool, asks: bool
) -> None:
    clock = ManualClock()
    access = reader_access(host, insecure, lambda: EmbeddedKube(clock), clock)
    with pytest.raises(UnauthenticatedError) if asks else nullcontext():
        access.admit(["localhost"], [], METRICS)


def test_a_taken_port_is_refused_by_its_address(served: Served) -> None:
    access = reader_access("127.0.0.1", False, lambda: served.kube, served.clock)
    with pytest.raises(InputError, match=f"127.0.0.1:{served.http.port}"):
        metrics_port(("127.0.0.1", served.http.port), CollectorRegistry(), access)


def test_a_loop_is_late_only_after_its_patience() -> None:
    clock = ManualClock()
    beat = Heartbeat(clock, patience_seconds=60)
    clock.advance_seconds(60)
    assert not beat.is_late()
    clock.advance_seconds(1)
    assert beat.is_late()
    beat.next_at(clock.monotonic_ns() + 600 * 10**9)
    clock.advance_seconds(660)
    assert not beat.is_late()
    clock.advance_seconds(1)
    assert beat.is_late()


def test_only_this_machine_is_loopback() -> None:
    hosts = ("127.0.0.1", "[::1]", "::1", "localhost", "10.0.0.1", "a.b", "")
    assert [is_loopback(h) for h in hosts] == [True, True, True, True, False, False, False]


@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_a_port_can_be_read_over_ipv6(host: str) -> None:
    access = reader_access(host, insecure=True, reviews=EmbeddedKube, clock=ManualClock())
    http = metrics_port((host, 0), CollectorRegistry(), access)
    http.start()
    try:
        with urllib.request.urlopen(f"http://[::1]:{http.port}/healthz", timeout=20) as answer:
            assert answer.read() == b"ok\n"
    finally:
        http.stop()


def test_a_host_that_no_name_can_be_is_refused_by_its_address() -> None:
    access = HttpAccess.insecure((), ManualClock())
    with pytest.raises(InputError, match="a free address"):
        HttpPort("h" * 70, 0, {}, access)
    with pytest.raises(InputError, match="a free port"):
        console_command._listen("h" * 70, 0)


def test_the_console_listens_on_ipv6() -> None:
    with console_command._listen("[::1]", 0) as listener:
        assert listener.family is socket.AF_INET6
