"""The accepted power tree: which breaker feeds a node, and what each breaker bears.

accepted PowerDomain specs ──┬─> PowerGrid ──> controller (topology, taints), planner (snapshot)
newest claims of members ────┘

The one home of these facts. Built once for a set of specs, pure, and the same for everybody who
asks; whether a spec is acceptable is the controller's to judge. Limits come from accepted specs
alone; servers that only a spec that does not run claims count where their power flows (I1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from wattpack.api.breaker_and_feeds import BreakerSpec, CurvePoint, Redundancy
from wattpack.api.power_domain import Enforcement, PowerDomain, PowerDomainSpec
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.masks import some
from wattpack.power.domain_tree import (
    BreakerCurve,
    DomainTree,
    FloatArray,
    ReserveFeeds,
    efficiency_downstream,
    topological_order,
)
from wattpack.power.member_claims import MemberClaim, MemberIndex, anchors
from wattpack.power.trip_curves import RACK_THERMAL, SWITCHBOARD_THERMAL, cold_points

__all__ = ["Feeding", "PowerGrid", "accepted", "accepted_domains", "rating_after_feed_loss"]

_NO_CLAIMS: Mapping[str, MemberClaim] = MappingProxyType({})

# I2: r_max = min(1.5, 0.8 * lowest short-time or magnetic pick-up), and no more than a curve tells.
_HIGHEST_LOAD_RATIO = 1.5
_PICKUP_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Feeding:
    """Which breaker feeds a node.

    Attributes:
        domain: The deepest domain that claims the node, ties by name; empty for none.
        strangers: Domains of other branches that claim it too: then nobody knows, and the node is
            to be refused by name. Sorted.
        through: Domains between that do not run as they are written: only by their claims does the
            node count there. With no domain: no accepted breaker above them is known. Sorted.
    """

    domain: str
    strangers: tuple[str, ...] = ()
    through: tuple[str, ...] = ()

    def require_one_branch(self, node: str) -> str:
        """The domain, if no other branch claims the node.

        Raises:
            InputError: naming the node and the domains.
        """
        if self.strangers:
            claims = [self.domain, *self.strangers]
            raise InputError(f"node {node}", "members of one branch of the power tree", claims)
        return self.domain


@dataclass(frozen=True, slots=True)
class PowerGrid:
    """The power tree of a set of specs.

    Attributes:
        specs: By name.
        tree: The same as arrays, parents first.
        efficiency: DC over AC, the lowest of a domain and everything below it, (n_domains,).
        cut: Why a domain's link to its parent does not count, by domain.
    """

    specs: Mapping[str, PowerDomainSpec]
    tree: DomainTree
    efficiency: FloatArray
    cut: Mapping[str, str]
    _position: Mapping[str, int]
    _paths: tuple[tuple[str, ...], ...]
    _members: MemberIndex
    _open: _OpenClaims

    @classmethod
    def of(
        cls, specs: Mapping[str, PowerDomainSpec], claims: Mapping[str, MemberClaim] = _NO_CLAIMS
    ) -> PowerGrid:
        """The grid of specs that fit together.

        Args:
            specs: What runs, by name.
            claims: What the newest specs say of members, by name, also of domains that do not run.

        Raises:
            InputError: for an unknown parent or a cycle; names the domain.
        """
        return _build(specs, {name: spec.parent for name, spec in specs.items()}, {}, claims)

    @classmethod
    def of_read(
        cls, specs: Mapping[str, PowerDomainSpec], claims: Mapping[str, MemberClaim] = _NO_CLAIMS
    ) -> PowerGrid:
        """The grid of specs that were read one by one, and so perhaps at two moments.

        A link to a parent that is not there, or in a circle, is cut: the breaker still limits what
        hangs below it. Arguments as in ``of``.
        """
        parents = {name: spec.parent for name, spec in specs.items()}
        cut: dict[str, str] = {}
        for name, parent in parents.items():
            if parent is not None and parent not in parents:
                cut[name] = f"its parent {parent} is not an accepted domain"
            elif _leads_back(name, parents):
                cut[name] = f"its parent {parent} hangs below it"
        kept = {n: None if n in cut else p for n, p in parents.items()}
        return _build(specs, kept, cut, claims)

    def feeding(self, node: str, labels: Mapping[str, str]) -> Feeding:
        """Which breaker feeds a node of that name and labels.

        What an accepted domain claims stays in its branch: a claim that does not run never takes
        it to another, but may say that it hangs deeper.
        """
        claims = self._members.claiming(node, labels)
        opened = self._open.index.claiming(node, labels)
        if not opened:
            return self._settled(claims, ())
        leads = {name: self._open.anchors[name] for name in opened}
        if claims:
            deepest = self._deepest(claims)
            # A domain that runs keeps its members as they were accepted.
            leads = {
                name: lead
                for name, lead in leads.items()
                if name not in self.specs and lead != deepest and deepest in self.path(lead)
            }
        found = claims.union(lead for lead in leads.values() if lead)
        domain = self._deepest(found) if found else ""
        return self._settled(found, sorted(n for n, lead in leads.items() if lead == domain))

    def _settled(self, claims: Collection[str], through: Sequence[str]) -> Feeding:
        if not claims:
            return Feeding("", (), tuple(through))
        domain = self._deepest(claims)
        strangers = set(claims).difference(self.path(domain))
        return Feeding(domain, tuple(sorted(strangers)), tuple(through))

    def _deepest(self, domains: Collection[str]) -> str:
        return min(domains, key=lambda name: (-len(self.path(name)), name))

    def path(self, domain: str) -> tuple[str, ...]:
        """The domain and all that feed it, nearest first; empty for none."""
        return self._paths[self._position[domain]] if domain else ()

    def index(self, domain: str) -> int:
        """The domain's position in the tree's arrays."""
        return self._position[domain]

    def path_efficiency(self, domain: str) -> float:
        """DC over AC at the breaker of the domain's path where it is lowest; 1 without a domain."""
        return min((float(self.efficiency[self.index(n)]) for n in self.path(domain)), default=1.0)

    def worst_host_watts(self, feeding: Feeding) -> float:
        """Worst draw of one server without its GPUs, AC where it is highest on its path.

        The larger of what its domain declares and what those declare through which it counts
        there: a row that has no servers of its own declares nothing for one.
        """
        domain = feeding.domain
        if not domain:
            return 0.0
        at_domain = self.host_watts(feeding)
        return at_domain * float(self.efficiency[self.index(domain)]) / self.path_efficiency(domain)

    def host_watts(self, feeding: Feeding) -> float:
        """The same in AC watts at the breaker of the server's own domain."""
        declared = [self._open.host_worst_watts[name] for name in feeding.through]
        return max(self.specs[feeding.domain].non_gpu_per_node.worst_watts, *declared, 0.0)

    def host_line(self, feeding: Feeding) -> tuple[float, float] | None:
        """That draw over what its GPUs draw: AC watts at rest, AC watts a GPU watt; None: no line.

        Servers that count here through a spec that does not run have none.
        """
        told = self.specs[feeding.domain].non_gpu_per_node
        if feeding.through or told.worst_at_rest_watts is None:
            return None
        return told.worst_at_rest_watts, told.watts_per_gpu_watt

    def host_idle_watts(self, feeding: Feeding) -> float:
        """The same at rest, 0 where it is not declared."""
        return self.specs[feeding.domain].non_gpu_per_node.idle_watts

    def rating_watts(self, domain: str) -> float:
        """Continuous rating after feed loss over phase imbalance, AC watts."""
        position = self.index(domain)
        return float(self.tree.rating_watts[position] / self.tree.phase_imbalance[position])


