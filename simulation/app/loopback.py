"""The agents' stream without a network: the same messages, handed over in one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.app.answer_desk import lease_batches
from controller.app.fleet import Fleet
from controller.tick_values import Commands, Topology
from wattpack.errors import InputError
from wattpack.wire.v1 import power_pb2


class LoopbackLink:
    """One agent's stream to the controller of the same process (``telemetry.stream.Link``).

    Args:
        fleet: Of the controller.
        connected: Whether reports get through now; faults cut them.
    """

    def __init__(self, fleet: Fleet, connected: Callable[[], bool]) -> None:
        self._fleet = fleet
        self._connected = connected
        self._said_hello = False
        self._now_ns = 0
        self._batches: list[power_pb2.LeaseBatch] = []
        self.refused_reports = 0

    @property
    def target(self) -> str:
        """For people."""
        return "loopback"

    @property
    def connected(self) -> bool:
        """Whether reports get through now."""
        return self._connected()

    @property
    def report_period_ns(self) -> int | None:
        """The owner's loop sets the period."""
        return None

    def keep_open(self, now_ns: int, hello: Callable[[], power_pb2.Hello]) -> None:
        """Say hello, again after a gap."""
        self._now_ns = now_ns
        if not self._connected():
            self._said_hello = False
        elif not self._said_hello:
            self._fleet.hello(hello())
            self._said_hello = True

    def reopen(self) -> None:
        """Say hello again."""
        self._said_hello = False

    def send(self, report: power_pb2.NodeReport) -> None:
        """Give a report to the fleet, after a trip through its bytes."""
        if self._connected():
            try:
                copy = power_pb2.NodeReport.FromString(report.SerializeToString())
                self._fleet.report(copy, self._now_ns)
            except InputError:
                self.refused_reports += 1

    def put(self, batch: power_pb2.LeaseBatch) -> None:
        """Queue a batch of the controller; lost while the stream is cut."""
        if self._connected():
            self._batches.append(power_pb2.LeaseBatch.FromString(batch.SerializeToString()))

    def take(self) -> list[power_pb2.LeaseBatch]:
        """Batches since the last call."""
        batches, self._batches = self._batches, []
        return batches

    def close(self) -> None:
        """Nothing is held."""


def send_over(links: Mapping[str, LoopbackLink]) -> Callable[[Topology, Commands], int]:
    """What the controller's tick calls to send its commands."""

    def send(topology: Topology, commands: Commands) -> int:
        batches = lease_batches(topology, commands)
        for node, message in batches.items():
            links[node].put(message.leases)
        return len(batches)

    return send
