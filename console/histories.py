"""The last half hour of every domain, kept by the server so that a new page begins with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wattpack.live_view import LiveDomain

POINTS = 1800
#: A domain that is gone for good leaves room for others.
MAX_DOMAINS = 4000
#: Neighbours further apart than this are drawn with a gap between them.
GAP_MS = 5000

Point = tuple[int, float, float]


@dataclass(slots=True)
class Histories:
    """A bounded ring of points a domain: (wall time in ms, draw, cap band), AC watts."""

    rings: dict[str, deque[Point]] = field(default_factory=dict)

    def add(self, wall_time_ms: int, domains: Iterable[LiveDomain]) -> None:
        """Remember a tick; one that is not newer than the last says nothing new."""
        for domain in domains:
            ring = self.rings.get(domain.name)
            if ring is None:
                if len(self.rings) >= MAX_DOMAINS:
                    self.rings.pop(min(self.rings, key=lambda name: self.rings[name][-1][0]))
                ring = self.rings[domain.name] = deque(maxlen=POINTS)
            if not ring or wall_time_ms > ring[-1][0]:
                ring.append((wall_time_ms, domain.draw_watts, domain.cap_band_watts))

    def columns(self, domain: str) -> dict[str, list[float | None]]:
        """``timeMs``, ``drawWatts`` and ``capBandWatts``; None where nothing was seen."""
        return with_gaps(list(self.rings.get(domain, ())))


def with_gaps(points: Sequence[Point]) -> dict[str, list[float | None]]:
    """The points as columns, with an empty one in the middle of every hole."""
    rows: list[tuple[float, float | None, float | None]] = []
    for i, (time_ms, draw, band) in enumerate(points):
        before = points[i - 1][0] if i else time_ms
        if time_ms - before > GAP_MS:
            rows.append(((time_ms + before) / 2, None, None))
        rows.append((float(time_ms), draw, band))
    return {
        "timeMs": [row[0] for row in rows],
        "drawWatts": [row[1] for row in rows],
        "capBandWatts": [row[2] for row in rows],
    }
