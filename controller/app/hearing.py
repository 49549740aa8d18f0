"""The fleet, told by one stream of each node what the node says.

streams ──> HeardStreams (which one?) ──> Fleet
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Generic, Protocol, TypeVar

from controller.app.fleet import Arrival, Fleet
from controller.app.heard_streams import Change, HeardStreams, Place
from wattpack.errors import InputError
from wattpack.wire.v1 import power_pb2

__all__ = ["Hearing", "Speaker"]

log = logging.getLogger(__name__)


class Speaker(Protocol):
    """An agent's stream."""

    @property
    def hello(self) -> power_pb2.Hello:
        """What it began with."""
        ...

    def end(self) -> None:
        """Nothing is taken from it any more."""
        ...


S = TypeVar("S", bound=Speaker)


class Hearing(Generic[S]):
    """Opens, hears and closes streams; one thread calls it.

    Args:
        fleet: Takes hellos and reports of whoever is heard.

    Attributes:
        handovers: Times that another agent of a node was heard, by cause.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.streams: HeardStreams[S] = HeardStreams()
        self.handovers: Counter[str] = Counter()

    def opened(self, node: str, stream: S, now_ns: int) -> bool:
        """A stream begins; False if it is not taken, because two agents of the node speak already.

        Raises:
            InputError: for a hello that cannot be taken; then nothing has changed.
        """
        hello = stream.hello
        self._fleet.check(hello)
        change = self.streams.opened(node, stream, hello.instance, hello.boot_id, now_ns)
        self._follow(node, change)
        return not change.refused

    def report(
        self, node: str, stream: S, report: power_pb2.NodeReport, now_ns: int
    ) -> Arrival | None:
        """A report came; None if its agent waits, and is not listened to.

        Raises:
            InputError: naming the field; the last good report stays.
        """
        streams = self.streams
        if streams.place(node, stream) is Place.UNKNOWN:
            raise InputError("stream", f"the newest stream of node {node!r}", "an earlier")
        if streams.place(node, stream) is Place.WAITS:
            self._follow(node, streams.spoke(node, stream, report.nonce, now_ns))
            if streams.heard(node) is not stream:
                return None
        if not self._fleet.knows(node):
            # It was forgotten, deleted and silent, and its stream outlived the silence: a machine
            # that speaks draws power and is counted.
            self._fleet.hello(stream.hello)
        arrival = self._fleet.report(report, now_ns)
        streams.spoke(node, stream, report.nonce, now_ns)
        return arrival

    def closed(self, node: str, stream: S) -> None:
        """A stream ended; who waited beside it is heard from its next report on."""
        self._follow(node, self.streams.closed(node, stream), "ended")

    def _follow(self, node: str, change: Change[S], cause: str = "") -> None:
        """End what must end, and let the fleet know who is heard.

        Args:
            node: Of the streams.
            change: What became of them.
            cause: Why one process is heard after another, if that is what happened.
        """
        for stream in change.ended:
            # An earlier stream of the same node extends no lease any more (I3).
            stream.end()
        if change.heard is None:
            return
        cause = "silent" if change.silent else cause
        if cause:
            self.handovers[cause] += 1
            log.info("%s: another agent is heard, the one before: %s", node, cause)
        try:
            self._fleet.hello(change.heard.hello)
        except InputError as error:
            # Checked when it came; the node's boards have changed since. It comes again.
            log.warning("%s: the agent that waited is turned away: %s", node, error)
            change.heard.end()
