"""What each power domain may still take, in watts: one count for the planner and for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.documents.snapshot import Pod, PodState, PowerDomain, Snapshot
from scheduler_plugin.packing.capped_watts import cap_options, promised_cap, watts_at

__all__ = ["DomainRoom", "ancestors", "counted_watts", "domain_rooms"]


@dataclass(frozen=True, slots=True)
class DomainRoom:
    """One domain.

    Attributes:
        name: Of the PowerDomain.
        limit_watts: Upper edge of its cap band, AC.
        counted_watts: What runs and what is promised, AC.
    """

    name: str
    limit_watts: int
    counted_watts: int

    @property
    def free_watts(self) -> int:
        """What is left; negative if more is counted than the limit allows."""
        return self.limit_watts - self.counted_watts


def ancestors(domains: dict[str, PowerDomain], name: str) -> list[str]:
    """The domain and all above it, nearest first."""
    found: list[str] = []
    while name:
        found.append(name)
        name = domains[name].parent
    return found


def counted_watts(snapshot: Snapshot) -> dict[str, int]:
    """Forecast and promises of each domain, AC watts; of pods whose priority counts there."""
    nodes = {node.name: node for node in snapshot.nodes}
    options = cap_options(snapshot)
    promised = (
        (pod, pod.node, watts_at(pod, nodes[pod.node], promised_cap(pod, nodes[pod.node], options)))
        for pod in snapshot.pods
        if pod.state is PodState.PROMISED and pod.node in nodes
    )
    return _added(snapshot, {d.name: d.used_watts for d in snapshot.domains}, promised)


def domain_rooms(snapshot: Snapshot, placements: Iterable[Placement]) -> tuple[DomainRoom, ...]:
    """Every domain once these placements are made, the fewest free watts first.

    Where priorities are counted at several risks, what it says is of those at the least risk.
    """
    pods = {pod.uid: pod for pod in snapshot.pods}
    placed = ((pods.get(one.uid), one.node, one.watts) for one in placements)
    counted = _added(snapshot, counted_watts(snapshot), placed)
    domains = [domain for domain in snapshot.domains if not domain.at_risk_of]
    rooms = [DomainRoom(d.name, d.limit_watts, counted[d.name]) for d in domains]
    return tuple(sorted(rooms, key=lambda room: (room.free_watts, room.name)))


def _added(
    snapshot: Snapshot,
    counted: dict[str, int],
    watts_on_nodes: Iterable[tuple[Pod | None, str, int]],
) -> dict[str, int]:
    """The count with pods' watts on nodes added to every domain above that counts them."""
    domains = {domain.name: domain for domain in snapshot.domains}
    above = {node.name: node.domain for node in snapshot.nodes}
    result = dict(counted)
    for pod, node, watts in watts_on_nodes:
        for name in ancestors(domains, above.get(node, "")):
            if pod is None or domains[name].counts(pod.priority):
                result[name] += watts
    return result
