"""A container's log comes line by line, whole, and over the right path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wattpack.kube.client.client_api import ClientKube
from wattpack.kube.client.transport import Transport
from wattpack.kube.port import NotFoundError


class Server:
    def __init__(self, chunks: list[bytes], status: int = 200) -> None:
        self.chunks, self.status = chunks, status
        self.urls: list[str] = []

    def request(self, method: str, url: str, **options: Any) -> Any:
        self.urls.append(f"{method} {url}")
        inner = SimpleNamespace(
            stream=lambda size, decode_content: iter(self.chunks),
            close=lambda: None, release_conn=lambda: None,
        )  # fmt: skip
        body = b'{"kind":"Status","reason":"NotFound","code":404,"message":"gone"}'
        return SimpleNamespace(
            status=self.status, headers={}, data=None, read=lambda: body, response=inner
        )


def client(server: Server) -> ClientKube:
    return ClientKube(Transport(server, "https://api", lambda: None))


def test_a_log_is_read_in_lines_wherever_the_chunks_end() -> None:
    server = Server([b"one\ntw", b"o\n", b"three"])
    assert client(server).pod_log("pod", "ns", "bench") == (b"one", b"two", b"three")
    assert server.urls == ["GET https://api/api/v1/namespaces/ns/pods/pod/log?container=bench"]


def test_a_pod_that_is_gone_is_a_typed_error() -> None:
    with pytest.raises(NotFoundError):
        client(Server([], status=404)).pod_log("pod", "ns", "bench")
