"""I1, I2 and heat of the breakers of the small row of ``lease_safety``, by the judge's account."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from benchmarks._lease_kind import HOST_WATTS
from benchmarks._lease_row import Row
from wattpack.units import NS_PER_MS, NS_PER_SECOND

__all__ = ["Breakers", "House"]

LOOK_NS = 50 * NS_PER_MS


class House(Protocol):
    """Worst loads and what breakers bear."""

    def domains(self) -> range:
        """All domains."""
        ...

    def load(self, domain: int, gpus: Sequence[float], hosts: Sequence[float]) -> float:
        """AC watts at a breaker when boards and servers, DC, draw exactly this."""
        ...

    def worst(self, domain: int, caps: Sequence[float]) -> float:
        """AC watts with every board at its cap."""
        ...

    def floor_case(self, domain: int, guaranteed: Sequence[float]) -> float:
        """AC watts of I1's case."""
        ...

    def survives(self, domain: int, watts: float, heat: float, fault_seconds: float) -> bool:
        """Whether the breaker bears a load for so long."""
        ...

    def heated(self, domain: int, heat: float, watts: float) -> float:
        """Breaker heat a second later."""
        ...


class Breakers:
    """Heats them by what boards truly draw, and looks once a second at what could come.

    Attributes:
        heat: 1 = trip, by domain.
    """

    def __init__(self, house: House, ratings: Sequence[float], fault_seconds: float) -> None:
        self.house, self._ratings, self._fault_seconds = house, list(ratings), fault_seconds
        self.heat = [0.0 for _ in house.domains()]
        self._drawn: list[list[float]] = []

    def look(
        self, row: Row, may_hold: Callable[[], Sequence[float]], *, calm: bool
    ) -> Iterator[tuple[str, str]]:
        """Promises that do not hold now, and how.

        Args:
            row: Its boards.
            may_hold: The highest cap on a board or on its way there, by board.
            calm: Nobody but the product raised a board lately.
        """
        self._drawn.append([board.draw_watts() for board in row.boards])
        if row.now_ns % NS_PER_SECOND >= LOOK_NS:
            return
        self._heat(len(row.nodes))
        floors = [row.nodes[n].guaranteed_watts for n in row.topology.node_of_gpu.tolist()]
        highest = may_hold()
        for domain in self.house.domains():
            if self.house.floor_case(domain, floors) > self._ratings[domain] * (1 + 1e-9):
                yield "I1", f"domain {domain}"
            worst = self.house.worst(domain, highest)
            if calm and not self.bears(domain, worst):
                yield "I2", f"domain {domain} may draw {worst:.0f} W"

    def bears(self, domain: int, watts: float) -> bool:
        """Whether a breaker as hot as it is survives such a jump."""
        return self.house.survives(domain, watts, self.heat[domain], self._fault_seconds)

    def _heat(self, servers: int) -> None:
        """By the mean of the last second; servers tell about the same all the time."""
        looks, self._drawn = self._drawn, []
        means = [sum(board) / len(looks) for board in zip(*looks, strict=True)]
        hosts = [HOST_WATTS] * servers
        for domain in self.house.domains():
            watts = self.house.load(domain, means, hosts)
            self.heat[domain] = self.house.heated(domain, self.heat[domain], watts)
