"""One JSON line for each decision of the actuator, to standard output or a file."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any

from wattpack.clock import Clock

AuditSink = Callable[[Mapping[str, Any]], None]


class AuditLog:
    """Writes lines; renewals that change nothing are counted and told with the next line.

    Args:
        stream: Where lines go.
        clock: For the calendar time in each line.
    """

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._renewals = 0
        self._lost = 0

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Write one decision; a full disk loses lines, never a cap, and the next line says so."""
        if entry.get("event") == "renew":
            self._renewals += 1
            return
        line = {"time_ns": self._clock.wall_time_ns(), **entry}
        if self._renewals:
            line["renewals_before"] = self._renewals
            self._renewals = 0
        if self._lost:
            line["lost_before"] = self._lost
        try:
            self._stream.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._stream.flush()
        except OSError:
            self._lost += 1
        else:
            self._lost = 0


class AuditTrail:
    """Keeps the last decisions in memory: simulated nodes and tests."""

    def __init__(self, length: int = 256) -> None:
        self.entries: deque[dict[str, Any]] = deque(maxlen=length)

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Keep one decision."""
        self.entries.append(dict(entry))
