"""I5 in the small row of ``lease_safety``, by the judge's own account of what holds whom back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks._full_breakers import DrawMemory, Draws, may_be_full
from benchmarks._lease_kind import HOST_WATTS
from benchmarks._lease_row import Row
from benchmarks._order_judge import Due, unfair_pairs
from benchmarks._power_house import Domain, House
from controller.tick_values import Decisions, Topology
from wattpack.units import NS_PER_SECOND

__all__ = ["OrderJudge"]

#: A server is silent 3 s after its newest report. One whose report of so long ago was answered is
#: not; whoever has no such report may be silent to the controller, and counts at its maximum.
_HEARD_WITHIN_NS = 14 * NS_PER_SECOND // 5
#: A board that drew more than its cap is not trusted for 30 s after that was noticed.
_DOUBTED_FOR_NS = 45 * NS_PER_SECOND
#: A leader counts caps of its own and of reports. What another raised shortly before it took over,
#: and boards that take up to a second to follow a lowered limit still draw, looks like a board over
#: 110 % of every cap, for as long as the mean over 3 s and the reaction of 1.8 s reach back.
_TAKEN_OVER_NS = 5 * NS_PER_SECOND
_OVER_SHARE = 1.10

DueOf = Callable[[Topology, Sequence[bool]], Due]
"""What a topology owes to the boards that take part."""


class OrderJudge:
    """Knows who surely takes part, what was drawn, and which breakers may be full.

    Args:
        house: The row's breakers.
        due_of: What each board is owed.
        fault_seconds: T_fault of I2.
    """

    def __init__(self, house: House, due_of: DueOf, fault_seconds: float) -> None:
        self._house, self._due_of, self._fault_seconds = house, due_of, fault_seconds
        self._memory = DrawMemory()
        self._highest: list[float] = []
        self._limits: list[float] = []
        self._answered: dict[tuple[int, int], int] = {}
        self._doubted: dict[str, int] = {}
        self._over: dict[str, int] = {}
        self._epoch, self._term_ns = 0, 0

    def answered(self, node: int, issued_ns: int, epoch: int) -> None:
        """An actuator took a command of a term that answers a report of then."""
        key = (node, epoch)
        self._answered[key] = max(self._answered.get(key, 0), issued_ns)

    def doubted(self, uuid: str, until_ns: int) -> None:
        """A board does not do what it is told until then."""
        self._doubted[uuid] = max(self._doubted.get(uuid, 0), until_ns + _DOUBTED_FOR_NS)

    def look(self, row: Row) -> None:
        """What boards draw and hold; the highest of each second is remembered."""
        draws = [board.draw_watts() for board in row.boards]
        self._limits = [board.limit_watts for board in row.boards]
        self._look_at_take_over(row)
        self._highest = list(map(max, draws, self._highest or draws))
        if row.now_ns % NS_PER_SECOND < NS_PER_SECOND // 20:
            self._memory.saw(row.now_ns / NS_PER_SECOND, self._highest)
            self._highest = []

    def _look_at_take_over(self, row: Row) -> None:
        """Boards that drew by a cap that a new leader does not know."""
        now_ns = row.now_ns
        if row.epoch != self._epoch:
            self._epoch, self._term_ns = row.epoch, now_ns
        for board in row.boards:
            uuid = str(board.identity.uuid)
            if board.draw_watts() > _OVER_SHARE * board.limit_watts:
                self._over[uuid] = now_ns
            near = abs(self._over.get(uuid, -_TAKEN_OVER_NS) - self._term_ns) < _TAKEN_OVER_NS
            if near and now_ns - self._term_ns < _TAKEN_OVER_NS:
                self.doubted(uuid, now_ns)

    def unfair(
        self,
        topology: Topology,
        decisions: Decisions,
        epoch: int,
        heat: Sequence[float],
        now_ns: int,
    ) -> list[tuple[int, int]]:
        """Pairs of boards that break I5; of the decisions of a term nothing counts but the caps."""
        if not self._limits:
            return []
        house = self._house
        # What the other replica answered, this one need not have heard: a deposed one goes on.
        heard = [
            now_ns - self._answered.get((node, epoch), -_HEARD_WITHIN_NS) < _HEARD_WITHIN_NS
            for node in range(topology.n_nodes)
        ]
        pairs = list(zip(topology.node_of_gpu.tolist(), topology.gpu_uuids, strict=True))
        for node, uuid in pairs:
            # Of a silent one nobody knows that it does again what it is told.
            if not heard[node] and now_ns < self._doubted.get(uuid, 0):
                self.doubted(uuid, now_ns)
        active = [heard[node] and now_ns >= self._doubted.get(uuid, 0) for node, uuid in pairs]
        decided, most = decisions.decided_cap_watts.tolist(), topology.default_limit_watts.tolist()
        expected = self._memory.most(self._limits, topology.request_watts.tolist())
        caps = [cap if a else high for cap, high, a in zip(decided, most, active, strict=True)]
        expected = [e if a else high for e, high, a in zip(expected, most, active, strict=True)]
        full = may_be_full(
            house,
            caps,
            Draws(expected, self._memory.rising(), [_rest(d, heard) for d in house.domains]),
            [domain.rating_watts for domain in house.domains],
            [d.survivable(heat[d.number], self._fault_seconds) for d in house.domains],
        )
        return unfair_pairs(house, self._due_of(topology, active), decided, full)


def _rest(domain: Domain, heard: Sequence[bool]) -> float:
    """AC watts beside the boards; servers that may be silent at their worst."""
    dc = sum(
        HOST_WATTS if heard[server.number] else server.host_watts * part.efficiency
        for part in domain.walk()
        for server in part.servers
    )
    return dc / domain.efficiency + domain.external
