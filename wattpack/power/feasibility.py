"""The arithmetic of I1 and I2 on a power tree: what could be drawn at worst, and what may be.

Every sum is kept in DC-equivalent watts while it runs up the tree and divided by the domain's own
efficiency at the end, so that a supply or UPS between two domains counts at both. With n GPUs below
a domain, its worst AC load at given caps is

    sum(caps) * o * g_n / eta + sum(worst servers without GPUs) / eta + external

with o = 1.05 and g_n = 1 + 0.09 / sqrt(n) (docs/architecture.md, Words).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from wattpack.compiled import AVAILABLE
from wattpack.errors import SafetyError
from wattpack.masks import some
from wattpack.power.compiled_sums import sums_below, sums_below_some
from wattpack.power.domain_tree import (
    BOARD_GAIN_SPREAD,
    OVERSHOOT_RATIO,
    BoolArray,
    DomainTree,
    FloatArray,
    IntArray,
    efficiency_downstream,
)
from wattpack.power.host_line import HostLines
from wattpack.power.trip_curves import CurveBank

__all__ = [
    "LoadTree",
    "guaranteed_case_watts",
    "largest_nodes",
    "require_guaranteed_case",
    "size_guaranteed_caps",
    "size_where_feasible",
    "survivable_watts",
    "worst_watts",
]

# Share of a domain's nodes that I1 counts at their default limits.
NODES_AT_DEFAULT_SHARE = 0.05


class LoadTree:
    """A tree with the servers and GPUs that hang below it, ready for sums over all domains.

    Attributes:
        tree: The domains.
        n_gpus: Number of GPUs.
        n_nodes: Number of servers.
        node_of_gpu: (n_gpus,).
        gpu_domains: Domain of each depth above each GPU, n_domains for none, (n_depths, n_gpus).
        node_domains: The same for servers, (n_depths, n_nodes).
        rating_watts: Continuous rating over phase imbalance, (n_domains,).
        efficiency: DC over AC, never above that of a domain below, (n_domains,).
        gpu_factor: AC watts per watt of cap, overshoot and board spread included, (n_domains,).
        external_watts: Declared external load below, AC at the domain, (n_domains,).
        gpus_below, nodes_below: How many, (n_domains,) each.
        has_children: (n_domains,).
        families_upwards: Domains that feed others, those that they feed, and of each of these the
            position of its parent among the former; a level each, from the leaves up.
        curves: Trip curves.
    """

    def __init__(self, tree: DomainTree, domain_of_node: IntArray, node_of_gpu: IntArray) -> None:
        self.tree = tree
        self.n_nodes = len(domain_of_node)
        self.n_gpus = len(node_of_gpu)
        self.node_of_gpu = node_of_gpu
        self._n = len(tree)
        ancestors = _ancestors_by_depth(tree)
        self.node_domains = ancestors[:, domain_of_node]
        self.gpu_domains = self.node_domains[:, node_of_gpu]
        # A domain above everybody is summed by itself: adding all to one bin is slow.
        shared = (self.node_domains == self.node_domains[:, :1]).all(axis=1)
        self._above_all = self.node_domains[shared, :1].ravel()
        self._node_bins = np.ascontiguousarray(self.node_domains[~shared])
        self._gpu_bins = np.ascontiguousarray(self.gpu_domains[~shared])
        self.rating_watts = tree.rating_watts / tree.phase_imbalance
        self.efficiency = efficiency_downstream(tree)
        self.gpus_below = self.sum_gpus(np.ones(self.n_gpus))
        spread = 1.0 + BOARD_GAIN_SPREAD / np.sqrt(np.maximum(self.gpus_below, 1.0))
        self.gpu_factor = OVERSHOOT_RATIO * spread / self.efficiency
        external_dc = tree.sum_up(tree.external_watts * self.efficiency)
        self.external_watts = external_dc / self.efficiency
        self.nodes_below = self.sum_nodes(np.ones(self.n_nodes))
        self.has_children = np.isin(np.arange(self._n), tree.parent)
        self.families_upwards = _families_upwards(tree)
        self.curves = CurveBank(tree.curves)

    def sum_gpus(self, values: FloatArray) -> FloatArray:
        """Per domain the sum over all GPUs below it, (n_gpus,) -> (n_domains,)."""
        return self._sum(self._gpu_bins, values)

    def sum_of(self, gpus: IntArray, values: FloatArray) -> FloatArray:
        """The same of some GPUs, (k,) rising and (k,) -> (n_domains,)."""
        if AVAILABLE:
            return sums_below_some(self._gpu_bins, gpus, values, self._above_all, self._n)
        return self._sum(self._gpu_bins.take(gpus, axis=1), values)

    def sum_nodes(self, values: FloatArray) -> FloatArray:
        """Per domain the sum over all servers below it, (n_nodes,) -> (n_domains,)."""
        return self._sum(self._node_bins, values)

    def _sum(self, bins: IntArray, values: FloatArray) -> FloatArray:
        if AVAILABLE:
            return sums_below(bins, values, self._above_all, self._n)
        return sums_by_arrays(bins, values, self._above_all, self._n)

    def any_gpu_below(self, gpus: BoolArray) -> BoolArray:
        """Whether any GPU below each domain is marked, (n_gpus,) -> (n_domains,)."""
        if not some(gpus):
            return np.zeros(self._n, dtype=np.bool_)
        return np.asarray(self.sum_gpus(gpus.astype(np.float64)) > 0.0)

    def only_where(self, domains: BoolArray) -> LoadTree:
        """The same members with no rating where the domains are not marked, (n_domains,)."""
        limited = copy.copy(self)
        limited.rating_watts = np.where(domains, self.rating_watts, np.inf)
        return limited

    def rated_at(self, rating_watts: FloatArray) -> LoadTree:
        """The same members below other ratings, over phase imbalance, (n_domains,)."""
        rated = copy.copy(self)
        rated.rating_watts = rating_watts
        return rated

    def any_above_gpu(self, domains: BoolArray) -> BoolArray:
        """Whether any domain above each GPU is marked, (n_domains,) -> (n_gpus,)."""
        if not some(domains):
            return np.zeros(self.n_gpus, dtype=np.bool_)
        marked = np.zeros(self._n + 1, dtype=np.bool_)
        marked[:-1] = domains
        return np.asarray(marked.take(self.gpu_domains).any(axis=0))

    def lowest_above_gpu(self, domains: BoolArray) -> IntArray:
        """The marked domain nearest above each GPU, -1 for none, (n_domains,) -> (n_gpus,)."""
        marked = np.append(domains, False).take(self.gpu_domains)
        nearest = len(marked) - 1 - marked[::-1].argmax(axis=0)
        found = self.gpu_domains[nearest, np.arange(self.n_gpus)]
        return np.where(marked.any(axis=0), found, -1)


def sums_by_arrays(
    bins: IntArray, values: FloatArray, above_all: IntArray, n_domains: int
) -> FloatArray:
    """``compiled_sums.sums_below`` in numpy."""
    # One after the other in both, so that a domain's sum does not depend on where it is made.
    repeated = values if len(bins) == 1 else np.concatenate((values[:0], *[values] * len(bins)))
    total = np.bincount(bins.ravel(), repeated, n_domains + 1).astype(np.float64, copy=False)
    if len(values) and len(above_all):
        total[above_all] = values.cumsum()[-1]
    return total[:n_domains]


def _ancestors_by_depth(tree: DomainTree) -> IntArray:
    """Per depth and domain the ancestor (or itself) at that depth, n_domains for none."""
    depth = tree.depths()
    ancestors = np.full((int(depth.max(initial=0)) + 1, len(tree)), len(tree), dtype=np.int64)
    for domain, parent in enumerate(tree.parent):
        if parent >= 0:
            ancestors[:, domain] = ancestors[:, parent]
        ancestors[depth[domain], domain] = domain
    return ancestors


def _families_upwards(tree: DomainTree) -> list[tuple[IntArray, IntArray, IntArray]]:
    """Parents, children and each child's position among the parents, from the leaves up."""
    depth = tree.depths()
    families = []
    for level in range(int(depth.max(initial=0)), 0, -1):
        children = np.flatnonzero(depth == level)
        parents, owner = np.unique(tree.parent[children], return_inverse=True)
        families.append((parents, children, owner))
    return families


