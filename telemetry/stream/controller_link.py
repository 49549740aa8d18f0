"""What the agent needs of its connection to one controller replica, and when to try again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from wattpack.units import NS_PER_SECOND
from wattpack.wire.v1 import power_pb2

BASE_NS = NS_PER_SECOND // 4
LONGEST_NS = 8 * NS_PER_SECOND
"""A new leader waits for reports before it raises anything, so back-off stays short."""


class Backoff:
    """Waiting times between attempts: they double, each drawn from the upper half (jitter).

    Args:
        generator: Seeded per node, so that a fleet does not reconnect in step.
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self._failures = 0

    def next_delay_ns(self) -> int:
        """How long to wait after one more failure."""
        ceiling = min(LONGEST_NS, BASE_NS << min(self._failures, 10))
        self._failures += 1
        return round(ceiling * self._generator.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Start over after a success."""
        self._failures = 0


class Link(Protocol):
    """One stream to one controller replica; reopens itself, never blocks."""

    @property
    def target(self) -> str:
        """``host:port``, for people."""
        ...

    @property
    def connected(self) -> bool:
        """True between the controller's Welcome and the stream's end."""
        ...

    @property
    def report_period_ns(self) -> int | None:
        """What the controller asked for, None before its Welcome."""
        ...

    def keep_open(self, now_ns: int, hello: Callable[[], power_pb2.Hello]) -> None:
        """Open the stream if it is closed and the back-off is over."""
        ...

    def reopen(self) -> None:
        """End the stream if it is open, so that the next one begins with what is known by then."""
        ...

    def send(self, report: power_pb2.NodeReport) -> None:
        """Send a report if connected; a report that waits is replaced by a newer one."""
        ...

    def take(self) -> list[power_pb2.LeaseBatch]:
        """Batches that came since the last call; each must be told to the clock as handled."""
        ...

    def close(self) -> None:
        """End the stream for good."""
        ...
