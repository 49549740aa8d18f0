"""A real console in front of a scripted controller, and a gate between it and the browser."""

from __future__ import annotations

import http.server
import socket
import threading
import urllib.error
import urllib.request
from typing import Any

from console.app.console_command import ConsoleServer, Upstreams
from simulation.kube.embedded_api import EmbeddedKube
from tests.console.views import make_view
from wattpack.clock import SystemClock
from wattpack.http_access import HttpAccess
from wattpack.http_port import HttpAnswer, HttpPort, health


class Bench:
    """What the controller says, which a test changes while a browser looks."""

    def __init__(self) -> None:
        self.changes: dict[str, Any] = {"gpus": 416, "capped": 40}
        self.status, self.is_frozen, self._tick = 200, False, 0
        self.clock = SystemClock()
        access = HttpAccess.insecure((), self.clock)
        self._controller = HttpPort("127.0.0.1", 0, {"/v1/live": health(self._answer)}, access)
        self._controller.start()
        self.api = EmbeddedKube(self.clock)
        self.console = self.open_console(0)

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return f"http://127.0.0.1:{self.console.port}/"

    def open_console(self, port: int) -> ConsoleServer:
        """A console that serves."""
        server = ConsoleServer(
            Upstreams([f"http://127.0.0.1:{self._controller.port}/v1/live"], self.api),
            HttpAccess.insecure([], self.clock),
            self.clock,
            host="127.0.0.1",
            port=port,
        )
        server.start()
        return server

    def restart_console(self) -> None:
        """Stop the console and start another on the same port."""
        port = self.console.port
        self.console.stop()
        self.console = self.open_console(port)

    def stop(self) -> None:
        """Stop everything."""
        self.console.stop()
        self._controller.stop()
        self.api.close()

    def _answer(self) -> HttpAnswer:
        if self.status != 200:
            return HttpAnswer(self.status, "text/plain", b"no\n")
        self._tick += not self.is_frozen
        view = make_view(tick=self._tick, **self.changes)
        return HttpAnswer(200, "application/json", view.model_dump_json().encode())


class Gate(http.server.ThreadingHTTPServer):
    """A reverse proxy that answers with an error for as long as it is told to.

    Args:
        target: Where requests go otherwise.
    """

    daemon_threads = True

    def __init__(self, target: str) -> None:
        self.target, self.status, self.refused = target, 200, 0
        super().__init__(("127.0.0.1", 0), _GateHandler)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where browsers ask."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def stop(self) -> None:
        """End it."""
        self.shutdown()
        self.server_close()
        self._thread.join(timeout=5.0)


class _GateHandler(http.server.BaseHTTPRequestHandler):
    server: Gate

    def do_GET(self) -> None:
        """Pass the request on, or refuse an event stream."""
        if "stream" in self.path and self.server.status != 200:
            self.server.refused += 1
            self.send_error(self.server.status)
            return
        request = urllib.request.Request(self.server.target.rstrip("/") + self.path)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.send_response(answer.status)
                for name in ("Content-Type", "Content-Security-Policy"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.end_headers()
                while self.server.status == 200 and (chunk := answer.read1(65536)):
                    self.wfile.write(chunk)
        except urllib.error.HTTPError as error:
            self.send_error(error.code)
        except OSError:
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Access is not logged."""
