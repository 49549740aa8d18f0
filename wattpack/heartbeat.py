"""Whether a loop still comes back when it said it would: what ``/healthz`` tells the kubelet."""

from __future__ import annotations

from wattpack.clock import Clock
from wattpack.units import seconds_to_ns

__all__ = ["Heartbeat"]


class Heartbeat:
    """Written by one loop, read by anybody.

    Args:
        clock: Time.
        patience_seconds: How much later than it said a loop may come back.
    """

    def __init__(self, clock: Clock, patience_seconds: float) -> None:
        self._clock, self._patience_ns = clock, seconds_to_ns(patience_seconds)
        self._due_ns = clock.monotonic_ns()

    def next_at(self, due_ns: int) -> None:
        """The loop works and will be back at this monotonic time."""
        self._due_ns = due_ns

    def is_late(self) -> bool:
        """Whether the loop hangs."""
        return self._clock.monotonic_ns() > self._due_ns + self._patience_ns
