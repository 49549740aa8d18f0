"""The admission webhook over HTTPS: thin, stateless, and never in the way for long.

Each connection has its own thread and a deadline; the TLS handshake happens there too, so that a
silent client cannot keep others from being served.
"""

from __future__ import annotations

import io
import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scheduler_plugin.app.timed_reader import TimedReader
from scheduler_plugin.kube_objects.admission import WEBHOOK_TIMEOUT_SECONDS, Mode, review
from wattpack.clock import SystemClock
from wattpack.errors import InputError
from wattpack.gang_sizes import ODD_SHAPES
from wattpack.hosts import bare, socket_family
from wattpack.scratch_folder import ScratchFolder
from wattpack.wire.certificates import ServingIdentity

Answering = Callable[[bytes], tuple[int, bytes]]
"""Status and body to what was posted."""
log = logging.getLogger(__name__)
PATH = "/mutate"
#: From a request's first byte to its last: nobody who asks waits for as long.
REQUEST_SECONDS = 8.0
#: A pod is at most 1.5 MiB in etcd; a review carries it once, with room for the envelope.
MAX_BODY_BYTES = 4 * 1024 * 1024
#: Between two reviews. An API server keeps a quiet connection for 90 s (util/net/http.go of its
#: apimachinery); one that is closed just as it is used fails open, and that pod passes by.
QUIET_SECONDS = 120.0
#: How many connections may be quiet for so long; further ones as long as a review may take.
QUIET_CONNECTIONS = 64


class WebhookServer:
    """Serves ``POST /mutate`` and ``GET /healthz``.

    Args:
        host: Address to listen on.
        port: 0 for any.
        identity: Certificate to start with.
        mode: What is done with pods.

    Attributes:
        certificate_pem: What new connections are shown.
    """

    def __init__(self, host: str, port: int, identity: ServingIdentity, mode: Mode) -> None:
        self._routes: dict[str, Answering] = {}
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.certificate_pem = identity.certificate
        self.use(identity)
        try:
            self._server = _TlsServer((host, port), _handler_for(mode, self._routes), self._context)
        except (OSError, UnicodeError) as error:
            raise InputError("webhook", "a free address", f"{host}:{port}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.2},
            name="webhook",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def failure(self) -> str:
        """Why no pod is answered; empty while the server works."""
        return "" if self._thread.is_alive() else "the webhook's server has ended"

    def use(self, identity: ServingIdentity) -> None:
        """Serve new connections with this certificate; open ones go on."""
        with ScratchFolder() as folder:
            # The ssl module reads certificates from files only; the folder is private to us.
            path = folder / "tls.pem"
            path.write_bytes(identity.key + identity.certificate)
            self._context.load_cert_chain(path)
        self.certificate_pem = identity.certificate

    def answer_also(self, routes: Mapping[str, Answering]) -> None:
        """Further paths that may be posted to."""
        self._routes.update(routes)

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _TlsServer(ThreadingHTTPServer):
    """Speaks TLS in the connection's own thread."""

    daemon_threads = True
    # A burst of pods opens connections faster than one thread takes them.
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        context: ssl.SSLContext,
    ) -> None:
        self.address_family = socket_family(address[0])
        super().__init__((bare(address[0]), address[1]), handler)
        self._context = context

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        connection: socket.socket = request
        connection.settimeout(WEBHOOK_TIMEOUT_SECONDS)
        with self._context.wrap_socket(connection, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        log.info("connection from %s ended early", client_address, exc_info=True)


def answered(asked: Answering, body: bytes) -> tuple[int, bytes]:
    """The answer; what cannot be read at all is refused like what is malformed.

    An API server sends what it has validated; others who reach the port may send anything.
    """
    try:
        return asked(body)
    except (*ODD_SHAPES, RecursionError) as error:
        log.info("a body of %d bytes is refused", len(body), exc_info=True)
        return 400, f"not to be read as what is expected here: {type(error).__name__}\n".encode()


def answer(body: bytes, mode: Mode) -> tuple[int, bytes]:
    """HTTP status and body for one AdmissionReview request."""
    try:
        document = json.loads(body)
    except ValueError as error:
        return 400, f"the body is no JSON: {error}\n".encode()
    try:
        return 200, json.dumps(review(document, mode)).encode()
    except InputError as error:
        return 400, f"{error}\n".encode()


class _Connection(BaseHTTPRequestHandler):
    """One connection.

    Attributes:
        mode: For our own reviews.
        routes: What answers other paths.
        seats: Of connections that may be quiet.
    """

    mode: Mode
    routes: Mapping[str, Answering]
    seats: threading.BoundedSemaphore

    # Status, headers and body are separate writes; waiting for acknowledgements costs 40 ms.
    disable_nagle_algorithm = True
    server_version = "wattpack"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    is_seated = False

    def finish(self) -> None:
        """Somebody else may be quiet now."""
        if self.is_seated:
            self.seats.release()
        super().finish()

    def setup(self) -> None:
        """Reads within a time that holds for a request as a whole."""
        super().setup()
        patience_seconds = float(WEBHOOK_TIMEOUT_SECONDS)
        self._timed = TimedReader(self.connection, SystemClock(), patience_seconds)
        self.rfile = io.BufferedReader(self._timed)

    def handle_one_request(self) -> None:
        """One request: what was begun ends in time, or not at all."""
        quiet_seconds = QUIET_SECONDS if self.is_seated else float(WEBHOOK_TIMEOUT_SECONDS)
        self._timed.allow(quiet_seconds, REQUEST_SECONDS)
        super().handle_one_request()

    def do_GET(self) -> None:
        """Health only."""
        self._reply(200, b"ok\n") if self.path == "/healthz" else self._reply(404, b"")

    def do_POST(self) -> None:
        """One review."""
        text = self.headers.get("Content-Length", "")
        short = text.isascii() and text.isdigit() and len(text) <= 20
        if not (short and int(text) <= MAX_BODY_BYTES):
            self._reply(413, f"a body of at most {MAX_BODY_BYTES} bytes\n".encode())
            return
        body = self.rfile.read(int(text))
        path = self.path.partition("?")[0]
        if path == PATH:
            self._reply(*answered(lambda given: answer(given, self.mode), body))
        elif path in self.routes:
            self._reply(*answered(self.routes[path], body))
        else:
            self._reply(404, b"")

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        kind = "application/json" if status == 200 else "text/plain"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status != 200:
            # What is left of a refused body must not be read as the next request.
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.is_seated = self.is_seated or self.seats.acquire(blocking=False)

    def log_message(self, format: str, *args: object) -> None:
        """Access is not logged."""


def _handler_for(of_mode: Mode, of_paths: Mapping[str, Answering]) -> type[BaseHTTPRequestHandler]:
    class Handler(_Connection):
        """Of one server."""

        mode, routes = of_mode, of_paths
        seats = threading.BoundedSemaphore(QUIET_CONNECTIONS)

    return Handler
