"""Which changed PowerDomains run: those that are understood and keep I1; others stay as they ran.

running, wanted ──> accept ──> domains that run, topology, refusals by name (I1, I8, I10)

What is broken already, because servers arrived or moved, is no reason to refuse a change that does
not make it worse: electricity cannot be refused, and a mend has to get through. For the same reason
servers of what is refused count where their power flows; a change of what runs has to bear them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from capacity.gpu_profile import GpuProfile
from controller.membership import NodeSpec, PodSpec
from controller.tick_values import Topology
from controller.topology import build_grid, topology_of
from wattpack.api import PowerDomain, PowerPolicy
from wattpack.api.power_domain import Enforcement
from wattpack.errors import SafetyError, WattpackError
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree, guaranteed_case_watts, require_guaranteed_case
from wattpack.power.member_claims import MemberClaim
from wattpack.power.power_grid import PowerGrid

__all__ = ["BREAKS_I1", "Acceptance", "DomainRefusal", "Site", "accept", "undeclared"]

BREAKS_I1 = "BreaksI1"

Domains = Mapping[str, PowerDomain]


@dataclass(frozen=True, slots=True)
class DomainRefusal:
    """Why a domain's newest spec does not run: condition ``Accepted=False``."""

    domain: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What runs after a change.

    Attributes:
        domains: Accepted objects; for a refused one the old spec.
        topology: Built from them; None if there are none.
        refusals: By domain name.
    """

    domains: tuple[PowerDomain, ...]
    topology: Topology | None
    refusals: Mapping[str, DomainRefusal]


@dataclass(frozen=True, slots=True)
class _Damage:
    """What is wrong already, whoever caused it.

    Attributes:
        excess_watts: By how much I1's worst case is above the rating, by domain.
        torn: Nodes that two branches claim.
    """

    excess_watts: Mapping[str, float] = field(default_factory=dict)
    torn: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Site:
    """What hangs below the domains, whichever of them run.

    Attributes:
        policies: Order and floors.
        nodes: Servers with their GPUs.
        pods: Work on GPUs.
        profiles: See ``topology_of``.
        claims: What the newest specs say of members, by name.
    """

    policies: Sequence[PowerPolicy]
    nodes: Sequence[NodeSpec]
    pods: Sequence[PodSpec]
    profiles: Mapping[str, GpuProfile]
    claims: Mapping[str, MemberClaim] = field(default_factory=dict)

    def grid(self, domains: Domains) -> PowerGrid:
        """The grid of a set of domains, with the servers that only others claim."""
        return build_grid(list(domains.values()), self.claims)

    def build(self, domains: Domains, *, strict: bool) -> Topology:
        """The topology of a set of domains."""
        return topology_of(
            self.grid(domains), self.policies, self.nodes, self.pods, self.profiles, strict=strict
        )

    def damage(self, domains: Domains) -> _Damage:
        """What is wrong while these domains run."""
        if not domains:
            return _Damage()
        topology = self.build(domains, strict=False)
        load, case = _guaranteed_case(topology)
        over = np.flatnonzero((case > load.rating_watts) & topology.tree.enforce)
        excess = {topology.tree.names[i]: float(case[i] - load.rating_watts[i]) for i in over}
        grid = self.grid(domains)
        torn = (n.name for n in self.nodes if grid.feeding(n.name, n.labels).strangers)
        return _Damage(excess, frozenset(torn))

    def judge(self, domains: Domains, known: _Damage) -> Topology:
        """The topology of a set of domains that makes nothing worse than it is known to be.

        Raises:
            InputError: for what is not understood, or a node in two branches.
            SafetyError: naming the domain in which I1 would fail, or fail by more.
        """
        grid = self.grid(domains)
        for node in self.nodes:
            if node.name not in known.torn:
                grid.feeding(node.name, node.labels).require_one_branch(node.name)
        topology = self.build(domains, strict=False)
        load, case = _guaranteed_case(topology)
        bearable = [known.excess_watts.get(name, 0.0) for name in topology.tree.names]
        require_guaranteed_case(load.only_where(topology.tree.enforce), case - np.array(bearable))
        return topology


def _guaranteed_case(topology: Topology) -> tuple[LoadTree, FloatArray]:
    """I1's worst case at the guaranteed caps that were sized, (n_domains,)."""
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    case = guaranteed_case_watts(
        load,
        topology.guaranteed_watts,
        topology.default_limit_watts,
        topology.node_worst_watts,
        ~topology.node_host_unit,
        topology.host_lines,
    )
    return load, case


