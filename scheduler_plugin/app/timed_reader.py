"""Reading from a connection until a stated time, however slowly the other side sends."""

from __future__ import annotations

import io
import socket
from typing import Any

from wattpack.clock import Clock
from wattpack.units import ns_to_seconds, seconds_to_ns

__all__ = ["TimedReader"]


class TimedReader(io.RawIOBase):
    """A connection's incoming bytes. A socket's own time-out counts from each byte anew.

    Args:
        connection: Is read from here only.
        clock: Time.
        patience_seconds: For one piece.
    """

    def __init__(self, connection: socket.socket, clock: Clock, patience_seconds: float) -> None:
        super().__init__()
        self._connection, self._clock = connection, clock
        self._patience_seconds = patience_seconds
        self._quiet_seconds = self._seconds = 0.0
        self._until_ns: int | None = clock.monotonic_ns()

    def allow(self, quiet_seconds: float, seconds: float) -> None:
        """Wait for the first piece, and from then on for the rest, for so long."""
        self._quiet_seconds, self._seconds = quiet_seconds, seconds
        self._until_ns = None

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401
        """How many bytes came; 0 at the end.

        Raises:
            TimeoutError: when the time is over.
        """
        self._connection.settimeout(self._time_left())
        try:
            count = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._patience_seconds)
        if self._until_ns is None:
            self._until_ns = self._clock.monotonic_ns() + seconds_to_ns(self._seconds)
        return count

    def _time_left(self) -> float:
        if self._until_ns is None:
            return self._quiet_seconds
        left_seconds = ns_to_seconds(self._until_ns - self._clock.monotonic_ns())
        if left_seconds <= 0:
            raise TimeoutError("the request took too long")
        return min(left_seconds, self._patience_seconds)
