"""One JSON line for each decision of the actuator, to standard output or a file."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any

from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND

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


class SparseAudit:
    """Passes on at most one entry of a kind a second: what strangers send cannot fill a disk.

    Args:
        audit: Where entries go; each tells how many of its kind were left out before it.
        clock: For the second.
    """

    def __init__(self, audit: AuditSink, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._last_ns: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def __call__(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Pass the entry on, or count it."""
        now_ns = self._clock.monotonic_ns()
        last_ns = self._last_ns.get(kind)
        if last_ns is not None and now_ns - last_ns < NS_PER_SECOND:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._last_ns[kind] = now_ns
        left_out = self._left_out.pop(kind, 0)
        self._audit({**entry, "left_out_before": left_out} if left_out else entry)


class AuditTrail:
    """Keeps the last decisions in memory: simulated nodes and tests."""

    def __init__(self, length: int = 256) -> None:
        self.entries: deque[dict[str, Any]] = deque(maxlen=length)

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Keep one decision."""
        self.entries.append(dict(entry))
