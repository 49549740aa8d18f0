"""A process's HTTP port: fixed paths, each open to all or to callers with a right.

Handlers only hand out bytes that were left for them, so that no reader can stall whoever makes
them. Readers that connect and stay are dropped, the oldest first, before they fill the process.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wattpack.errors import InputError
from wattpack.hosts import bare, socket_family
from wattpack.http_access import Caller, HttpAccess, HttpRefusal
from wattpack.kube.port import Access

__all__ = ["HttpAnswer", "HttpPort", "Route", "health"]

log = logging.getLogger(__name__)
# Each holds a thread; a scraper, a console and two probes use a handful.
MAX_CONNECTIONS = 128


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status, a content type and bytes."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """What a path answers.

    Attributes:
        answer: Makes it, for this caller.
        access: The right that a caller needs; None for none, under any Host (health).
    """

    answer: Callable[[Caller], HttpAnswer]
    access: Access | None


def health(answer: Callable[[], HttpAnswer]) -> Route:
    """A route that is open to everybody."""
    return Route(lambda caller: answer(), None)


class HttpPort:
    """Serves fixed paths with GET and HEAD; everything else is 404 or 501."""

    def __init__(
        self, host: str, port: int, routes: Mapping[str, Route], access: HttpAccess
    ) -> None:
        try:
            self._server = _Server((host, port), _handler_for(routes, access))
        except (OSError, UnicodeError) as error:
            raise InputError("http", "a free address", f"{host}:{port}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.2},
            daemon=True,
            name="http-port",
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=5.0)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Keeps at most ``MAX_CONNECTIONS``: one more ends the one that has been there longest."""

    daemon_threads = True
    # Probes wait in the same line as readers that come all at once; the library's line has five.
    request_queue_size = MAX_CONNECTIONS
    # Threads of readers that hang are not waited for at the end.
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket_family(address[0])
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__((bare(address[0]), address[1]), handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > MAX_CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        log.debug("a reader's connection failed", exc_info=True)


def _answer(route: Route, caller: Caller) -> HttpAnswer:
    """The route's answer; 500 where it fails, so that one bad page stays one bad page."""
    try:
        return route.answer(caller)
    except HttpRefusal:
        raise
    except Exception:
        log.exception("no answer")
        return HttpAnswer(500, "text/plain", b"internal error\n")


def _refused(refusal: HttpRefusal) -> HttpAnswer:
    text = f"{type(refusal).__name__}: {refusal}\n"
    return HttpAnswer(refusal.status, "text/plain", text.encode(), refusal.headers)


def _handler_for(routes: Mapping[str, Route], access: HttpAccess) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Looks the path up in the routes."""

        server_version = "wattpack"
        sys_version = ""
        # A reader that says or takes nothing for so long is dropped, so that none piles up.
        timeout = 10.0

        def do_GET(self) -> None:
            """Answer one request."""
            self._send(self._respond())

        def do_HEAD(self) -> None:
            """The same without the body."""
            self._send(self._respond(), with_body=False)

        def _send(self, answer: HttpAnswer, with_body: bool = True) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            for name, value in answer.headers.items():
                self.send_header(name, value)
            try:
                self.end_headers()
                if with_body:
                    self.wfile.write(answer.body)
            except OSError as error:
                log.debug("a reader of %s went away: %s", self.path, error)
                self.close_connection = True

        def _respond(self) -> HttpAnswer:
            route = routes.get(self.path.partition("?")[0])
            if route is None:
                return HttpAnswer(404, "text/plain", b"not found\n")
            try:
                if route.access is None:
                    return _answer(route, Caller(None))
                hosts = self.headers.get_all("Host", [])
                tokens = self.headers.get_all("Authorization", [])
                return _answer(route, access.admit(hosts, tokens, route.access))
            except HttpRefusal as refusal:
                return _refused(refusal)

        def log_message(self, format: str, *args: object) -> None:
            """Access is not logged."""

    return Handler
