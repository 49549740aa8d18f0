"""Agent processes of a small row in virtual time, and their streams to the replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu.device_reader import InlineReader
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.app.readiness import Readiness
from telemetry.sampler import Sampler
from telemetry.stream.controller_link import Backoff
from wattpack.units import NS_PER_MS, NS_PER_SECOND, NodeName
from wattpack.wire.v1 import power_pb2

if TYPE_CHECKING:
    from benchmarks._lease_node import Node
    from benchmarks._lease_row import Row

#: One way through a data centre and two event loops; assumed.
DELAY_NS = (2 * NS_PER_MS, 80 * NS_PER_MS)


class Stream:
    """One opening of a link, as the replica knows it.

    Args:
        hello: What it began with.
        link: Whose.
    """

    def __init__(self, hello: power_pb2.Hello, link: Link) -> None:
        self.hello, self.link = hello, link

    def end(self) -> None:
        """The replica takes nothing from it any more."""
        self.link.ended(self)


class Link:
    """One agent's connection to one replica. Messages keep their order; some are lost."""

    def __init__(self, row: Row, node: Node, replica: int) -> None:
        self._row, self._node, self._replica = row, node, replica
        self.target = f"replica-{replica}"
        self.report_period_ns: int | None = None
        self._stream: Stream | None = None
        self._backoff = Backoff(row.rng)
        self._try_ns = 0
        self._inbox: list[power_pb2.LeaseBatch] = []
        self._latest_ns = [0, 0]

    @property
    def connected(self) -> bool:
        """Between hello and the end of either side."""
        return self._stream is not None

    def keep_open(self, now_ns: int, hello: Callable[[], power_pb2.Hello]) -> None:
        """Say hello, if somebody is there and the back-off is over."""
        replica = self._row.replicas[self._replica]
        if self._stream is not None or now_ns < self._try_ns:
            return
        self._try_ns = now_ns + self._backoff.next_delay_ns()
        if replica.alive and not self._node.cut_up:
            self._stream = Stream(hello(), self)
            if replica.opened(self._node.name, self._stream):
                self._backoff.reset()
            else:
                self._stream = None

    def send(self, report: power_pb2.NodeReport) -> None:
        """A report on its way."""
        row, stream = self._row, self._stream
        if stream is not None and not row.lost(self._node.cut_up):
            copy = power_pb2.NodeReport.FromString(report.SerializeToString())
            row.at(self._arrival(0), lambda: row.replicas[self._replica].hear(copy, stream))

    def put(self, batch: power_pb2.LeaseBatch) -> None:
        """A batch on its way."""
        row, stream = self._row, self._stream
        if stream is not None and not row.lost(self._node.cut_down):
            copy = power_pb2.LeaseBatch.FromString(batch.SerializeToString())
            row.at(self._arrival(1), lambda: self._arrive(copy, stream))

    def _arrival(self, direction: int) -> int:
        at_ns = max(self._latest_ns[direction], self._row.now_ns + self._row.rng.randint(*DELAY_NS))
        self._latest_ns[direction] = at_ns
        return at_ns

    def _arrive(self, batch: power_pb2.LeaseBatch, stream: Stream) -> None:
        if self._stream is stream:
            self.push(batch)

    def push(self, batch: power_pb2.LeaseBatch) -> None:
        """A batch is there, or something that no replica said."""
        self._inbox.append(batch)
        self._node.handle()

    def take(self) -> list[power_pb2.LeaseBatch]:
        """What came."""
        taken, self._inbox = self._inbox, []
        return taken

    def close(self) -> None:
        """Our side ends it: what came and was not read is void (I3), the other side hears of it."""
        row, stream = self._row, self._stream
        if stream is not None and not self._node.cut_up:
            replica = row.replicas[self._replica]
            row.at(self._arrival(0), lambda: replica.closed(self._node.name, stream))
        self._drop()

    def reopen(self) -> None:
        """Say hello again."""
        self.close()

    def ended(self, stream: Stream) -> None:
        """The replica ended it or is gone."""
        if self._stream is stream:
            self._drop()

    def gone(self) -> None:
        """The replica's process is gone."""
        self._drop()

    def _drop(self) -> None:
        self._stream = None
        self._inbox.clear()


class Process:
    """One agent process of a node.

    Args:
        node: Of the boards; its actuator.
        instance: Other at every start.
    """

    def __init__(self, node: Node, instance: str) -> None:
        row = node.row
        self.links = [Link(row, node, r) for r in range(2)]
        self.alive, self.hangs = True, False
        self._node = node
        sampler = Sampler(InlineReader(tuple(node.boards.values())))
        self.agent = NodeAgent(
            NodeFacts(
                NodeName(node.name), boot_id=f"boot-{node.boots}", host_unit=True, instance=instance
            ),
            Senses(sampler),
            self.links,
            node,
            node.clock,
        )
        self.readiness = Readiness(node.clock.monotonic_ns())
        row.after(row.rng.randrange(NS_PER_SECOND // 10), self._report)

    def kill(self) -> None:
        """SIGKILL or SIGTERM: its streams end."""
        self.alive = False
        for link in self.links:
            link.close()

    def handle(self) -> None:
        """Batches for the actuator."""
        if self.alive and not self.hangs:
            self.agent.handle()

    def _report(self) -> None:
        if self.alive:
            self._node.row.after(NS_PER_SECOND, self._report)
            self._exchange()

    def _exchange(self) -> None:
        node = self._node
        if not self.alive or self.hangs:
            return
        if node.row.now_ns < node.busy_until_ns:
            node.row.at(node.busy_until_ns, self._exchange)
            return
        now_ns = node.clock.monotonic_ns()
        self.agent.read(now_ns)
        self.agent.exchange(now_ns)
        self.readiness.look(self.agent, now_ns)
