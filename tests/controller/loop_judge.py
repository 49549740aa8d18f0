"""I5 in the closed loop, by the plant's truth: who takes part, and which breakers may be full."""

from __future__ import annotations

from benchmarks._full_breakers import DrawMemory, Draws, may_be_full
from benchmarks._order_judge import unfair_pairs
from controller.tick_values import Decisions, Topology
from tests.controller.closed_loop import Row
from tests.controller.faulty_plant import NS, Plant
from tests.controller.oracle import LEAST_FAULT_SECONDS, due_of

_SILENT_AFTER_NS = 3 * NS


class LoopJudge:
    """Sees every row of one loop; of the decisions it takes nothing but the caps."""

    def __init__(self, topology: Topology) -> None:
        self._topology, self._memory = topology, DrawMemory()

    def unfair(self, row: Row) -> list[tuple[int, int]]:
        """Unfair pairs of this tick."""
        plant = row.plant
        self._memory.saw(plant.now_ns / NS, [board.draw for board in plant.boards])
        return self.pairs(plant, row.decisions)

    def pairs(self, plant: Plant, decisions: Decisions) -> list[tuple[int, int]]:
        """The same of other decisions of this moment; none while a breaker is overloaded.

        Over its rating a domain may brake, and a brake owes nobody more than the minimum.
        """
        house, topology = plant.house, self._topology
        if any(map(float.__gt__, plant.true_watts(), house.ratings)):
            return []
        active = _taking_part(plant)
        told = [board.told_cap for board in plant.boards]
        expected = self._memory.most(told, topology.request_watts.tolist())
        decided, most = decisions.decided_cap_watts.tolist(), topology.default_limit_watts.tolist()
        caps = [cap if a else high for cap, high, a in zip(decided, most, active, strict=True)]
        expected = [e if a else high for e, high, a in zip(expected, most, active, strict=True)]
        nothing, hosts = [0.0] * len(caps), plant.host_watts()
        rest = [house.load(domain, nothing, hosts) for domain in house.domains()]
        survivable = [
            domain.survivable(heat, LEAST_FAULT_SECONDS)
            for domain, heat in zip(house.house.domains, plant.heat, strict=True)
        ]
        draws = Draws(expected, self._memory.rising(), rest)
        full = may_be_full(house.house, caps, draws, house.ratings, survivable)
        return unfair_pairs(house.house, due_of(topology, active), decided, full)


def _taking_part(plant: Plant) -> list[bool]:
    """Boards whose server was heard lately and that do what they are told."""
    heard = [
        server.received >= 0 and plant.now_ns - server.received <= _SILENT_AFTER_NS
        for server in plant.servers
    ]
    return [heard[board.node] and not board.ignores for board in plant.boards]
