"""What part of many pods' peaks comes together in a power domain: the 99th percentile of a sum.

Each pod is counted by the 95th percentile of its draw. All of them never draw that at once, and one
alone may draw more. The coincidence factor (as in electrical engineering: peak of the sum over sum
of the peaks) says what the domain's 99th percentile is of that count, so that

    sum of the pods' 95th percentiles <= (limit - used) / coincidence

holds the domain at its limit. Draws are taken as normal, every two pods equally correlated, boards
of one pod as one. Correlation is assumed to be ``CORRELATION``: recorded loads of services that
share a cluster vary together by 0.12 on average, changes within ten minutes by 0.37 (12 clients of
ServeGen's m-small; Helios Earth's queues: changes by 0.39), so that the higher counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = [
    "CORRELATION",
    "BoardDraw",
    "DrawSum",
    "coincidence",
    "pods_p99_watts",
    "sum_p99_watts",
]

CORRELATION: Final = 0.4
Z95: Final = 1.6449
Z99: Final = 2.3263
"""Standard normal quantiles."""


@dataclass(frozen=True, slots=True)
class BoardDraw:
    """What one kind of pods draws on a board, watts above idle.

    Attributes:
        share: Of all boards in the domain that this kind has, by the expected demand.
        boards: Of one pod, which draw alike.
    """

    mean_watts: float
    p95_watts: float
    share: float = 1.0
    boards: float = 1.0

    def __post_init__(self) -> None:
        require_number("mean_watts", self.mean_watts, minimum=0, maximum=1e5)
        require_number("p95_watts", self.p95_watts, minimum=self.mean_watts, maximum=1e5)
        require_number("share", self.share, minimum=0, maximum=1)
        require_number("boards", self.boards, exclusive_minimum=0, maximum=1e5)

    @property
    def spread_watts(self) -> float:
        """Standard deviation of a normal draw with these two figures."""
        return (self.p95_watts - self.mean_watts) / Z95


def sum_p99_watts(
    kinds: Sequence[BoardDraw], boards: float, correlation: float = CORRELATION
) -> float:
    """The 99th percentile of what so many boards draw together.

    Args:
        kinds: What runs on them; shares add up to 1.
        boards: In the domain.
        correlation: Of every two pods' draws, from 0 to 1.
    """
    require_number("correlation", correlation, minimum=0, maximum=1)
    mean = boards * sum(kind.share * kind.mean_watts for kind in kinds)
    together = boards * sum(kind.share * kind.spread_watts for kind in kinds)
    # A pod's boards are one draw: n boards of pods of k are n / k draws of k spreads each.
    alone = boards * sum(kind.share * kind.boards * kind.spread_watts**2 for kind in kinds)
    return mean + Z99 * math.sqrt((1.0 - correlation) * alone + correlation * together**2)


def pods_p99_watts(
    p95_watts: Sequence[float], spread_watts: Sequence[float], correlation: float = CORRELATION
) -> float:
    """The 99th percentile of what these pods draw together.

    Args:
        p95_watts: Of each pod, by which it is counted alone.
        spread_watts: Standard deviation of each pod's draw; 0 where nobody knows, so that the pod
            counts by its percentile alone.
        correlation: Of every two pods' draws, from 0 to 1.
    """
    together = math.fsum(spread_watts)
    alone = math.fsum(spread**2 for spread in spread_watts)
    return DrawSum(math.fsum(p95_watts), together, alone).p99_watts(correlation)


@dataclass(slots=True)
class DrawSum:
    """What pods draw together, as far as its 99th percentile needs it.

    Attributes:
        peaks_watts: Sum of the pods' 95th percentiles.
        together_watts: Sum of their standard deviations: the sum's, if all moved as one.
        alone_watts2: Sum of their variances: the sum's, if none minded another.
    """

    peaks_watts: float = 0.0
    together_watts: float = 0.0
    alone_watts2: float = 0.0

    def add(self, p95_watts: float, spread_watts: float) -> None:
        """One pod more."""
        self.peaks_watts += p95_watts
        self.together_watts += spread_watts
        self.alone_watts2 += spread_watts**2

    def p99_watts(self, correlation: float = CORRELATION) -> float:
        """The 99th percentile, every two pods equally correlated."""
        mean = self.peaks_watts - Z95 * self.together_watts
        variance = (1.0 - correlation) * self.alone_watts2 + correlation * self.together_watts**2
        return mean + Z99 * math.sqrt(variance)


def coincidence(
    kinds: Sequence[BoardDraw], room_watts: float, correlation: float = CORRELATION
) -> float:
    """Peak of the sum over sum of the peaks in a domain that its pods fill.

    Args:
        kinds: What is expected to run there; shares add up to 1.
        room_watts: What the domain has for pods, above hosts and idle boards.
        correlation: Of every two pods' draws.

    Raises:
        InputError: for shares that do not add up to 1.
    """
    if not math.isclose(sum(kind.share for kind in kinds), 1.0, abs_tol=1e-6):
        raise InputError("kinds", "shares that add up to 1", [kind.share for kind in kinds])
    peak = sum(kind.share * kind.p95_watts for kind in kinds)
    if peak <= 0.0:
        return 1.0
    # So many boards fill it by their own count; fewer vary more, so that the factor is not low.
    boards = max(1.0, room_watts / peak)
    return sum_p99_watts(kinds, boards, correlation) / (boards * peak)
