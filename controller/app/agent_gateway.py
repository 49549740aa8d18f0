"""The gRPC server that agents stream to. It runs in its own thread and event loop.

The tick never waits for it: reports land in the fleet, lease batches are handed over and sent from
here. A slow or dead agent only fills its own short queue, whose oldest batch is dropped first (a
lease batch is worthless once there is a newer one).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from controller.app.agent_identity import NodeAuthenticator
from controller.app.fleet import Fleet
from controller.tick_values import Commands, Topology
from wattpack.clock import Clock
from wattpack.errors import InputError, WattpackError
from wattpack.kube.port import ForbiddenError
from wattpack.wire.certificates import Identity, ServingIdentity
from wattpack.wire.v1 import power_pb2, power_pb2_grpc

SUPPORTED_VERSIONS = (1,)
QUEUE_LENGTH = 4
#: A peer that vanished without a word is noticed after this, so that no stream outlives its agent.
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
log = logging.getLogger(__name__)


class _Stream:
    """One agent's open stream, seen from the sender's side."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[power_pb2.ControllerMessage] = deque()
        self._news = asyncio.Event()
        self.ended = False
        self.reader: asyncio.Task[None] | None = None

    def offer(self, message: power_pb2.ControllerMessage) -> None:
        """Queue a message; runs in the event loop."""
        if len(self._queue) >= QUEUE_LENGTH:
            self._queue.popleft()
            self._clock.message_handled()
        self._queue.append(message)
        self._news.set()

    async def take(self) -> power_pb2.ControllerMessage | None:
        """The next message; None once the stream has ended."""
        while not self.ended:
            if self._queue:
                return self._queue.popleft()
            self._news.clear()
            await self._news.wait()
        return None

    def end(self) -> None:
        """The agent has gone or has a newer stream: nothing is taken from this one any more."""
        self.ended = True
        self._news.set()

    def discard(self) -> None:
        """Account for messages that nobody will read."""
        while self._queue:
            self._queue.popleft()
            self._clock.message_handled()


