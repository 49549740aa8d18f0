"""When to plan: once arrivals pause, at the latest after a while, and now and then anyway. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Batcher:
    """Gathers changes into cycles.

    Attributes:
        idle_ns: Plan once nothing changed for this long ...
        max_ns: ... or the oldest change waits for this long.
        resync_ns: Plan at the latest this long after the last cycle.
    """

    idle_ns: int
    max_ns: int
    resync_ns: int
    _first_ns: int | None = None
    _latest_ns: int = 0
    _ran_ns: int | None = None
    _again_ns: int | None = None

    def begin(self) -> None:
        """A new term plans at once."""
        self._first_ns = self._ran_ns = self._again_ns = None

    def changed(self, now_ns: int) -> None:
        """Something changed that may need a plan."""
        if self._first_ns is None:
            self._first_ns = now_ns
        self._latest_ns = now_ns

    def ran(self, now_ns: int, again_ns: int | None = None) -> None:
        """A cycle took everything into account that changed before; ``again_ns`` if it failed."""
        self._first_ns = None
        self._ran_ns = now_ns
        self._again_ns = again_ns

    def due_at(self, now_ns: int) -> int:
        """When the next cycle should start; not after ``now_ns`` if that is now."""
        if self._ran_ns is None:
            return now_ns
        resync_ns = self._ran_ns + self.resync_ns
        if self._again_ns is not None:
            resync_ns = min(resync_ns, self._again_ns)
        if self._first_ns is None:
            return resync_ns
        return min(self._latest_ns + self.idle_ns, self._first_ns + self.max_ns, resync_ns)