def worst_watts(load: LoadTree, caps_watts: FloatArray, node_worst_watts: FloatArray) -> FloatArray:
    """AC load of each domain with every GPU at its cap and servers at their worst, (n_domains,)."""
    rest = load.sum_nodes(node_worst_watts) / load.efficiency + load.external_watts
    return load.sum_gpus(caps_watts) * load.gpu_factor + rest


def guaranteed_case_watts(
    load: LoadTree,
    guaranteed_watts: FloatArray,
    default_watts: FloatArray,
    node_worst_watts: FloatArray,
    fixed_nodes: BoolArray,
    lines: HostLines | None = None,
) -> FloatArray:
    """AC load of I1's worst case, (n_domains,).

    Every GPU is at its guaranteed cap, the domain's largest max(1, 5 %) nodes at their default
    limits, and so are all nodes that nothing holds down. Where a line is declared, what a server
    draws beside its GPUs is counted by what these hold.

    Args:
        load: Tree and members.
        guaranteed_watts: (n_gpus,).
        default_watts: (n_gpus,).
        node_worst_watts: Servers without GPUs, DC-equivalent, (n_nodes,).
        fixed_nodes: Uncontrolled or without a host unit: at default in any case, (n_nodes,).
        lines: What servers draw beside GPUs that are held down; None: their worst.
    """
    caps = np.where(fixed_nodes[load.node_of_gpu], default_watts, guaranteed_watts)
    gap = np.maximum(default_watts - caps, 0.0)
    node_gap = np.bincount(load.node_of_gpu, weights=gap, minlength=load.n_nodes).astype(np.float64)
    at_default = load.gpu_factor * largest_nodes(load, node_gap)
    if lines is None:
        return worst_watts(load, caps, node_worst_watts) + at_default
    hosts = lines.worst_watts(node_worst_watts, caps, load.node_of_gpu)
    freed = lines.worst_watts(node_worst_watts, caps + gap, load.node_of_gpu) - hosts
    at_default += largest_nodes(load, freed) / load.efficiency
    return worst_watts(load, caps, hosts) + at_default


