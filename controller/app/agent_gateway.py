"""What is said on the agents' streams, in the event loop of ``controller.app.stream_server``.

The tick never waits for it: reports land in the fleet and are answered on arrival, lease batches
are handed over and sent from here. A slow or dead agent only fills its own short queue, whose
oldest batch is dropped first (a lease batch is worthless once there is a newer one).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc

from controller.app.agent_identity import REVIEWS, NodeAuthenticator
from controller.app.answer_desk import AnswerDesk, lease_batches, words_of
from controller.app.fleet import Fleet
from controller.app.hearing import Hearing
from controller.app.told_once import ToldOnce
from controller.renewals import Word
from controller.tick_values import Commands, Topology
from wattpack.clock import Clock
from wattpack.errors import InputError, WattpackError
from wattpack.kube.port import TokenRefusedError
from wattpack.wire.v1 import power_pb2, power_pb2_grpc

SUPPORTED_VERSIONS = (1,)
QUEUE_LENGTH = 4
# Streams whose tokens wait for review; more come again later instead of filling our memory.
MAX_WAITING = 4096
# Who was let in and says nothing is no agent.
HELLO_SECONDS = 10.0
log = logging.getLogger(__name__)


class _Stream:
    """One agent's open stream, seen from the sender's side."""

    def __init__(self, clock: Clock, hello: power_pb2.Hello) -> None:
        self.hello = hello
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


@dataclass(frozen=True, slots=True)
class TickSide:
    """The tick and the term, as the streams see them.

    Attributes:
        wake: Makes the next tick come at once.
        epoch: Of the present term, 0 while we do not lead: then no report is answered on arrival.
    """

    wake: Callable[[], None]
    epoch: Callable[[], int] = lambda: 0


class AgentGateway(power_pb2_grpc.PowerControlServicer):
    """Accepts streams, fills the fleet, sends lease batches.

    Args:
        fleet: Takes the reports.
        authenticator: Tells which node a token is bound to.
        clock: Time, and the book-keeping of messages.
        name: Of this replica.
        report_period_ms: Asked of agents.
        tick: What reports set off.
    """

    def __init__(
        self,
        fleet: Fleet,
        authenticator: NodeAuthenticator,
        clock: Clock,
        *,
        name: str,
        report_period_ms: int,
        tick: TickSide,
    ) -> None:
        self._desk = AnswerDesk(tick.epoch)
        self._fleet, self._authenticator, self._clock = fleet, authenticator, clock
        self._name, self._report_period_ms, self._wake = name, report_period_ms, tick.wake
        self._hearing: Hearing[_Stream] = Hearing(fleet)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reviewers = ThreadPoolExecutor(REVIEWS.at_once, thread_name_prefix="token-review")
        self._reviewing = 0
        self.refused_streams: Counter[str] = Counter()
        self.refused_reports = 0

    def connected(self) -> int:
        """Number of nodes of which a stream is heard."""
        return len(self._hearing.streams)

    def waiting(self) -> int:
        """Streams of agents that wait beside another agent of their node."""
        return self._hearing.streams.waiting()

    @property
    def handovers(self) -> Counter[str]:
        """Times that another agent of a node was heard, by cause."""
        return self._hearing.handovers

    @property
    def renewals(self) -> int:
        """How many reports were answered on arrival."""
        return self._desk.renewals

    async def Stream(  # noqa: N802 - the name in the proto file
        self,
        request_iterator: AsyncIterator[power_pb2.AgentMessage],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[power_pb2.ControllerMessage]:
        """Serve one agent until it goes."""
        node = await self._authenticate(context)
        hello = await self._receive_hello(node, request_iterator, context)
        stream = _Stream(self._clock, hello)
        if not self._hearing.opened(node, stream, self._clock.monotonic_ns()):
            words = "two agents of this node speak already"
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, words)
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
            self._hearing.closed(node, stream)

    async def _authenticate(self, context: grpc.aio.ServicerContext) -> str:
        metadata = dict(context.invocation_metadata() or ())
        scheme, _, token = str(metadata.get("authorization", "")).partition(" ")
        if scheme != "Bearer" or not token:
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, "expected a bearer token")
        if self._reviewing >= MAX_WAITING:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, "too many wait: come again")
        self._reviewing += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._reviewers, self._authenticator.node_of, token)
        except TokenRefusedError as error:
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
        except WattpackError as error:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))
        finally:
            self._reviewing -= 1
        raise AssertionError("abort raises")

    async def _refuse(
        self, context: grpc.aio.ServicerContext, code: grpc.StatusCode, message: str
    ) -> None:
        """End the call before it became a stream; always raises."""
        self.refused_streams[code.name.lower()] += 1
        await context.abort(code, message)

    async def _receive_hello(
        self,
        node: str,
        messages: AsyncIterator[power_pb2.AgentMessage],
        context: grpc.aio.ServicerContext,
    ) -> power_pb2.Hello:
        """The first message, checked against the token and kept."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = await anext(messages)
            if message.WhichOneof("body") != "hello":
                raise InputError("body", "hello as the first message", message.WhichOneof("body"))
            if message.hello.node != node:
                raise InputError("hello.node", f"the token's node {node!r}", message.hello.node)
            if not set(message.hello.versions) & set(SUPPORTED_VERSIONS):
                raise InputError(
                    "hello.versions", f"one of {SUPPORTED_VERSIONS}", list(message.hello.versions)
                )
            self._fleet.check(message.hello)
        except InputError as error:
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (StopAsyncIteration, TimeoutError):
            await self._refuse(
                context, grpc.StatusCode.INVALID_ARGUMENT, "expected hello, got nothing"
            )
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
        told = ToldOnce(log, "%s: report refused: %s", "%s: reports are taken again")
        async for message in messages:
            try:
                if message.WhichOneof("body") != "report" or message.report.node != node:
                    raise InputError("body", f"a report of node {node!r}", message.report.node)
                self._take(node, message.report, stream)
                told.tell(node, "")
            except InputError as error:
                self.refused_reports += 1
                told.tell(node, str(error))
            finally:
                self._clock.message_handled()

    def _take(self, node: str, report: power_pb2.NodeReport, stream: _Stream) -> None:
        """Keep a report, and answer it now or wake the tick; who waits is not listened to."""
        now_ns = self._clock.monotonic_ns()
        arrival = self._hearing.report(node, stream, report, now_ns)
        if arrival is None:
            return
        if arrival.calls_for_tick:
            self._wake()
        answer = self._desk.arrived(node, arrival, now_ns)
        if answer is not None:
            self._clock.message_sent()
            stream.offer(answer)

    def end_streams(self) -> None:
        """End every stream in order, so that agents see an end and not a failure."""
        for stream in self._hearing.streams.all():
            if stream.reader is not None:
                stream.reader.cancel()

    async def end_present_streams(self, over_seconds: float) -> None:
        """End the streams that are open now in order, evenly spread over a time."""
        present = self._hearing.streams.all()
        for stream in present:
            if stream.reader is not None:
                stream.reader.cancel()
            # A turn of the loop for each would take seconds on a busy one.
            if over_seconds > 0.0:
                await asyncio.sleep(over_seconds / len(present))

    def close(self) -> None:
        """End the threads that review tokens; after the server."""
        self._reviewers.shutdown(wait=False, cancel_futures=True)

    def bind_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remember the event loop that owns the streams."""
        self._loop = loop

    def send(self, topology: Topology, commands: Commands) -> int:
        """Hand a tick's commands over to the event loop; returns to how many nodes it speaks."""
        if self._loop is None:
            return 0
        words, batches = words_of(topology, commands), lease_batches(topology, commands)
        self._clock.message_sent()
        self._loop.call_soon_threadsafe(self._offer_all, words, batches)
        return len(batches)

    def _offer_all(
        self, words: dict[str, Word], batches: dict[str, power_pb2.ControllerMessage]
    ) -> None:
        for node, message in self._desk.decided(words, batches).items():
            stream = self._hearing.streams.heard(node)
            if stream is not None:
                self._clock.message_sent()
                stream.offer(message)
        self._clock.message_handled()
