"""The gRPC server under the agents' streams: TLS, and a certificate that can be renewed.

A certificate is renewed by starting a new server beside the old one on the same port; the old one
takes no new connections and its streams move over one by one. The library offers to ask for the
certificate at each handshake instead, but swaps it without regard to handshakes that are under way:
the process died of that (docs/adr/0014-tls-of-the-agent-stream.md has the runs).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import grpc

from controller.app.agent_gateway import AgentGateway
from wattpack.errors import InputError
from wattpack.hosts import bare, socket_family
from wattpack.wire.certificates import Identity, ServingIdentity
from wattpack.wire.grpc_loop import GrpcEventLoop
from wattpack.wire.v1 import power_pb2_grpc

__all__ = ["StreamServer"]

# A peer that vanished without a word is noticed after this, so that no stream outlives its agent. A
# short time-out would end the streams of a machine that is only busy, and so make a storm larger.
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 20_000
# Peers that connect and say nothing, or have no stream, hold a connection no longer than this.
HANDSHAKE_MS = 10_000
IDLE_MS = 60_000
# A report of 64 devices and 1,000 pods takes about 200 kB.
MAX_MESSAGE_BYTES = 1024 * 1024
# After a renewal the streams of the old certificate are ended one by one over this long: at 1,250
# agents two a second, each back long before its lease (3.5 s) has run out.
DRAIN_SECONDS = 600.0
STOP_SECONDS = 10.0
OPTIONS = [
    # Two servers share the port while a certificate is renewed.
    ("grpc.so_reuseport", 1),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]
log = logging.getLogger(__name__)


class StreamServer:
    """Serves the gateway from a thread with its own event loop; the port is known after ``start``.

    Args:
        gateway: Answers the streams.
        address: ``host:port``; port 0 chooses one.
        identity: Shown to new connections.
        drain_seconds: How long the streams of a replaced certificate take to move over.
    """

    def __init__(
        self,
        gateway: AgentGateway,
        address: str,
        identity: Identity,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._gateway, self._address, self._identity = gateway, address, identity
        self._drain_seconds = drain_seconds
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="agent-gateway", daemon=True)
        self._server: Any = None
        self._leaving: set[asyncio.Task[None]] = set()
        self.port = 0
        self.renewals = self.failed_renewals = 0

    @property
    def certificate_pem(self) -> bytes:
        """What new connections are shown."""
        return self._identity.certificate_pem

    def start(self) -> None:
        """Listen.

        Raises:
            InputError: when the address cannot be bound.
        """
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise InputError("listen", "a free address", self._address) from self._failure

    def stop(self) -> None:
        """Close all streams and join the thread."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_SECONDS)
        self._gateway.close()

    def use(self, identity: ServingIdentity, *, at_once: bool = False) -> None:
        """New connections are shown this certificate once it returns; open streams move over.

        A certificate that the library does not take leaves the old one in use.

        Args:
            identity: The certificate.
            at_once: End the open streams now, not one by one.
        """
        if identity.server == self._identity or self._loop is None:
            return
        renewal = asyncio.run_coroutine_threadsafe(
            self._renew(identity.server, at_once), self._loop
        )
        renewal.result(timeout=STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=GrpcEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._gateway.bind_loop(self._loop)
        try:
            _require_free(self._address)
            self._server, self.port = await self._listen(self._address, self._identity)
        except (OSError, RuntimeError) as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._stop.wait()
        # Agents see an end and not a failure.
        self._gateway.end_streams()
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, self._server.stop(grace=1.0), return_exceptions=True)

    async def _listen(self, address: str, identity: Identity) -> tuple[Any, int]:
        server = grpc.aio.server(options=OPTIONS)
        power_pb2_grpc.add_PowerControlServicer_to_server(self._gateway, server)
        credentials = grpc.ssl_server_credentials([(identity.key_pem, identity.certificate_pem)])
        port = server.add_secure_port(address, credentials)
        await server.start()
        return server, port

    async def _renew(self, identity: Identity, at_once: bool) -> None:
        address = f"{self._address.rpartition(':')[0]}:{self.port}"
        try:
            server, _ = await self._listen(address, identity)
        except RuntimeError as error:
            self.failed_renewals += 1
            log.error("the new certificate is not used: %s", error)
            return
        old, self._server, self._identity = self._server, server, identity
        self.renewals += 1
        task = asyncio.create_task(self._retire(old, 0.0 if at_once else self._drain_seconds))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _retire(self, server: Any, over_seconds: float) -> None:  # noqa: ANN401 - untyped
        """No new connections at once; the open streams end one by one."""
        drained = asyncio.create_task(server.stop(grace=over_seconds + 1.0))
        try:
            await self._gateway.end_present_streams(over_seconds)
            await drained
        except asyncio.CancelledError:
            await server.stop(grace=1.0)
            raise


def _require_free(address: str) -> None:
    """Nobody else listens here: sharing a port is for our own two servers only.

    Raises:
        OSError: otherwise.
    """
    host, _, port = address.rpartition(":")
    with socket.socket(socket_family(host), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((bare(host), int(port)))
