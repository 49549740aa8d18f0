"""The promises I1 and I2 of docs/architecture.md, worked out on nested objects in plain loops.

A judge: a house is domains that hold domains and servers, servers hold boards, and each sum, rating
and trip time below is written down from the text alone. It imports nothing of what it judges.
Slow and obvious on purpose. Watts at a board are DC, watts at a domain AC at its breaker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

OVERSHOOT = 1.05
GAIN_SPREAD = 0.09
NODES_AT_DEFAULT = 0.05
HEAT_LIMIT, PARENT_HEAT_LIMIT = 0.5, 0.25
HIGHEST_RATIO, SHARE_OF_PICKUP = 1.5, 0.8
HOT_OVER_COLD = 0.25


@dataclass(eq=False)
class Board:
    """One GPU.

    Attributes:
        number: Position in all lists of watts by board.
        default: Limit after a reboot.
        minimum: Lowest settable limit.
        model: GPU type.
    """

    number: int
    default: float
    minimum: float = 0.0
    model: str = ""


@dataclass(eq=False)
class Server:
    """Boards in one chassis.

    Attributes:
        number: Position in all lists of watts by server.
        host_watts: The most it draws without its GPUs, AC at the breaker of its domain.
        host_unit: Whether the host caps before work starts (I10).
    """

    number: int
    boards: list[Board]
    host_watts: float
    host_unit: bool = True


@dataclass(frozen=True)
class Trip:
    """How long a hot breaker bears a load: ``a (r^2 - 1)^-b`` seconds, or points of a curve.

    Attributes:
        points: (load ratio, seconds), rising in ratio; the formula counts without any.
        cold: The points are of a cold breaker.
        pickup_ratio: Lowest short-time or magnetic pick-up.
    """

    a_seconds: float = 1.0
    b_exponent: float = 1.0
    points: tuple[tuple[float, float], ...] = ()
    cold: bool = False
    pickup_ratio: float = 5.0

    def seconds(self, ratio: float) -> float:
        """Until it trips; 0 where the curve tells nothing any more."""
        if ratio <= 1.0:
            return math.inf
        if not self.points:
            return float(self.a_seconds * (ratio**2 - 1.0) ** -self.b_exponent)
        share = HOT_OVER_COLD if self.cold else 1.0
        if ratio <= self.points[0][0]:
            return share * self.points[0][1]
        for (low, longer), (high, shorter) in pairwise(self.points):
            if ratio <= high:
                way = math.log(ratio / low) / math.log(high / low)
                return float(share * longer * (shorter / longer) ** way)
        return 0.0

    def highest_ratio(self) -> float:
        """r_max of I2: never more, for no time at all."""
        return min(HIGHEST_RATIO, SHARE_OF_PICKUP * self.pickup_ratio)


@dataclass(eq=False)
class Domain:
    """A breaker and what hangs below it.

    Attributes:
        number: Position in all lists by domain.
        feed_watts: Continuous rating of one feed.
        redundancy: ``None``, ``2N`` or ``KofN``.
        feeds, required_feeds: Of KofN.
        imbalance: Worst phase over mean phase current.
        own_efficiency: DC over AC, down to the boards, as declared here.
        external_watts: Declared load directly below, AC here.
        enforces: Whether caps below are written.
        feed_trip: How long UPS and transformer of a feed bear a load, where load may use the
            feeds that redundancy keeps in reserve.
    """

    number: int
    feed_watts: float = math.inf
    redundancy: str = "None"
    feeds: int = 1
    required_feeds: int = 1
    imbalance: float = 1.0
    own_efficiency: float = 1.0
    external_watts: float = 0.0
    trip: Trip = field(default_factory=Trip)
    enforces: bool = True
    feed_trip: Trip | None = None
    servers: list[Server] = field(default_factory=list)
    children: list[Domain] = field(default_factory=list)

    def walk(self) -> Iterator[Domain]:
        """This domain and all that it feeds, feeders first."""
        yield self
        for child in self.children:
            yield from child.walk()

    @cached_property
    def all_servers(self) -> list[Server]:
        """Fed through this breaker."""
        return [server for domain in self.walk() for server in domain.servers]

    @cached_property
    def all_boards(self) -> list[Board]:
        """Fed through this breaker."""
        return [board for server in self.all_servers for board in server.boards]

    @cached_property
    def efficiency(self) -> float:
        """The lowest in use from here down: what comes through a breaker was lost here too."""
        return min(domain.own_efficiency for domain in self.walk())

    @property
    def rating_watts(self) -> float:
        """Continuous, after the loss of any one feed, of the most loaded phase."""
        left = min(self.required_feeds, self.feeds - 1) if self.redundancy == "KofN" else 1
        return left * self.feed_watts / self.imbalance

    @cached_property
    def gain(self) -> float:
        """How far many boards together go over their caps: g_n."""
        return 1.0 + GAIN_SPREAD / math.sqrt(max(len(self.all_boards), 1))

    @cached_property
    def external(self) -> float:
        """Declared loads below, AC here: losses between two breakers count at the upper one."""
        below = sum(domain.external_watts * domain.efficiency for domain in self.walk())
        return below / self.efficiency

    @cached_property
    def hosts(self) -> float:
        """Servers without their GPUs at worst, AC here."""
        dc = sum(
            server.host_watts * domain.efficiency
            for domain in self.walk()
            for server in domain.servers
        )
        return dc / self.efficiency

    def boards_worst(self, caps: Sequence[float]) -> float:
        """AC watts that these caps bring at worst, hosts and external load aside."""
        return self.at_breaker(sum(caps[board.number] for board in self.all_boards))

    def at_breaker(self, board_watts: float) -> float:
        """AC watts at worst of boards below whose caps come to so much."""
        return board_watts * OVERSHOOT * self.gain / self.efficiency

    def worst(self, caps: Sequence[float]) -> float:
        """AC watts with every board at its cap, as far over it as boards go, hosts at worst."""
        return self.boards_worst(caps) + self.hosts + self.external

    def floor_case(self, guaranteed: Sequence[float]) -> float:
        """I1: guaranteed caps, with the largest max(1, 5 %) servers at their default limits.

        A server that no host unit holds down (I10) is at its default limits in any case.
        """
        caps = list(guaranteed)
        jumps = []
        for server in self.all_servers:
            more = sum(board.default - guaranteed[board.number] for board in server.boards)
            jumps.append((more if server.host_unit else 0.0, server))
        count = max(1, math.ceil(NODES_AT_DEFAULT * len(jumps)))
        largest = [server for _, server in sorted(jumps, key=lambda jump: -jump[0])[:count]]
        for server in self.all_servers:
            if server in largest or not server.host_unit:
                for board in server.boards:
                    caps[board.number] = max(board.default, guaranteed[board.number])
        return self.worst(caps)

    def survives(self, watts: float, heat: float, away_seconds: float) -> bool:
        """I2: whether the breaker bears a load for as long as nobody may lower it."""
        ratio = watts / self.rating_watts
        if ratio <= 1.0:
            return True
        limit = PARENT_HEAT_LIMIT if self.children else HEAT_LIMIT
        for device in (self.trip, self.feed_trip):
            if device is None:
                continue
            trip = device.seconds(ratio)
            if ratio > device.highest_ratio() + 1e-9 or trip <= 0.0:
                return False
            if heat + away_seconds / trip > limit + 1e-9:
                return False
        return True

    def survivable(self, heat: float, away_seconds: float) -> float:
        """I2: the most watts that it survives, by halving; its rating always."""
        low, high = self.rating_watts, HIGHEST_RATIO * self.rating_watts
        if self.survives(high, heat, away_seconds):
            return high
        for _ in range(40):
            middle = (low + high) / 2.0
            if self.survives(middle, heat, away_seconds):
                low = middle
            else:
                high = middle
        return low


@dataclass(eq=False)
class House:
    """One power tree, or several side by side."""

    roots: list[Domain]

    @cached_property
    def domains(self) -> list[Domain]:
        """All, by number."""
        found = [domain for root in self.roots for domain in root.walk()]
        return sorted(found, key=lambda domain: domain.number)

    @cached_property
    def servers(self) -> list[Server]:
        """All, by number."""
        found = [server for root in self.roots for server in root.all_servers]
        return sorted(found, key=lambda server: server.number)

    @cached_property
    def boards(self) -> list[Board]:
        """All, by number."""
        found = [board for root in self.roots for board in root.all_boards]
        return sorted(found, key=lambda board: board.number)

    @cached_property
    def paths(self) -> list[list[Domain]]:
        """By board the domains that feed it, the nearest first."""
        above: dict[int, list[Domain]] = {board.number: [] for board in self.boards}
        for root in self.roots:
            for domain in root.walk():
                for board in domain.all_boards:
                    above[board.number].insert(0, domain)
        return [above[board.number] for board in self.boards]
