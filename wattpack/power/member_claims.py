"""Which servers a domain claims, and where they count while it does not run (I1). Pure.

newest spec of each PowerDomain ──> MemberClaim ──> anchor: the nearest domain that runs

Loads count, limits do not: a breaker that was refused limits nothing, but what hangs below it draws
through every breaker above it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from wattpack.api.power_domain import MemberSpec, PowerDomain, PowerDomainSpec
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["MemberClaim", "MemberIndex", "anchors", "claim_of", "newest_claims"]

#: What is read of a spec; what is odd is left out from the end, rather than the servers.
_FIELDS = ("members", "parent", "nonGpuPerNode")


@dataclass(frozen=True, slots=True)
class MemberClaim:
    """What a domain's newest spec says of its servers, be it accepted or not.

    Attributes:
        parent: The domain that feeds it.
        members: The servers directly below it.
        host_worst_watts: The most that one of them draws without its GPUs, AC.
    """

    parent: str | None
    members: MemberSpec
    host_worst_watts: float


class MemberIndex:
    """Finds the domains that claim a node without asking each of them.

    Args:
        members: By domain.
    """

    def __init__(self, members: Mapping[str, MemberSpec]) -> None:
        self._members = dict(members)
        self._by_node_name: dict[str, list[str]] = defaultdict(list)
        self._by_label: dict[tuple[str, str], list[str]] = defaultdict(list)
        # A label that all of a site carry would lead from each node to all domains.
        domains = Counter(p for spec in members.values() for p in spec.node_selector.items())
        for name, spec in self._members.items():
            for node in spec.node_names:
                self._by_node_name[node].append(name)
            if spec.node_selector:
                rarest = min(spec.node_selector.items(), key=lambda pair: (domains[pair], pair))
                self._by_label[rarest].append(name)

    def claiming(self, node: str, labels: Mapping[str, str]) -> set[str]:
        """Every domain that claims a node of that name and labels."""
        found = set(self._by_node_name.get(node, ()))
        for pair in labels.items():
            found.update(n for n in self._by_label.get(pair, ()) if self._selects(n, labels))
        return found

    def _selects(self, domain: str, labels: Mapping[str, str]) -> bool:
        wanted = self._members[domain].node_selector
        return all(labels.get(key) == value for key, value in wanted.items())


def claim_of(spec: PowerDomainSpec) -> MemberClaim:
    """What the spec says of its servers."""
    return MemberClaim(spec.parent, spec.members, spec.non_gpu_per_node.worst_watts)


def newest_claims(bodies: Iterable[JsonObject]) -> dict[str, MemberClaim]:
    """By name, the newest word of PowerDomain objects on membership, where it can be read.

    A spec with a field that is not understood may still say which servers it feeds.
    """
    read = (_read(body) for body in bodies)
    return {domain.name: claim_of(domain.spec) for domain in read if domain is not None}


def _read(body: JsonObject) -> PowerDomain | None:
    spec = body.get("spec")
    if not isinstance(spec, Mapping):
        return None
    for count in range(len(_FIELDS), 0, -1):
        # The model wants a rating; a claim has none, so any valid figure does.
        told = {"ratingWatts": 1.0, **{key: spec[key] for key in _FIELDS[:count] if key in spec}}
        try:
            return PowerDomain.read({**body, "spec": told, "status": {}})
        except InputError:
            continue
    return None


def anchors(claims: Mapping[str, MemberClaim], running: Collection[str]) -> dict[str, str]:
    """By claiming domain, the nearest one that runs, itself or above by the newest parents.

    Empty where the way up ends: in a circle, at a parent that is not there, or at a root that does
    not run. Each domain is passed once, however long the chains are.
    """
    found = {name: name for name in running}
    for name in claims:
        way: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in found and at not in way:
            way[at] = None
            at = claims[at].parent if at in claims else None
        found |= dict.fromkeys(way, found.get(at or "", ""))
    return {name: found[name] for name in claims}
