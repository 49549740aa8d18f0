"""From answers to errors, without a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wattpack.errors import InputError
from wattpack.kube.client import connect, from_kubeconfig
from wattpack.kube.client.client_api import _event
from wattpack.kube.client.failures import failure
from wattpack.kube.client.transport import _lines, parse
from wattpack.kube.port import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)

TABLE: list[tuple[int, str, type[KubeError]]] = [
    (400, "BadRequest", InvalidError),
    (401, "Unauthorized", ForbiddenError),
    (403, "Forbidden", ForbiddenError),
    (404, "NotFound", NotFoundError),
    (405, "MethodNotAllowed", InvalidError),
    (409, "AlreadyExists", AlreadyExistsError),
    (409, "Conflict", ConflictError),
    (410, "Expired", GoneError),
    (413, "RequestEntityTooLarge", InvalidError),
    (415, "UnsupportedMediaType", InvalidError),
    (422, "Invalid", InvalidError),
    (429, "TooManyRequests", ThrottledError),
    (500, "InternalError", UnavailableError),
    (502, "", UnavailableError),
    (503, "ServiceUnavailable", UnavailableError),
    (504, "Timeout", UnavailableError),
]


@pytest.mark.parametrize(("code", "reason", "kind"), TABLE)
def test_every_status_has_its_error(code: int, reason: str, kind: type[KubeError]) -> None:
    body = json.dumps({"reason": reason, "message": "why"}).encode()
    error = failure(code, body, {})
    assert type(error) is kind
    assert "why" in str(error)


def test_the_field_that_was_refused_is_in_the_message() -> None:
    causes = [{"field": "spec.ratingWatts", "message": "must be positive"}]
    body = json.dumps({"message": "refused", "details": {"causes": causes}}).encode()
    assert "spec.ratingWatts: must be positive" in str(failure(422, body, {}))


@pytest.mark.parametrize(
    ("headers", "details", "wait"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3),
        ({}, {}, 1.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, 1.0),
    ],
)
def test_the_servers_wish_to_wait_is_kept(
    headers: dict[str, str], details: dict[str, int], wait: float
) -> None:
    error = failure(429, json.dumps({"details": details}).encode(), headers)
    assert isinstance(error, ThrottledError)
    assert error.retry_after_seconds == wait


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'"x"', b"\xff\xfe", b"{" * 100_000])
def test_a_foreign_error_page_is_no_crash(body: bytes) -> None:
    assert isinstance(failure(502, body, {}), UnavailableError)
    assert len(str(failure(400, body, {}))) <= 2000


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"null", b"<html>", b'{"a": 1', b"[" * 100_000]
)
def test_a_broken_answer_is_unavailable(body: bytes) -> None:
    with pytest.raises(UnavailableError):
        parse(body)


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"type": "ADDED"},
        {"type": "EXPLODED", "object": {}},
        {"type": "ADDED", "object": []},
        {"type": None, "object": {}},
    ],
)
def test_a_broken_watch_event_is_unavailable(line: dict[str, object]) -> None:
    with pytest.raises(UnavailableError):
        _event(line)


def test_an_error_in_a_watch_is_the_error_that_it_names() -> None:
    with pytest.raises(GoneError):
        _event({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
    with pytest.raises(UnavailableError):
        _event({"type": "ERROR", "object": {}})


class Chunks:
    """A response that arrives in the given pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    def stream(self, size: int, decode_content: bool) -> tuple[bytes, ...]:
        return self._pieces


def test_lines_are_put_together_whatever_the_pieces() -> None:
    assert list(_lines(Chunks(b'{"a"', b":1}\n{", b'"b":2}', b"\n\n", b'{"c'))) == [
        b'{"a":1}',
        b'{"b":2}',
        b'{"c',
    ]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "5", "clusters: 5", "apiVersion: v1\nkind: Config\ncurrent-context: x\n"],
)
def test_a_broken_kubeconfig_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(InputError, match="config"):
        from_kubeconfig(tmp_path / "config")


def test_a_kubeconfig_that_names_two_contexts_as_the_current_one_is_refused(tmp_path: Path) -> None:
    """Which of two clusters the writes go to is nothing to guess; the last one used to win."""
    (tmp_path / "config").write_text(
        "current-context: a\ncurrent-context: b\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: a, context: {cluster: c, user: u}},"
        " {name: b, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {token: x}}]\n"
    )
    with pytest.raises(InputError, match=r"kubeconfig: .*again in line 2"):
        from_kubeconfig(tmp_path / "config")


def test_a_missing_kubeconfig_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        connect(tmp_path / "absent")


def test_a_pod_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(InputError, match="in-cluster"):
        connect()


def test_the_client_library_is_loaded_only_to_connect() -> None:
    code = "import sys, wattpack.kube.client; print('kubernetes' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.stdout.strip() == "False"
