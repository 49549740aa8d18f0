"""The link over gRPC: every stream of a process on one event loop in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from telemetry.report_messages import VERSIONS
from telemetry.stream.controller_link import Backoff
from wattpack.clock import Clock, Wake
from wattpack.errors import InputError
from wattpack.hosts import is_loopback
from wattpack.units import NS_PER_MS
from wattpack.wire.grpc_loop import GrpcEventLoop
from wattpack.wire.v1 import power_pb2, power_pb2_grpc

log = logging.getLogger(__name__)

# A controller that moved to another node leaves a half-open connection behind. gRPC makes the
# keepalive timeout the socket's TCP_USER_TIMEOUT, so a report that nobody acknowledges ends the
# connection after 15 s. The pings themselves stay rarer than the 5 min that servers tolerate: a
# standby replica sends nothing, and would answer frequent pings by closing the connection.
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 600_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    ("grpc.max_receive_message_length", 1024 * 1024),
    # The link has its own back-off, on the product's clock; the channel's would add to it.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
# A replica that is overrun waits up to 15 s for a review's turn; a stream that was not welcomed for
# longer is lost, whatever the library believes, and gets a connection of its own next time.
OPENING_SECONDS = 20.0
MIN_PERIOD_MS = 100
MAX_PERIOD_MS = 10_000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a controller replica listens and how to prove who is who.

    Attributes:
        ca_file: PEM of the authority that signed the controller's certificate; None means no
            TLS, which is allowed towards loopback addresses only.
        token_file: Bearer token, read anew for each stream: projected tokens rotate.
        server_name: Name in the certificate if it is not the host of ``target``.
        opening_seconds: How long a stream may take from its first byte to the Welcome.
    """

    target: str
    ca_file: Path | None = None
    token_file: Path | None = None
    server_name: str = ""
    opening_seconds: float = OPENING_SECONDS

    def __post_init__(self) -> None:
        host, separator, port = self.target.rpartition(":")
        if not separator or not host or not port.isdecimal():
            raise InputError("controller", "HOST:PORT", self.target)
        if self.ca_file is None and not is_loopback(host):
            raise InputError("ca", "a CA file for a controller that is not on loopback", None)


def _read_authority(file: Path | None) -> bytes:
    if file is None:
        return b""
    try:
        authority = file.read_bytes()
    except OSError as error:
        raise InputError("ca", "a readable PEM file", str(error), str(file)) from error
    if not authority.strip():
        raise InputError("ca", "the controllers' authority", "an empty file", str(file))
    return authority


def _shared(endpoint: Endpoint) -> Endpoint:
    """What streams must have in common to share a connection."""
    return Endpoint(endpoint.target, endpoint.ca_file, None, endpoint.server_name)


_Call = tuple[Callable[..., None], tuple[object, ...]]


def _run_all(calls: Iterable[_Call]) -> None:
    for function, args in calls:
        function(*args)


