"""Gangs that should be, or have to be, in one domain: nodes with the same value of a label."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import PodState, Snapshot

__all__ = ["GangDomain", "gang_domains"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

TRIED: Final = 8
"""Of the domains with room and power for a gang, so many are tried, the tightest first: domains of
power below them and rules of other pods may still keep it out of one."""


@dataclass(frozen=True, slots=True)
class GangDomain:
    """Where one gang may be together.

    Attributes:
        key: The label.
        required: Whether it waits where no domain holds it.
        of_node: Number of each node's domain, shape (n,); -1 without the label.
        home: Domains where members are already; nobody is sent elsewhere if it is required.
    """

    key: str
    required: bool
    of_node: IntArray
    home: frozenset[int]

    def candidates(
        self,
        rooms: Sequence[IntArray],
        wanted: Sequence[int],
        feeds: Callable[[BoolArray], bool] = lambda nodes: True,
    ) -> Iterator[BoolArray]:
        """Nodes of each domain that could hold all, shape (n,): home first, then the tightest.

        Args:
            rooms: For each kind of member, how many each node takes, shape (n,).
            wanted: Members of each kind.
            feeds: Whether what feeds some nodes in common may bear all members.
        """
        known = self.of_node >= 0
        if not known.any():
            return
        number = int(self.of_node.max()) + 1
        enough = np.ones(number, dtype=np.bool_)
        slack = np.zeros(number, dtype=np.float64)
        for room, count in zip(rooms, wanted, strict=True):
            inside = np.bincount(self.of_node[known], weights=room[known], minlength=number)
            enough &= inside >= count
            slack += inside - count
        at_home = np.isin(np.arange(number), list(self.home))
        if self.required and self.home:
            enough &= at_home
        order = np.lexsort((slack, ~at_home))
        able = (self.of_node == domain for domain in order.tolist() if enough[domain])
        yield from islice(filter(feeds, able), TRIED)


def gang_domains(snapshot: Snapshot) -> Mapping[str, GangDomain]:
    """Those of all gangs that name a topology key, by gang."""
    asked = {gang.id: gang for gang in snapshot.gangs if gang.topology_key}
    if not asked:
        return {}
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    held: dict[str, set[int]] = defaultdict(set)
    for pod in snapshot.pods:
        if pod.gang in asked and pod.state in (PodState.BOUND, PodState.PROMISED):
            held[pod.gang] |= {index[pod.node]} if pod.node in index else set()
    found: dict[str, GangDomain] = {}
    for gang in asked.values():
        numbers: dict[str, int] = {}
        of_node = np.full(len(index), -1, dtype=np.int64)
        for i, node in enumerate(snapshot.nodes):
            value = node.labels.get(gang.topology_key)
            if value is not None:
                of_node[i] = numbers.setdefault(value, len(numbers))
        home = {int(of_node[i]) for i in held[gang.id]} - {-1}
        required = gang.topology_required
        found[gang.id] = GangDomain(gang.topology_key, required, of_node, frozenset(home))
    return found
