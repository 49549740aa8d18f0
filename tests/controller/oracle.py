"""A topology as the nested house of ``benchmarks._power_house``, which judges the controller.

The house takes nothing of the controller's code: a topology is read off as bare numbers, and every
sum, trip time and order is worked out there and here from the text of docs/architecture.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks._order_judge import Due
from benchmarks._power_house import Board, Domain, House, Server, Trip
from controller.tick_values import PowerSettings, Topology
from wattpack.power.domain_tree import DomainTree

# Hot curves at their lower tolerance edge, t = a (r^2 - 1)^-b: 80 % of the times quoted for a rack
# breaker and for a main switchboard.
RACK_CURVE = (0.8 * 55.6, 1.864)
SWITCHBOARD_CURVE = (0.8 * 30.3, 0.605)
COOLING_SECONDS = 600.0
# Lease, actuation, settling: the least that the Promises let a controller be away at a jump.
LEAST_FAULT_SECONDS = 3.5 + 0.5 + 1.3


@dataclass(frozen=True)
class Tree:
    """A house whose domains are asked by number; watts by board and server as in the house."""

    house: House

    @cached_property
    def ratings(self) -> list[float]:
        """Continuous watts of each domain."""
        return [domain.rating_watts for domain in self.house.domains]

    def domains(self) -> range:
        """All of them."""
        return range(len(self.house.domains))

    def efficiency(self, domain: int) -> float:
        """The lowest in use between the domain and its servers."""
        return self.house.domains[domain].efficiency

    def boards_below(self, domain: int) -> list[int]:
        """Boards fed through the domain."""
        return [board.number for board in self.house.domains[domain].all_boards]

    def load(self, domain: int, gpus: Sequence[float], hosts: Sequence[float]) -> float:
        """AC watts at a breaker when boards and servers, DC, draw exactly this."""
        here = self.house.domains[domain]
        dc = sum(gpus[board.number] for board in here.all_boards)
        dc += sum(hosts[server.number] for server in here.all_servers)
        return dc / here.efficiency + here.external

    def worst(self, domain: int, caps: Sequence[float]) -> float:
        """AC watts with every board at its cap, as far over it as boards go, hosts at worst."""
        return self.house.domains[domain].worst(caps)

    def gpu_part(self, domain: int, caps: Sequence[float]) -> float:
        """AC watts that these caps bring at a breaker at worst, hosts and external load aside."""
        return self.house.domains[domain].boards_worst(caps)

    def floor_case(self, domain: int, guaranteed: Sequence[float]) -> float:
        """I1: guaranteed caps, and the largest max(1, 5 %) servers at their default limits."""
        return self.house.domains[domain].floor_case(guaranteed)

    def survives(self, domain: int, watts: float, heat: float, away_seconds: float) -> bool:
        """I2: whether the breaker bears a load for as long as nobody lowers it."""
        return self.house.domains[domain].survives(watts, heat, away_seconds)

    def heated(self, domain: int, heat: float, watts: float) -> float:
        """Breaker heat a second later."""
        here = self.house.domains[domain]
        ratio = watts / here.rating_watts
        if ratio <= 1.0:
            return heat * math.exp(-1.0 / COOLING_SECONDS)
        return heat + 1.0 / here.trip.seconds(ratio)


def bare_house(
    tree: DomainTree,
    domain_of_node: Iterable[int],
    node_of_gpu: Iterable[int],
    defaults: Iterable[float],
    hosts: Iterable[float],
    host_units: Iterable[bool] | None = None,
) -> Tree:
    """The bare numbers of a tree and of what hangs below it; hosts in DC watts."""
    domains = [
        Domain(
            number,
            feed_watts=float(tree.rating_watts[number]),
            imbalance=float(tree.phase_imbalance[number]),
            own_efficiency=float(tree.supply_efficiency[number]),
            external_watts=float(tree.external_watts[number]),
            trip=Trip(curve.a_seconds, curve.b_exponent),
        )
        for number, curve in enumerate(tree.curves)
    ]
    for domain, parent in zip(domains, tree.parent, strict=True):
        if parent >= 0:
            domains[int(parent)].children.append(domain)
    dc, above = [float(w) for w in hosts], [domains[int(d)] for d in domain_of_node]
    units = [True] * len(dc) if host_units is None else [bool(unit) for unit in host_units]
    servers = [Server(number, [], 0.0, unit) for number, unit in enumerate(units)]
    for number, (node, default) in enumerate(zip(node_of_gpu, defaults, strict=True)):
        servers[int(node)].boards.append(Board(number, float(default)))
    for server, domain in zip(servers, above, strict=True):
        domain.servers.append(server)
    for server, domain in zip(servers, above, strict=True):
        server.host_watts = dc[server.number] / domain.efficiency
    roots = [domain for domain, parent in zip(domains, tree.parent, strict=True) if parent < 0]
    return Tree(House(roots))


def house_of(topology: Topology) -> Tree:
    """The bare numbers of a topology."""
    return bare_house(
        topology.tree,
        topology.domain_of_node,
        topology.node_of_gpu,
        topology.default_limit_watts,
        topology.node_worst_watts,
    )


def fault_seconds(settings: PowerSettings) -> float:
    """How long nobody may lower anything, by the settings' own figures or by the design's."""
    own = settings.lease_ttl_ms / 1000.0 + settings.actuation_seconds + settings.settle_seconds
    return max(own, LEAST_FAULT_SECONDS)


def due_of(topology: Topology, active: Sequence[bool]) -> Due:
    """What the topology owes to each board whose cap is decided."""
    gangs: dict[int, list[int]] = {}
    for number, gang in enumerate(topology.gang.tolist()):
        if gang >= 0:
            gangs.setdefault(gang, []).append(number)
    return Due(
        active=list(active),
        guaranteed=topology.guaranteed_watts.tolist(),
        floor=topology.floor_watts.tolist(),
        request=topology.request_watts.tolist(),
        most=topology.default_limit_watts.tolist(),
        priority=topology.priority.tolist(),
        gangs=list(gangs.values()),
    )
