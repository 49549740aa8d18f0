"""Which breakers may be full, from caps and from draws that were seen: a judge's own account.

A breaker holds somebody back if it may not carry more: by what is expected to be drawn, or by the
jump of I2. What a controller says of it counts nothing here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks._power_house import House

__all__ = ["DrawMemory", "Draws", "may_be_full"]

#: Demand counts for as long as the design says: the highest of the last minute.
_SPAN_SECONDS = 62.0
#: Above this share of its limit a board shows nothing of its demand. The product says 0.93; lower
#: calls more boards throttled, more breakers full and fewer pairs unfair.
_THROTTLED_SHARE = 0.9
#: What caps aim at is 0.9775 of L, and caps within 3 % of the default limit stay as they are. In
#: 1500 ticks of 30 random rows the emptiest breaker that held anybody had 0.908.
_LEAST_TARGET_SHARE = 0.9
#: Caps that are safe stay while the ideal ones differ by less than this share of the default limit
#: (docs/power-control.md), also where a breaker that cools bears more by now.
_KEPT_SHARE = 0.03
#: What rose lately is expected to come once more (docs/power-control.md), whatever caps allow.
_RISING_SECONDS = 5.0


class DrawMemory:
    """The highest draw of each board lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, list[float]]] = deque()

    def saw(self, now_seconds: float, draws: Sequence[float]) -> None:
        """Boards drew this just now, watts by board."""
        self._seen.append((now_seconds, list(draws)))
        while self._seen[0][0] < now_seconds - _SPAN_SECONDS:
            self._seen.popleft()

    def most(self, limits: Sequence[float], requests: Sequence[float]) -> list[float]:
        """What each board may be expected to draw at an open cap, watts by board.

        Args:
            limits: What each holds now.
            requests: What each would like: expected of whoever its limit holds down.
        """
        if not self._seen:
            return list(requests)
        newest = self._seen[-1][1]
        peaks = [max(row) for row in zip(*(row for _, row in self._seen), strict=True)]
        return [
            max(peak, request) if drawn >= _THROTTLED_SHARE * limit else peak
            for peak, request, drawn, limit in zip(peaks, requests, newest, limits, strict=True)
        ]

    def rising(self) -> list[float]:
        """How far each board rose within the last seconds, watts by board; empty without any."""
        if not self._seen:
            return []
        now_seconds, newest = self._seen[-1]
        recent = [row for at, row in self._seen if at >= now_seconds - _RISING_SECONDS]
        lowest = [min(row) for row in zip(*recent, strict=True)]
        return [drawn - low for drawn, low in zip(newest, lowest, strict=True)]


@dataclass(frozen=True)
class Draws:
    """What is drawn.

    Attributes:
        expected: By board, the draw at an open cap.
        rising: By board, what may come beside that; empty for nothing.
        rest: By domain, AC watts drawn beside the boards.
    """

    expected: Sequence[float]
    rising: Sequence[float]
    rest: Sequence[float]


def may_be_full(
    house: House,
    caps: Sequence[float],
    draws: Draws,
    base: Sequence[float],
    survivable: Sequence[float],
) -> list[bool]:
    """By domain, whether it may hold somebody back at these caps.

    Args:
        house: The breakers.
        caps: By board; the most that it may hold where nobody decides its cap.
        draws: By the judge's own account.
        base: By domain, AC watts that it may carry for long.
        survivable: By domain, AC watts that everything at its cap may come to (I2).
    """
    counted = [min(pair) for pair in zip(caps, draws.expected, strict=True)]
    full = []
    for domain in house.domains:
        number = domain.number
        load = domain.boards_worst(counted) + draws.rest[number]
        if draws.rising:
            load += domain.boards_worst(draws.rising)
        kept = domain.at_breaker(_KEPT_SHARE * sum(board.default for board in domain.all_boards))
        full.append(
            load >= _LEAST_TARGET_SHARE * base[number]
            or domain.worst(caps) >= survivable[number] - kept
        )
    return full