def largest_nodes(load: LoadTree, node_gap: FloatArray) -> FloatArray:
    """Per domain the sum of its largest max(1, 5 %) nodes' values, (n_domains,)."""
    n_domains = len(load.tree)
    allowed = np.append(np.maximum(1, np.ceil(NODES_AT_DEFAULT_SHARE * load.nodes_below)), 0)
    total = np.zeros(n_domains + 1)
    positions = np.arange(load.n_nodes)
    for domains in load.node_domains:
        order = np.lexsort((-node_gap, domains))
        group = domains[order]
        first = np.searchsorted(group, group, side="left")
        chosen = positions - first < allowed[group]
        total += np.bincount(
            group[chosen], weights=node_gap[order][chosen], minlength=n_domains + 1
        )
    return total[:n_domains]


def require_guaranteed_case(load: LoadTree, case_watts: FloatArray) -> None:
    """Pass only if I1's worst case fits below every domain's continuous rating.

    Raises:
        SafetyError: naming the first domain, its worst case and its rating.
    """
    over = np.flatnonzero(case_watts > load.rating_watts + 1e-6)
    if over.size:
        worst = over[np.argmax(case_watts[over] / load.rating_watts[over])]
        raise SafetyError(
            "I1",
            f"domain {load.tree.names[worst]} could draw {case_watts[worst]:.0f} W with every GPU "
            f"at its guaranteed cap, its continuous rating is {load.rating_watts[worst]:.0f} W",
        )