@dataclass(frozen=True, slots=True)
class _OpenClaims:
    """Claims that say something else than what runs.

    Attributes:
        index: Who claims a node.
        anchors: The nearest domain that runs, by claim; empty for none.
        host_worst_watts: Of one server without its GPUs, AC, by claim.
    """

    index: MemberIndex
    anchors: Mapping[str, str]
    host_worst_watts: Mapping[str, float]


def accepted(domain: PowerDomain) -> PowerDomain | None:
    """The domain with the spec that runs; None if none was ever accepted."""
    spec = domain.status.accepted_spec
    return None if spec is None else domain.model_copy(update={"spec": spec})


def accepted_domains(bodies: Iterable[JsonObject]) -> dict[str, PowerDomain]:
    """By name, what runs of PowerDomain objects; what cannot be read runs nowhere either.

    The newest spec is not looked at: it may be one that was refused.
    """
    found: dict[str, PowerDomain] = {}
    for body in bodies:
        spec = (body.get("status") or {}).get("acceptedSpec")
        if not spec:
            continue
        try:
            domain = PowerDomain.read({**body, "spec": spec})
        except InputError:
            continue
        found[domain.name] = domain
    return found


def rating_after_feed_loss(rating_watts: float, redundancy: Redundancy) -> float:
    """What the load may draw so that it survives every loss that the redundancy declares, watts.

    With KofN, k of the N feeds carry all: N - k may be lost, and any single one at least, so k
    feeds' rating counts, never that of more than N - 1. With 2N either feed carries all. A domain
    of one feed has its rating: when that feed is lost nothing is left to limit.

    Args:
        rating_watts: Continuous rating of one feed.
        redundancy: How the domain is fed.

    Source: docs/architecture.md, Words: L, after every loss that the redundancy declares.
    """
    if redundancy.mode != "KofN":
        return rating_watts
    return rating_watts * min(redundancy.required_feeds, redundancy.feeds - 1)


