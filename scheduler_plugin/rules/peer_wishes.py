"""How far pods are from what they would rather have of other pods around them.

Axes: ``n`` nodes in name order, ``c`` pod classes. A wish weighs on a pod: for company with its
weight while nobody of the group is in the pod's domain, for distance with its weight for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.peer_wish import PeerWish
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot

__all__ = ["PeerWishes", "WishCounts", "peer_wishes_of"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PeerWishes:
    """Wishes of a problem's classes and who is where at the start.

    Attributes:
        wishes: By class.
        groups: That pods of a class belong to, by class.
        domains: Number of each node's domain by topology key, 0 without the label, shape (n,).
        members: Of each group, pods on each node that the plan does not place, shape (n,).
    """

    wishes: tuple[tuple[PeerWish, ...], ...]
    groups: tuple[frozenset[str], ...]
    domains: Mapping[str, IntArray]
    members: Mapping[str, IntArray]

    def counts(self) -> WishCounts:
        """A state of its own, to begin with."""
        return WishCounts(self, {group: each.copy() for group, each in self.members.items()})


@dataclass(slots=True)
class WishCounts:
    """Who is where while an assignment grows; every booking can be taken back."""

    of: PeerWishes
    _members: dict[str, IntArray]

    def has_any(self, class_index: int) -> bool:
        """Whether pods of the class wish for something, so that they go one by one."""
        return bool(self.of.wishes[class_index])

    def add(self, class_index: int, node: int, count: int) -> None:
        """So many pods of the class are on the node from now on (negative takes them back)."""
        for group in self.of.groups[class_index]:
            self._members[group][node] += count

    def unmet(self, class_index: int) -> IntArray:
        """What weighs on one more pod of the class on each node, shape (n,)."""
        return self._weights(class_index, itself=0)

    def total(self, assignment: Mapping[tuple[int, int], int]) -> int:
        """What weighs on all pods of an assignment that was booked."""
        asking = {c for c, _ in assignment if self.has_any(c)}
        each = {c: self._weights(c, itself=1) for c in asking}
        return sum(int(each[c][n]) * count for (c, n), count in assignment.items() if c in asking)

    def _weights(self, class_index: int, itself: int) -> IntArray:
        """Args: itself: 1 for pods that are counted in their own groups already."""
        found = np.zeros(len(next(iter(self.of.domains.values()))), dtype=np.int64)
        for wish in self.of.wishes[class_index]:
            domain = self.of.domains[wish.topology_key]
            inside = np.bincount(domain, weights=self._members[wish.group])[domain]
            others = inside.astype(np.int64)
            others -= itself * (wish.group in self.of.groups[class_index])
            if wish.near:
                found += wish.weight * ((others <= 0) | (domain == 0))
            else:
                found += wish.weight * np.maximum(others, 0)
        return found


def peer_wishes_of(
    snapshot: Snapshot, pods: Sequence[Pod], movable: Collection[str]
) -> PeerWishes | None:
    """The wishes of all classes; None where nobody has any.

    Args:
        snapshot: With nodes and pods.
        pods: One of each class.
        movable: Running pods that the plan places, by uid; all others stay where they are.
    """
    wanted = {wish for pod in pods for wish in pod.peer_wishes}
    if not wanted or not snapshot.nodes:
        return None
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    members = {wish.group: np.zeros(len(index), dtype=np.int64) for wish in wanted}
    for pod in snapshot.pods:
        at = index.get(pod.node)
        if at is not None and pod.uid not in movable:
            for group in members.keys() & set(pod.wished_groups):
                members[group][at] += 1
    return PeerWishes(
        tuple(pod.peer_wishes for pod in pods),
        tuple(frozenset(pod.wished_groups) & members.keys() for pod in pods),
        {wish.topology_key: _domains(snapshot.nodes, wish.topology_key) for wish in wanted},
        members,
    )


def _domains(nodes: Sequence[Node], key: str) -> IntArray:
    values = [node.labels.get(key) for node in nodes]
    numbers = {
        value: i for i, value in enumerate(dict.fromkeys(v for v in values if v is not None))
    }
    return np.array([0 if v is None else 1 + numbers[v] for v in values], dtype=np.int64)