def accept(
    old: Sequence[PowerDomain],
    new: Sequence[PowerDomain],
    site: Site,
) -> Acceptance:
    """Take over as many changed domains as are understood and keep I1; the others stay as they ran.

    Args:
        old: What runs now; empty at the start.
        new: What the operators want.
        site: What hangs below them.

    Raises:
        InputError: if nodes, pods or policies themselves cannot be understood.
    """
    running = {d.name: d for d in old}
    wanted = {d.name: d for d in new}
    refusals = {
        name: refusal
        for name, domain in wanted.items()
        if (refusal := undeclared(domain)) is not None
    }
    changed = {n: d for n, d in wanted.items() if n not in refusals and running.get(n) != d}
    chosen = {**_kept(running, wanted), **changed}
    try:
        topology = site.build(chosen, strict=True) if chosen else None
    except WattpackError:
        chosen, refused = _one_by_one(_kept(running, wanted), changed, replace(site, claims={}))
        refusals |= refused
        chosen, refused = _bearing_what_was_refused(running, chosen, site)
        refusals |= refused
        topology = site.build(chosen, strict=False) if chosen else None
    return Acceptance(tuple(chosen.values()), topology, refusals)


def _one_by_one(
    kept: Domains, changed: Domains, site: Site
) -> tuple[dict[str, PowerDomain], dict[str, DomainRefusal]]:
    """What runs with each change that makes nothing worse, and why the others are refused."""
    chosen, refusals = dict(kept), {}
    known = site.damage(kept)
    everybody = {**kept, **changed}
    # Parents first, so that a child is judged below the parent that it names.
    for name in sorted(changed, key=lambda n: (_depth(n, everybody), n)):
        try:
            site.judge({**chosen, name: changed[name]}, known)
        except WattpackError as error:
            refusals[name] = _refusal(name, error)
        else:
            chosen[name] = changed[name]
    return chosen, refusals


def _bearing_what_was_refused(
    running: Domains, chosen: Domains, site: Site
) -> tuple[dict[str, PowerDomain], dict[str, DomainRefusal]]:
    """What runs if changes of what ran have to bear the servers of what does not run, too.

    A domain that never ran is not judged again: it adds a limit, and what hangs below it draws
    through the breakers above it in either case.
    """
    changed = {n: d for n, d in chosen.items() if n in running and running[n] != d}
    if not changed or not site.claims:
        return dict(chosen), {}
    before = {**chosen, **{name: running[name] for name in changed}}
    return _one_by_one(before, changed, site)


def _kept(running: Domains, wanted: Domains) -> dict[str, PowerDomain]:
    """What ran and is still wanted, and deleted domains that a wanted one still hangs below.

    A breaker does not go away with its object: its limit holds until no domain names it.
    """
    kept = {name: domain for name, domain in running.items() if name in wanted}
    parents = [domain.spec.parent for domain in (*kept.values(), *wanted.values())]
    while parents:
        parent = parents.pop()
        if parent is None or parent in kept or parent in wanted:
            continue
        if parent in running:
            kept[parent] = running[parent]
            parents.append(running[parent].spec.parent)
    return kept


def _depth(name: str, domains: Domains) -> int:
    depth, seen = 0, {name}
    parent = domains[name].spec.parent
    while parent is not None and parent in domains and parent not in seen:
        seen.add(parent)
        depth, parent = depth + 1, domains[parent].spec.parent
    return depth


def undeclared(domain: PowerDomain) -> DomainRefusal | None:
    """Enforcing needs every load under the breaker to be known (I10)."""
    spec = domain.spec
    if spec.enforcement != Enforcement.ENFORCE:
        return None
    name = domain.name
    if not spec.load_declared_complete:
        message = "Enforce needs loadDeclaredComplete: every load is a member or declared"
        return DomainRefusal(name, "LoadNotDeclared", message)
    has_members = spec.members.node_selector or spec.members.node_names
    if has_members and spec.non_gpu_per_node.worst_watts <= 0.0:
        message = "Enforce needs nonGpuPerNode.worstWatts > 0: servers draw power beside GPUs"
        return DomainRefusal(name, "LoadNotDeclared", message)
    return None


def _refusal(name: str, error: WattpackError) -> DomainRefusal:
    reason = BREAKS_I1 if isinstance(error, SafetyError) else "NotUnderstood"
    return DomainRefusal(name, reason, str(error))