class AgentGateway(power_pb2_grpc.PowerControlServicer):
    """Accepts streams, fills the fleet, sends lease batches."""

    def __init__(
        self,
        fleet: Fleet,
        authenticator: NodeAuthenticator,
        clock: Clock,
        *,
        name: str,
        report_period_ms: int,
        wake: Callable[[], None],
    ) -> None:
        self._fleet, self._authenticator, self._clock = fleet, authenticator, clock
        self._name, self._report_period_ms, self._wake = name, report_period_ms, wake
        self._streams: dict[str, _Stream] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.refused_reports = 0

    def connected(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    async def Stream(  # noqa: N802 - the name in the proto file
        self,
        request_iterator: AsyncIterator[power_pb2.AgentMessage],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[power_pb2.ControllerMessage]:
        """Serve one agent until it goes."""
        node = await self._authenticate(context)
        hello = await self._receive_hello(node, request_iterator, context)
        stream = _Stream(self._clock)
        earlier = self._streams.get(node)
        if earlier is not None:
            # An earlier stream of the same node extends no lease any more (I3).
            earlier.end()
        self._streams[node] = stream
        stream.reader = reader = asyncio.create_task(self._read(node, request_iterator, stream))
        reader.add_done_callback(lambda _: stream.end())
        try:
            yield self._welcome(hello)
            while (message := await stream.take()) is not None:
                yield message
        except asyncio.CancelledError:
            # The agent or this server ended the stream: an ordinary end, not a failure to report.
            log.debug("stream of %s ended", node)
        finally:
            reader.cancel()
            stream.discard()
            if self._streams.get(node) is stream:
                del self._streams[node]

    async def _authenticate(self, context: grpc.aio.ServicerContext) -> str:
        metadata = dict(context.invocation_metadata() or ())
        scheme, _, token = str(metadata.get("authorization", "")).partition(" ")
        if scheme != "Bearer" or not token:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "expected a bearer token")
        try:
            return await asyncio.to_thread(self._authenticator.node_of, token)
        except ForbiddenError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        except WattpackError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        raise AssertionError("abort raises")

    async def _receive_hello(
        self,
        node: str,
        messages: AsyncIterator[power_pb2.AgentMessage],
        context: grpc.aio.ServicerContext,
    ) -> power_pb2.Hello:
        """The first message, checked against the token and kept."""
        try:
            message = await anext(messages)
            if message.WhichOneof("body") != "hello":
                raise InputError("body", "hello as the first message", message.WhichOneof("body"))
            if message.hello.node != node:
                raise InputError("hello.node", f"the token's node {node!r}", message.hello.node)
            if not set(message.hello.versions) & set(SUPPORTED_VERSIONS):
                raise InputError(
                    "hello.versions", f"one of {SUPPORTED_VERSIONS}", list(message.hello.versions)
                )
            self._fleet.hello(message.hello)
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except StopAsyncIteration:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected hello, got nothing")
        finally:
            self._clock.message_handled()
        return message.hello

    def _welcome(self, hello: power_pb2.Hello) -> power_pb2.ControllerMessage:
        version = max(set(hello.versions) & set(SUPPORTED_VERSIONS))
        self._clock.message_sent()
        return power_pb2.ControllerMessage(
            welcome=power_pb2.Welcome(
                version=version, controller=self._name, report_period_ms=self._report_period_ms
            )
        )

    async def _read(
        self, node: str, messages: AsyncIterator[power_pb2.AgentMessage], stream: _Stream
    ) -> None:
        """Reports into the fleet; a bad one is counted and skipped, the last good one ages."""
        async for message in messages:
            try:
                if stream.ended:
                    raise InputError("stream", f"the newest stream of node {node!r}", "an earlier")
                if message.WhichOneof("body") != "report" or message.report.node != node:
                    raise InputError("body", f"a report of node {node!r}", message.report.node)
                if self._fleet.report(message.report, self._clock.monotonic_ns()):
                    self._wake()
            except InputError as error:
                self.refused_reports += 1
                log.warning("report refused: %s", error)
            finally:
                self._clock.message_handled()

    def end_streams(self) -> None:
        """End every stream in order, so that agents see an end and not a failure."""
        for stream in self._streams.values():
            if stream.reader is not None:
                stream.reader.cancel()

    def bind_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remember the event loop that owns the streams."""
        self._loop = loop

    def send(self, topology: Topology, commands: Commands) -> int:
        """Hand the batches of a tick over to the event loop; returns how many."""
        batches = lease_batches(topology, commands)
        if self._loop is None or not batches:
            return 0
        self._clock.message_sent(len(batches))
        self._loop.call_soon_threadsafe(self._offer_all, batches)
        return len(batches)

    def _offer_all(self, batches: dict[str, power_pb2.ControllerMessage]) -> None:
        for node, message in batches.items():
            stream = self._streams.get(node)
            if stream is None:
                self._clock.message_handled()
            else:
                stream.offer(message)


def lease_batches(topology: Topology, commands: Commands) -> dict[str, power_pb2.ControllerMessage]:
    """The wire messages of a tick by node."""
    batches: dict[str, power_pb2.ControllerMessage] = {}
    boundaries = _boundaries(topology)
    for index in commands.send.nonzero()[0]:
        batch = power_pb2.LeaseBatch(
            epoch=commands.epoch,
            sequence=commands.sequence,
            nonce=int(commands.nonce[index]),
            ttl_ms=commands.ttl_ms,
            devices=[
                power_pb2.DeviceLease(
                    uuid=topology.gpu_uuids[gpu],
                    cap_watts=float(commands.cap_watts[gpu]),
                    lock_max_mhz=int(commands.lock_max_mhz[gpu]),
                    guaranteed_watts=float(commands.guaranteed_watts[gpu]),
                )
                for gpu in range(boundaries[index], boundaries[index + 1])
            ],
        )
        batches[topology.node_names[index]] = power_pb2.ControllerMessage(leases=batch)
    return batches


def _boundaries(topology: Topology) -> list[int]:
    """Where each node's GPUs start in the arrays, which are ordered by node."""
    counts = [0] * topology.n_nodes
    for node in topology.node_of_gpu:
        counts[node] += 1
    edges = [0]
    for count in counts:
        edges.append(edges[-1] + count)
    return edges


class GatewayThread:
    """Runs the gateway's gRPC server; the port is known once ``start`` returns."""

    def __init__(self, gateway: AgentGateway, address: str, identity: Identity) -> None:
        self._gateway, self._address, self._identity = gateway, address, identity
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="agent-gateway", daemon=True)
        self.port = 0

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
        self._thread.join(timeout=10.0)

    def use(self, identity: ServingIdentity) -> None:
        """Show new connections this certificate; open streams go on."""
        self._identity = identity.server

    def _certificates(self) -> Any:  # noqa: ANN401 - grpc is untyped here
        identity = self._identity
        return grpc.ssl_server_certificate_configuration(
            [(identity.key_pem, identity.certificate_pem)]
        )

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._gateway.bind_loop(self._loop)
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ]
        )
        power_pb2_grpc.add_PowerControlServicer_to_server(self._gateway, server)
        try:
            # Asked at every handshake, so that a renewed certificate needs no restart.
            credentials = grpc.dynamic_ssl_server_credentials(
                self._certificates(), self._certificates, require_client_authentication=False
            )
            self.port = server.add_secure_port(self._address, credentials)
            await server.start()
        except RuntimeError as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._stop.wait()
        self._gateway.end_streams()
        await server.stop(grace=1.0)