class GrpcLoop:
    """The event loop and the channels that all links of a process share."""

    def __init__(self) -> None:
        self._loop = GrpcEventLoop()
        self._channels: dict[tuple[Endpoint, bytes], Any] = {}
        self._held: list[_Call] | None = None
        self._thread = threading.Thread(target=self._run, name="controller-streams", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def start(self, coroutine: Any) -> None:  # noqa: ANN401 - a coroutine
        """Run a coroutine on the loop."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[..., None], *args: object) -> None:
        """Run a function on the loop."""
        self._loop.call_soon_threadsafe(function, *args)

    def send(self, function: Callable[..., None], *args: object) -> None:
        """Run a function on the loop, inside ``together`` only with all the others at its end."""
        held = self._held
        if held is None:
            self.call(function, *args)
        else:
            held.append((function, args))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What one thread sends inside leaves at the end: waking the loop costs more than sending.

        For the owner of all links; other threads do not send meanwhile.
        """
        held: list[_Call] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
            if held:
                self.call(_run_all, held)

    def channel(self, endpoint: Endpoint) -> Any:  # noqa: ANN401 - grpc is untyped here
        """The channel to an endpoint; called on the loop.

        The authority is read anew each time, because it is replaced now and then, and comes late
        on a fresh installation; streams that are open on an earlier channel go on.

        Raises:
            InputError: if the authority's file cannot be read or is empty.
        """
        authority = _read_authority(endpoint.ca_file)
        shared = (_shared(endpoint), authority)
        if shared not in self._channels:
            options = list(CHANNEL_OPTIONS)
            if endpoint.ca_file is None:
                channel = grpc.aio.insecure_channel(endpoint.target, options)
            else:
                named: list[tuple[str, Any]] = [*options]
                if endpoint.server_name:
                    named.append(("grpc.ssl_target_name_override", endpoint.server_name))
                credentials = grpc.ssl_channel_credentials(authority)
                channel = grpc.aio.secure_channel(endpoint.target, credentials, named)
            self._channels[shared] = channel
        return self._channels[shared]

    def leave(self, endpoint: Endpoint) -> None:
        """The next stream gets a new connection; on the loop, streams that are open go on."""
        target = _shared(endpoint)
        for key in [key for key in self._channels if _shared(key[0]) == target]:
            del self._channels[key]

    def close(self) -> None:
        """Close all channels and end the thread."""
        done = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        done.result(timeout=10.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10.0)

    async def _close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class GrpcLink:
    """One node's stream to one controller replica.

    The owner's thread calls the public methods; the stream lives on the loop's thread.

    Args:
        loop: Shared by all links of the process.
        endpoint: The replica.
        clock: For the book-keeping of messages; time comes in as an argument.
        wake: Set when a batch came.
        generator: Of the back-off's jitter.
    """

    def __init__(
        self,
        loop: GrpcLoop,
        endpoint: Endpoint,
        clock: Clock,
        wake: Wake,
        generator: random.Random,
    ) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._clock = clock
        self._wake = wake
        self._backoff = Backoff(generator)
        self._try_ns = 0
        self._running = False
        self._closed = False
        self._welcome: power_pb2.Welcome | None = None
        self._inbox: deque[power_pb2.LeaseBatch] = deque()
        self._next: power_pb2.NodeReport | None = None
        self._next_set: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self.failures = 0

    @property
    def target(self) -> str:
        """``host:port``."""
        return self._endpoint.target

    @property
    def connected(self) -> bool:
        """True between the controller's Welcome and the stream's end."""
        return self._welcome is not None

    @property
    def report_period_ns(self) -> int | None:
        """What the controller asked for, within reason; None before its Welcome."""
        welcome = self._welcome
        if welcome is None or welcome.report_period_ms == 0:
            return None
        return min(MAX_PERIOD_MS, max(MIN_PERIOD_MS, welcome.report_period_ms)) * NS_PER_MS

    def keep_open(self, now_ns: int, hello: Callable[[], power_pb2.Hello]) -> None:
        """Open the stream if it is closed and the back-off is over."""
        if self._running or self._closed or now_ns < self._try_ns:
            return
        self._running = True
        # Drawn before the attempt: a stream that ends at once must not be retried at once.
        self._try_ns = now_ns + self._backoff.next_delay_ns()
        self._loop.start(self._run(hello()))

    def reopen(self) -> None:
        """End the stream if it is open; the next one says hello anew."""
        self._loop.call(self._cancel)

    def send(self, report: power_pb2.NodeReport) -> None:
        """Send a report if connected; a report that waits is replaced by a newer one."""
        if not self.connected:
            return
        self._clock.message_sent()
        self._loop.send(self._offer, report)

    def take(self) -> list[power_pb2.LeaseBatch]:
        """Batches that came since the last call."""
        taken: list[power_pb2.LeaseBatch] = []
        if not self._inbox:
            return taken
        # Both threads take, so emptiness is only known by trying.
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._inbox.popleft())
        return taken

    def close(self) -> None:
        """End the stream for good."""
        self._closed = True
        self._loop.call(self._cancel)

    # -- on the loop's thread --------------------------------------------------------------------

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _offer(self, report: power_pb2.NodeReport) -> None:
        if self._next is not None or self._next_set is None:
            self._clock.message_handled()  # the report that waited, or this one after the end
        if self._next_set is not None:
            self._next = report
            self._next_set.set()

    async def _run(self, hello: power_pb2.Hello) -> None:
        self._task = asyncio.current_task()
        sender: asyncio.Task[None] | None = None
        call: Any = None
        try:
            async with asyncio.timeout(self._endpoint.opening_seconds) as opening:
                call = self._open()
                await call.wait_for_connection()
                self._clock.message_sent()
                await call.write(power_pb2.AgentMessage(hello=hello))
                self._next_set = asyncio.Event()
                sender = asyncio.create_task(self._send_all(call))
                while (message := await call.read()) is not grpc.aio.EOF:
                    self._receive(message)
                    opening.reschedule(None)
            log.info("%s closed the stream of %s", self.target, hello.node)
        except TimeoutError:
            self._loop.leave(self._endpoint)
            self._report_failure(hello.node, TimeoutError("no welcome in time"))
        except (grpc.RpcError, asyncio.InvalidStateError, InputError) as error:
            self._report_failure(hello.node, error)
        finally:
            if call is not None:
                call.cancel()
            if sender is not None:
                sender.cancel()
            self._ended()

    def _open(self) -> Any:  # noqa: ANN401 - grpc is untyped here
        stub = power_pb2_grpc.PowerControlStub(self._loop.channel(self._endpoint))
        return stub.Stream(metadata=self._metadata())

    def _metadata(self) -> list[tuple[str, str]]:
        file = self._endpoint.token_file
        if file is None:
            return []
        try:
            token = file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("token", "a readable token file", str(error), str(file)) from error
        if not token:
            raise InputError("token", "a token", "an empty file", str(file))
        return [("authorization", f"Bearer {token}")]

    async def _send_all(self, call: Any) -> None:  # noqa: ANN401 - grpc is untyped here
        ready = self._next_set
        while ready is not None:
            await ready.wait()
            ready.clear()
            report, self._next = self._next, None
            if report is None:
                continue
            try:
                await call.write(power_pb2.AgentMessage(report=report))
            except (grpc.RpcError, asyncio.InvalidStateError):
                self._clock.message_handled()
                return  # the reader sees the same end and reports it

    def _receive(self, message: power_pb2.ControllerMessage) -> None:
        body = message.WhichOneof("body")
        if body == "welcome":
            self._clock.message_handled()
            if message.welcome.version not in VERSIONS:
                raise InputError("welcome.version", f"one of {VERSIONS}", message.welcome.version)
            self._welcome = message.welcome
            self._backoff.reset()
            self._wake.set()
        elif body == "leases" and self._welcome is not None:
            self._inbox.append(message.leases)
            self._wake.set()
        else:
            self._clock.message_handled()
            raise InputError("body", "welcome, then leases", body, self.target)

    def _report_failure(self, node: str, error: Exception) -> None:
        self.failures += 1
        code = error.code() if isinstance(error, grpc.RpcError) else ""
        details = error.details() if isinstance(error, grpc.RpcError) else error
        log.warning("stream of %s to %s ended: %s %s", node, self.target, code, details)

    def _ended(self) -> None:
        if self._next is not None:
            self._clock.message_handled()
        # Batches of an ended stream must not extend a lease (I3).
        for _ in self.take():
            self._clock.message_handled()
        self._next, self._next_set, self._welcome, self._task = None, None, None, None
        self._running = False