def size_guaranteed_caps(  # noqa: PLR0913 - all that I1 counts
    load: LoadTree,
    min_watts: FloatArray,
    ceiling_watts: FloatArray,
    default_watts: FloatArray,
    node_worst_watts: FloatArray,
    fixed_nodes: BoolArray,
    lines: HostLines | None = None,
) -> FloatArray:
    """Guaranteed caps as high as I1 allows, at one common level below each domain, (n_gpus,).

    A level is a share of the way from the hardware minimum to the ceiling; it rises everywhere
    until a domain is full, which then holds its members while the others go on.

    Args:
        load: Tree and members.
        min_watts: Hardware minimum, (n_gpus,).
        ceiling_watts: Highest useful value (the floor), (n_gpus,).
        default_watts: (n_gpus,).
        node_worst_watts: Servers without GPUs, DC-equivalent, (n_nodes,).
        fixed_nodes: Nodes that count at their default limits, (n_nodes,).
        lines: As in ``guaranteed_case_watts``.

    Raises:
        SafetyError: if not even the hardware minimum fits; names the domain and the watts.
    """
    at_minimum = guaranteed_case_watts(
        load, min_watts, default_watts, node_worst_watts, fixed_nodes, lines
    )
    require_guaranteed_case(load, at_minimum)
    span = np.maximum(ceiling_watts - min_watts, 0.0)

    def case(level: FloatArray) -> FloatArray:
        caps = min_watts + span * level
        return guaranteed_case_watts(
            load, caps, default_watts, node_worst_watts, fixed_nodes, lines
        )

    level = np.zeros(load.n_gpus)
    free = np.ones(load.n_gpus, dtype=np.bool_)
    for _ in range(len(load.tree) + 1):
        common = _highest_common_level(load, case, level, free)
        level = np.where(free, common, level)
        if common >= 1.0 or not some(free):
            break
        full = case(np.where(free, min(1.0, common + 1e-3), level)) > load.rating_watts
        held = free & load.any_above_gpu(full)
        if not some(held):
            break
        free &= ~held
    whole = np.floor(min_watts + span * level + 1e-9)
    return np.clip(whole, min_watts, np.maximum(ceiling_watts, min_watts))


def size_where_feasible(  # noqa: PLR0913 - all that I1 counts
    load: LoadTree,
    min_watts: FloatArray,
    ceiling_watts: FloatArray,
    default_watts: FloatArray,
    node_worst_watts: FloatArray,
    fixed_nodes: BoolArray,
    lines: HostLines | None = None,
) -> FloatArray:
    """The same where I1 cannot hold everywhere, (n_gpus,).

    What hangs below a domain that not even the hardware minimum fits gets that minimum. It does the
    others no good to be lowered too: they are sized by their own breakers.
    """
    at_minimum = guaranteed_case_watts(
        load, min_watts, default_watts, node_worst_watts, fixed_nodes, lines
    )
    overfull = at_minimum > load.rating_watts
    below = load.any_above_gpu(overfull)
    return size_guaranteed_caps(
        load.only_where(~overfull),
        min_watts,
        np.where(below, min_watts, ceiling_watts),
        default_watts,
        node_worst_watts,
        fixed_nodes,
        lines,
    )


def _highest_common_level(
    load: LoadTree,
    case: Callable[[FloatArray], FloatArray],
    level: FloatArray,
    free: BoolArray,
) -> float:
    low, high = float(level[free].min(initial=1.0)), 1.0
    if np.all(case(np.where(free, 1.0, level)) <= load.rating_watts):
        return 1.0
    for _ in range(14):
        middle = (low + high) / 2.0
        fits = np.all(case(np.where(free, middle, level)) <= load.rating_watts)
        low, high = (middle, high) if fits else (low, middle)
    return low


def survivable_watts(
    load: LoadTree, heat: FloatArray, fault_seconds: float, heat_limit: FloatArray
) -> FloatArray:
    """I2: the highest AC load that each domain survives for the fault time, (n_domains,).

    The load ratio r keeps r <= r_max and heat + fault_seconds / t_trip(r) <= heat_limit. A breaker
    that is already hotter than its limit may carry its rating, which heats it no further.

    Args:
        load: Tree and members.
        heat: Breaker heat now, 1 = trip, (n_domains,).
        fault_seconds: Lease, actuation and settling at p99.9.
        heat_limit: 0.5, parents 0.25, (n_domains,).
    """
    room = heat_limit - heat
    with np.errstate(divide="ignore"):
        needed_seconds = np.where(room > 0, fault_seconds / np.maximum(room, 1e-12), np.inf)
    ratio = np.minimum(load.curves.ratio_borne_for(needed_seconds), load.tree.max_load_ratio)
    return load.rating_watts * np.maximum(ratio, 1.0)
