"""The embedded API behind a small HTTP server, for clients that speak only HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from simulation.kube import EmbeddedKube
from wattpack.api import GpuNode
from wattpack.kube.port import (
    NODES,
    Access,
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    ThrottledError,
    TokenIdentity,
    TokenRefusedError,
)

KINDS = {kind.plural: kind for kind in (GpuNode.meta.resource, NODES)}
CODES: tuple[tuple[type[KubeError], int, str], ...] = (
    (NotFoundError, 404, "NotFound"),
    (AlreadyExistsError, 409, "AlreadyExists"),
    (ConflictError, 409, "Conflict"),
    (InvalidError, 422, "Invalid"),
    (ForbiddenError, 403, "Forbidden"),
    (ThrottledError, 429, "TooManyRequests"),
    (KubeError, 500, "InternalError"),
)
Raw = Callable[[BaseHTTPRequestHandler], None]


class KubeOverHttp:
    """Serves get, create and apply on a free loopback port.

    Attributes:
        seen: Method, path, query and headers of each request.
        raw: If set, answers in place of the API.
        on_answer: Told the path of each request that the API took.
    """

    def __init__(self, kube: EmbeddedKube) -> None:
        self.kube = kube
        self.seen: list[tuple[str, str, dict[str, list[str]], dict[str, str]]] = []
        self.raw: Raw | None = None
        self.on_answer: Callable[[str], None] = lambda path: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                outer._answer(self)

            do_GET = do_POST = do_PATCH = answer  # noqa: N815 - the base class asks for them

            def log_message(self, format: str, *args: object) -> None:
                """Tests do not print."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> KubeOverHttp:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        query = parse_qs(parts.query)
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else None
        self.seen.append((request.command, parts.path, query, dict(request.headers)))
        if self.raw is not None:
            self.raw(request)
            return
        try:
            send(request, 200, self._do(request.command, parts.path, query, body))
            self.on_answer(parts.path)
        except KubeError as error:
            code, reason = next((c, r) for kind, c, r in CODES if isinstance(error, kind))
            status = {"kind": "Status", "code": code, "reason": reason, "message": str(error)}
            send(request, code, status)

    def _do(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        names = path.strip("/").split("/")
        if method == "POST" and names[-1] in {"tokenreviews", "subjectaccessreviews"}:
            return self._review(names[-1], body["spec"])
        rest = names[3:] if names[0] == "apis" else names[2:]
        if rest[0] not in KINDS:
            raise NotFoundError("the server could not find the requested resource")
        kind = KINDS[rest[0]]
        if method == "GET":
            return self.kube.get(kind, rest[1])
        if method == "POST":
            return self.kube.create(kind, body)
        return self.kube.apply(
            kind,
            body,
            field_manager=query["fieldManager"][0],
            subresource=rest[2] if len(rest) > 2 else "",
            force=query["force"] == ["true"],
        )

    def _review(self, kind: str, spec: Any) -> Any:
        """A review's answer, as the API server words it."""
        if kind == "tokenreviews":
            try:
                who = self.kube.review_token(spec["token"], spec["audiences"])
            except TokenRefusedError as error:
                return {"status": {"authenticated": False, "error": str(error)}}
            user = {"username": who.username, "groups": list(who.groups)}
            audiences = spec["audiences"]
            return {"status": {"authenticated": True, "user": user, "audiences": audiences}}
        plain = spec.get("nonResourceAttributes")
        asked = plain or spec["resourceAttributes"]
        access = (
            Access(plain["verb"], path=plain["path"])
            if plain
            else Access(
                asked["verb"],
                group=asked["group"],
                plural=asked["resource"],
                namespace=asked.get("namespace", ""),
            )
        )
        who = TokenIdentity(spec["user"], tuple(spec["groups"]))
        return {"status": {"allowed": self.kube.review_access(who, access)}}


def send(
    request: BaseHTTPRequestHandler,
    code: int,
    body: object,
    *,
    headers: dict[str, str] | None = None,
) -> None:
    """Answer with a JSON body, or with these bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request.send_response(code)
    for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(data)
    request.close_connection = True


def kubeconfig(cluster: Any = None, user: Any = None, **top: Any) -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and one context."""
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster or {"server": "https://api:6443"}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        **top,
    }
