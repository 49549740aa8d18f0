"""The controller's HTTP port: health, metrics and the live view.

Handlers only hand out bytes that the tick left for them, so that no reader can stall the tick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from wattpack.errors import InputError

log = logging.getLogger(__name__)
Answer = Callable[[], "HttpAnswer"]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status, a content type and bytes."""

    status: int
    content_type: str
    body: bytes


class HttpPort:
    """Serves fixed paths with GET; everything else is 404 or 405."""

    def __init__(self, host: str, port: int, routes: Mapping[str, Answer]) -> None:
        handler = _handler_for(routes)
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise InputError("http", "a free address", f"{host}:{port}") from error
        self._server.daemon_threads = True
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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)


def _answer(route: Answer) -> HttpAnswer:
    """The route's answer; 500 where it fails, so that one bad page stays one bad page."""
    try:
        return route()
    except Exception:
        log.exception("no answer")
        return HttpAnswer(500, "text/plain", b"internal error\n")


def _handler_for(routes: Mapping[str, Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Looks the path up in the routes."""

        server_version = "wattpack"
        sys_version = ""
        # A reader that says or takes nothing for so long is dropped, so that none piles up.
        timeout = 10.0

        def do_GET(self) -> None:
            """Answer one request."""
            route = routes.get(self.path.partition("?")[0])
            answer = _answer(route) if route else HttpAnswer(404, "text/plain", b"not found\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            try:
                self.end_headers()
                self.wfile.write(answer.body)
            except OSError as error:
                log.debug("a reader of %s went away: %s", self.path, error)
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Access is not logged."""

    return Handler
