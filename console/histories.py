"""The last half hour and the last day of every domain, so that a new page begins with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wattpack.live_view import LiveDomain
from wattpack.units import NS_PER_SECOND

POINTS = 1800
#: Of the day: as wide as the forecaster's bins, so that both can be seen as one line.
BIN_SECONDS = 600
DAY_BINS = 144
#: A domain that is gone for good leaves room for others.
MAX_DOMAINS = 4000
#: Points that arrived further apart than this are drawn with a gap between them.
GAP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Point:
    """A domain at one tick; AC watts."""

    time_ms: int
    draw_watts: float
    cap_band_watts: float
    after_gap: bool


@dataclass(slots=True)
class Histories:
    """A bounded ring of points a domain."""

    rings: dict[str, deque[Point]] = field(default_factory=dict)
    _arrived_ns: int | None = None

    def add(self, wall_time_ms: int, arrived_ns: int, domains: Iterable[LiveDomain]) -> None:
        """Remember a tick; one that is not newer than the last says nothing new.

        Args:
            wall_time_ms: Of the tick, on the controller's clock, which a simulation may speed up.
            arrived_ns: On our own clock; holes are judged by it.
            domains: What was seen.
        """
        before_ns, self._arrived_ns = self._arrived_ns, arrived_ns
        gap = before_ns is not None and arrived_ns - before_ns > GAP_SECONDS * NS_PER_SECOND
        for domain in domains:
            ring = self.rings.get(domain.name)
            if ring is None:
                if len(self.rings) >= MAX_DOMAINS:
                    self.rings.pop(min(self.rings, key=lambda name: self.rings[name][-1].time_ms))
                ring = self.rings[domain.name] = deque(maxlen=POINTS)
            if not ring or wall_time_ms > ring[-1].time_ms:
                ring.append(Point(wall_time_ms, domain.draw_watts, domain.cap_band_watts, gap))

    def columns(self, domain: str) -> dict[str, list[float | None]]:
        """``timeMs``, ``drawWatts`` and ``capBandWatts``; None where nothing was seen."""
        return with_gaps(list(self.rings.get(domain, ())))


@dataclass(slots=True)
class DayBins:
    """Ten-minute means of the last day by name, as far as this server has seen it."""

    bins: dict[str, dict[int, tuple[float, int]]] = field(default_factory=dict)
    most: int = MAX_DOMAINS

    def add(self, wall_time_ms: int, domains: Iterable[LiveDomain]) -> None:
        """Count a tick's draws into their bins."""
        for domain in domains:
            self.note(domain.name, wall_time_ms, domain.draw_watts)

    def note(self, name: str, wall_time_ms: int, value: float) -> None:
        """Count one value into its bin; who was seen longest ago leaves room for a new name."""
        now = wall_time_ms // (1000 * BIN_SECONDS)
        if name not in self.bins and len(self.bins) >= self.most:
            self.bins.pop(min(self.bins, key=lambda known: max(self.bins[known], default=0)))
        kept = self.bins.setdefault(name, {})
        total, count = kept.get(now, (0.0, 0))
        kept[now] = (total + value, count + 1)
        if len(kept) > DAY_BINS:
            del kept[min(kept)]

    def means(self, name: str) -> tuple[list[float], list[float | None]]:
        """Start of each bin of the day up to the newest, Unix seconds, and its mean."""
        kept = self.bins.get(name, {})
        oldest, newest = min(kept, default=0), max(kept, default=-1)
        places = range(max(oldest, newest - DAY_BINS + 1), newest + 1)
        found = [kept[at][0] / kept[at][1] if at in kept else None for at in places]
        return [float(at * BIN_SECONDS) for at in places], found

    def columns(self, domain: str) -> Mapping[str, Sequence[float | None]]:
        """``startSeconds`` of each bin of a domain's day, and its mean ``drawWatts``."""
        starts, means = self.means(domain)
        return {"startSeconds": starts, "drawWatts": means}


def with_gaps(points: Sequence[Point]) -> dict[str, list[float | None]]:
    """The points as columns, with an empty one in the middle of every hole."""
    rows: list[tuple[float, float | None, float | None]] = []
    for i, point in enumerate(points):
        if point.after_gap and i:
            rows.append(((point.time_ms + points[i - 1].time_ms) / 2, None, None))
        rows.append((float(point.time_ms), point.draw_watts, point.cap_band_watts))
    return {
        "timeMs": [row[0] for row in rows],
        "drawWatts": [row[1] for row in rows],
        "capBandWatts": [row[2] for row in rows],
    }
