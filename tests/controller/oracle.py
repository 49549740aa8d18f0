"""The arithmetic of the Promises in docs/architecture.md, written down again in plain loops.

It judges the controller, so it takes nothing of its code: a house is read off as bare numbers, and
every sum, trip time and order below is worked out here from the text. Slow and obvious on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.tick_values import PowerSettings, Topology
from wattpack.power.domain_tree import DomainTree

OVERSHOOT = 1.05
GAIN_SPREAD = 0.09
NODES_AT_DEFAULT = 0.05
HEAT_LIMIT, PARENT_HEAT_LIMIT = 0.5, 0.25
HIGHEST_RATIO = 1.5
# Hot curves at their lower tolerance edge, t = a (r^2 - 1)^-b: 80 % of the times quoted for a rack
# breaker and for a main switchboard.
RACK_CURVE = (0.8 * 55.6, 1.864)
SWITCHBOARD_CURVE = (0.8 * 30.3, 0.605)
COOLING_SECONDS = 600.0
# Lease, actuation, settling: the least that the Promises let a controller be away at a jump.
LEAST_FAULT_SECONDS = 4.0 + 0.5 + 1.3


@dataclass(frozen=True)
class House:
    """Bare numbers: who hangs where, and what each may draw.

    Attributes:
        parents: Domain above each domain, -1 for none.
        ratings: Continuous watts of each domain.
        externals: Declared watts directly below each domain.
        efficiencies: DC over AC of each domain.
        curves: (a, b) of each domain's breaker.
        domain_of_node: Domain directly above each server.
        node_of_gpu: Server of each GPU.
        defaults: Watts of each GPU after a reboot.
        hosts: Watts of each server without GPUs, at worst.
    """

    parents: list[int]
    ratings: list[float]
    externals: list[float]
    efficiencies: list[float]
    curves: list[tuple[float, float]]
    domain_of_node: list[int]
    node_of_gpu: list[int]
    defaults: list[float]
    hosts: list[float]

    def path(self, domain: int) -> list[int]:
        """The domain and everything that feeds it."""
        above = [domain]
        while self.parents[above[-1]] >= 0:
            above.append(self.parents[above[-1]])
        return above

    @cached_property
    def nodes_below(self) -> list[list[int]]:
        """Servers fed through each domain."""
        every = range(len(self.parents))
        return [[n for n, d in enumerate(self.domain_of_node) if e in self.path(d)] for e in every]

    @cached_property
    def gpus_below(self) -> list[list[int]]:
        """GPUs fed through each domain."""
        return [[g for g, n in enumerate(self.node_of_gpu) if n in ns] for ns in self.nodes_below]

    @cached_property
    def domains_below(self) -> list[list[int]]:
        """Each domain and everything that it feeds."""
        every = range(len(self.parents))
        return [[d for d in every if e in self.path(d)] for e in every]

    def domains(self) -> range:
        """All of them."""
        return range(len(self.parents))

    def efficiency(self, domain: int) -> float:
        """The lowest in use between the domain and its servers."""
        return min(self.efficiencies[d] for d in self.domains_below[domain])

    def external(self, domain: int) -> float:
        """Declared load at the domain, AC: of those below with its own losses on the way."""
        dc = sum(self.externals[d] * self.efficiency(d) for d in self.domains_below[domain])
        return dc / self.efficiency(domain)

    def load(self, domain: int, gpus: Sequence[float], hosts: Sequence[float]) -> float:
        """AC watts at a breaker when boards and servers draw exactly this."""
        dc = sum(gpus[g] for g in self.gpus_below[domain])
        dc += sum(hosts[n] for n in self.nodes_below[domain])
        return dc / self.efficiency(domain) + self.external(domain)

    def worst(self, domain: int, caps: Sequence[float]) -> float:
        """AC watts with every board at its cap, as far over it as boards go, hosts at worst."""
        below = self.gpus_below[domain]
        gain = 1.0 + GAIN_SPREAD / math.sqrt(max(len(below), 1))
        gpus = [cap * OVERSHOOT * gain for cap in caps]
        return self.load(domain, gpus, self.hosts)

    def gpu_part(self, domain: int, caps: Sequence[float]) -> float:
        """AC watts that these caps bring at a breaker at worst, hosts and external load aside."""
        below = self.gpus_below[domain]
        gain = 1.0 + GAIN_SPREAD / math.sqrt(max(len(below), 1))
        return sum(caps[g] for g in below) * OVERSHOOT * gain / self.efficiency(domain)

    def floor_case(self, domain: int, guaranteed: Sequence[float]) -> float:
        """I1: guaranteed caps, and the largest max(1, 5 %) servers at their default limits."""
        below = self.nodes_below[domain]
        jumps = dict.fromkeys(below, 0.0)
        for g, n in enumerate(self.node_of_gpu):
            if n in jumps:
                jumps[n] += self.defaults[g] - guaranteed[g]
        count = max(1, math.ceil(NODES_AT_DEFAULT * len(below)))
        largest = sorted(below, key=lambda n: -jumps[n])[:count]
        caps = [
            self.defaults[g] if n in largest else guaranteed[g]
            for g, n in enumerate(self.node_of_gpu)
        ]
        return self.worst(domain, caps)

    def trip_seconds(self, domain: int, ratio: float) -> float:
        """How long a hot breaker bears a load ratio."""
        a, b = self.curves[domain]
        return math.inf if ratio <= 1.0 else float(a * (ratio**2 - 1.0) ** -b)

    def survives(self, domain: int, watts: float, heat: float, fault_seconds: float) -> bool:
        """I2: whether the breaker bears a load for as long as nobody lowers it."""
        ratio = watts / self.ratings[domain]
        limit = PARENT_HEAT_LIMIT if domain in self.parents else HEAT_LIMIT
        if ratio <= 1.0:
            return True
        heated = heat + fault_seconds / self.trip_seconds(domain, ratio)
        return ratio <= HIGHEST_RATIO + 1e-9 and heated <= limit + 1e-9

    def heated(self, domain: int, heat: float, watts: float) -> float:
        """Breaker heat a second later."""
        ratio = watts / self.ratings[domain]
        if ratio <= 1.0:
            return heat * math.exp(-1.0 / COOLING_SECONDS)
        return heat + 1.0 / self.trip_seconds(domain, ratio)


def bare_house(
    tree: DomainTree,
    domain_of_node: Iterable[int],
    node_of_gpu: Iterable[int],
    defaults: Iterable[float],
    hosts: Iterable[float],
) -> House:
    """The bare numbers of a tree and of what hangs below it."""
    ratings = zip(tree.rating_watts, tree.phase_imbalance, strict=True)
    return House(
        parents=[int(p) for p in tree.parent],
        ratings=[float(watts) / float(imbalance) for watts, imbalance in ratings],
        externals=[float(w) for w in tree.external_watts],
        efficiencies=[float(e) for e in tree.supply_efficiency],
        curves=[(c.a_seconds, c.b_exponent) for c in tree.curves],
        domain_of_node=[int(d) for d in domain_of_node],
        node_of_gpu=[int(n) for n in node_of_gpu],
        defaults=[float(w) for w in defaults],
        hosts=[float(w) for w in hosts],
    )


def house_of(topology: Topology) -> House:
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


def unfair_pairs(
    house: House,
    caps: Sequence[float],
    requests: Sequence[float],
    floors: Sequence[float],
    priorities: Sequence[int],
    binding: Sequence[int],
) -> list[tuple[int, int]]:
    """I5: (held back, favoured) boards of one binding domain, the less important above its floor.

    A watt and a half of rounding is no favour: boards take whole watts.
    """
    pairs = []
    for short, domain in enumerate(binding):
        if domain < 0 or caps[short] >= requests[short] - 1.5:
            continue
        for other in house.gpus_below[domain]:
            less = priorities[other] < priorities[short]
            if less and caps[other] > floors[other] + 1.5:
                pairs.append((short, other))
    return pairs