def _build(
    specs: Mapping[str, PowerDomainSpec],
    parents: Mapping[str, str | None],
    cut: Mapping[str, str],
    claims: Mapping[str, MemberClaim],
) -> PowerGrid:
    names = list(specs)
    order = topological_order(names, [parents[name] for name in names])
    chosen = {names[i]: specs[names[i]] for i in order}
    tree = _tree(chosen, parents)
    return PowerGrid(
        specs=MappingProxyType(chosen),
        tree=tree,
        efficiency=efficiency_downstream(tree),
        cut=MappingProxyType(dict(cut)),
        _position={name: i for i, name in enumerate(tree.names)},
        _paths=tuple(tuple(tree.names[i] for i in tree.ancestors(d)) for d in range(len(tree))),
        _members=MemberIndex({name: spec.members for name, spec in chosen.items()}),
        _open=_open_claims(chosen, claims),
    )


def _open_claims(
    specs: Mapping[str, PowerDomainSpec], claims: Mapping[str, MemberClaim]
) -> _OpenClaims:
    differing = {
        name: claim
        for name, claim in claims.items()
        if name not in specs or claim.members != specs[name].members
    }
    above = anchors(claims, specs) if differing else {}
    return _OpenClaims(
        MemberIndex({name: claim.members for name, claim in differing.items()}),
        {name: above[name] for name in differing},
        {name: claim.host_worst_watts for name, claim in differing.items()},
    )


def _tree(specs: Mapping[str, PowerDomainSpec], parents: Mapping[str, str | None]) -> DomainTree:
    position = {name: i for i, name in enumerate(specs)}
    above = [parents[name] for name in specs]
    rating = _floats(rating_after_feed_loss(s.rating_watts, s.redundancy) for s in specs.values())
    return DomainTree(
        names=tuple(specs),
        parent=np.array([-1 if p is None else position[p] for p in above], dtype=np.int64),
        rating_watts=rating,
        external_watts=_floats(
            sum(e.worst_watts for e in s.external_loads) for s in specs.values()
        ),
        curves=tuple(_curve(s) for s in specs.values()),
        max_load_ratio=_floats(_highest_load_ratio(s) for s in specs.values()),
        cooling_seconds=_floats(s.breaker.cooling_seconds for s in specs.values()),
        phase_imbalance=_floats(s.phase_imbalance for s in specs.values()),
        supply_efficiency=_floats(s.supply_efficiency for s in specs.values()),
        max_raise_watts_per_second=rating
        * _floats(s.max_raise_fraction_per_second for s in specs.values()),
        enforce=np.array(
            [s.enforcement == Enforcement.ENFORCE for s in specs.values()], dtype=np.bool_
        ),
        heat_budget=_floats(s.breaker.heat_budget_ratio for s in specs.values()),
        reserve=_reserve(list(specs.values()), rating),
    )


def _reserve(specs: Sequence[PowerDomainSpec], rating_watts: FloatArray) -> ReserveFeeds | None:
    used = np.array([s.redundancy.use_reserve for s in specs], dtype=np.bool_)
    if not some(used):
        return None
    feeds = _floats(2 if s.redundancy.mode == "2N" else s.redundancy.feeds for s in specs)
    feed_watts = _floats(s.rating_watts for s in specs)
    shares = (s.redundancy.feed_share for s in specs)
    age = _floats(0.0 if share is None else share.max_age_seconds for share in shares)
    return ReserveFeeds(
        used=used,
        all_feeds_watts=np.where(used, feeds * feed_watts, rating_watts),
        feed_watts=feed_watts,
        max_age_seconds=np.where(used, age, 0.0),
    )


def _floats(values: Iterable[float]) -> FloatArray:
    return np.fromiter(values, dtype=np.float64)


def _highest_load_ratio(spec: PowerDomainSpec) -> float:
    """r_max of I2: what is borne for no time at all."""
    breaker = spec.breaker
    curves = (breaker.points, spec.redundancy.overload_curve)
    told = [curve[-1].load_ratio for curve in curves if curve]
    return min(_HIGHEST_LOAD_RATIO, _PICKUP_SHARE * breaker.short_time_pickup_ratio, *told)


def _curve(spec: PowerDomainSpec) -> BreakerCurve:
    curve, points = _breaker_curve(spec.breaker), spec.redundancy.overload_curve
    return replace(curve, feed=_curve_through(points)) if points else curve


def _breaker_curve(breaker: BreakerSpec) -> BreakerCurve:
    if breaker.curve == "RackThermal":
        return RACK_THERMAL
    if breaker.curve == "SwitchboardThermal":
        return SWITCHBOARD_THERMAL
    curve = _curve_through(breaker.points)
    if breaker.thermal_cold_curve:
        return replace(curve, trip_seconds=cold_points(curve.trip_seconds))
    return curve


def _curve_through(points: Sequence[CurvePoint]) -> BreakerCurve:
    # The fit is unused beside points; any valid constants do.
    ratios, seconds = zip(*((p.load_ratio, p.trip_seconds) for p in points), strict=True)
    return BreakerCurve(1.0, 1.0, ratios, seconds)


def _leads_back(name: str, parents: Mapping[str, str | None]) -> bool:
    """Whether the way up from a domain comes back to it."""
    seen: set[str] = set()
    above = parents[name]
    while above is not None and above in parents and above not in seen:
        if above == name:
            return True
        seen.add(above)
        above = parents[above]
    return False
