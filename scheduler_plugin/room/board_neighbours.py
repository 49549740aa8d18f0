"""Which pods may share a node's boards by what measured pairs say, where pairs were measured.

A pod's slow-down is 1 plus what each neighbour on its board adds, as time slices add up. Boards of
one node count together, since which of them a pod gets is the device plugin's choice: pods are
taken to spread evenly, and each to meet the worst neighbours that it can. Where one pair of a
node's pods was never measured the sum of their shares has to hold as well
(``scheduler_plugin.documents.shared_boards``), as it has everywhere without measured pairs.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler_plugin.documents.shared_boards import BANDWIDTH_MILLI, COMPUTE_MILLI, UNLIMITED
from scheduler_plugin.documents.snapshot import Node, Pod, PodState, Snapshot

SHARES = (COMPUTE_MILLI, BANDWIDTH_MILLI)


class Sharer(NamedTuple):
    """What of a pod matters to its neighbours; work of no measured pair is ``""``."""

    work: str
    compute_milli: int
    bandwidth_milli: int


class Crowd(NamedTuple):
    """Who shares a node's boards: pods of each kind of work, and the sums of their shares.

    Pairs know kinds of work alone, so that pods of one kind with other shares are one entry: what
    people write into share annotations makes no crowd larger.
    """

    kinds: frozenset[tuple[str, int]]
    compute_milli: int
    bandwidth_milli: int

    def plus(self, sharer: Sharer, count: int) -> Crowd:
        """With so many more of a pod; negative takes them away."""
        kinds = dict(self.kinds)
        kinds[sharer.work] = kinds.get(sharer.work, 0) + count
        return Crowd(
            frozenset((work, pods) for work, pods in kinds.items() if pods),
            self.compute_milli + sharer.compute_milli * count,
            self.bandwidth_milli + sharer.bandwidth_milli * count,
        )


NOBODY: Final = Crowd(frozenset(), 0, 0)


@dataclass(frozen=True, slots=True)
class _Boards:
    """A node that shares boards within a limit."""

    model: str
    boards: int
    limit_milli: int
    offers: tuple[int, int]


class _Room(NamedTuple):
    """How many more pods of a kind pairs bear, and up to how many all pairs are measured."""

    borne: int
    measured: int


class Neighbours:
    """The rule over one snapshot.

    Args:
        snapshot: With measured pairs; without any there is no rule.
        leaving: Uids of running pods that a plan may move: it books them itself.

    Attributes:
        looks: What asking has cost so far: answers given, and pairs of kinds looked at for them.
            The same questions in the same order cost the same on any machine.
    """

    def __init__(self, snapshot: Snapshot, leaving: Collection[str] = ()) -> None:
        self.looks = 0
        #: What a neighbour adds, thousandths, by GPU type, work and neighbour's work; worst first.
        self._added: dict[str, dict[str, dict[str, int]]] = {}
        for told in sorted(snapshot.slow_downs, key=lambda told: -told.slow_down_milli):
            of_work = self._added.setdefault(told.gpu_model, {}).setdefault(told.work, {})
            of_work[told.beside] = told.slow_down_milli - 1000
        self._known = {told.work for told in snapshot.slow_downs}
        self._known |= {told.beside for told in snapshot.slow_downs}
        self._nodes = [_boards(node) for node in snapshot.nodes]
        # Most nodes are alike, and each is asked again for each class and pass.
        alike: dict[_Boards, int] = {}
        self._alike = [alike.setdefault(boards, len(alike)) for boards in self._nodes]
        self._rooms: dict[tuple[int, frozenset[tuple[str, int]], str, int], _Room] = {}
        self._worst: dict[tuple[int, frozenset[tuple[str, int]]], int] = {}
        index = {node.name: i for i, node in enumerate(snapshot.nodes)}
        self.present: dict[int, Crowd] = {}
        for pod in snapshot.pods:
            sharer = None if pod.uid in leaving else self.sharer_of(pod)
            if pod.state in (PodState.BOUND, PodState.PROMISED) and sharer and pod.node in index:
                node = index[pod.node]
                self.present[node] = self.present.get(node, NOBODY).plus(sharer, 1)

    def sharer_of(self, pod: Pod) -> Sharer | None:
        """What neighbours feel of the pod; None for one that shares no board or says nothing."""
        compute, bandwidth = (pod.resources.get(name, 0) for name in SHARES)
        if not (pod.shared_work or compute or bandwidth):
            return None
        work = pod.shared_work if pod.shared_work in self._known else ""
        return Sharer(work, compute, bandwidth)

    def is_limited(self, node: int) -> bool:
        """Whether the node says how much its pods may slow one another down."""
        return self._nodes[node].limit_milli > 0

    def most_more(self, node: int, there: Crowd, new: Sharer, most: int) -> int:
        """How many more of the new pod a limited node bears beside those there, at most ``most``.

        Taking pods away never breaks the rule, so that the answer can be searched for.
        """
        self.looks += 1
        asked = (self._alike[node], there.kinds, new.work, most)
        room = self._rooms.get(asked)
        if room is None:
            room = self._rooms[asked] = self._room(node, there, new, most)
        if room.measured < room.borne:
            return max(0, min(room.borne, max(room.measured, self._shares_room(node, there, new))))
        return room.borne

    def _room(self, node: int, there: Crowd, new: Sharer, most: int) -> _Room:
        """By doubling and then halving: it is mostly a small number."""
        limit = self._nodes[node].limit_milli
        low, high = 0, most + 1
        while high - low > 1:
            middle = min(2 * low + 1, (low + high) // 2)
            if self.worst_milli(node, there.plus(new, middle)) <= limit:
                low = middle
            else:
                high = middle
        # A second one of a kind is the last that can bring a pair that was not there.
        counts = (c for c in (2, 1, 0) if self._all_measured(node, there.plus(new, c)))
        measured = next(counts, -1)
        return _Room(low, most if measured == 2 else measured)

    def _shares_room(self, node: int, there: Crowd, new: Sharer) -> int:
        """How many more the sum of shares bears; negative where it is exceeded already."""
        room = UNLIMITED
        for offer, used, share in zip(self._nodes[node].offers, there[1:], new[1:], strict=True):
            if share:
                room = min(room, (offer - used) // share)
            elif used > offer:
                room = -1
        return room

    def holds(self, node: int, together: Crowd) -> bool:
        """Whether these pods bear one another on the node."""
        limit = self._nodes[node].limit_milli
        return self.worst_milli(node, together) <= limit and self.is_decided_by_pairs(
            node, together
        )

    def is_decided_by_pairs(self, node: int, together: Crowd) -> bool:
        """Whether only the node's limit can keep these pods apart, and no sum of shares."""
        return self._all_measured(node, together) or self._shares_fit(node, together)

    def worst_milli(self, node: int, together: Crowd) -> int:
        """The slow-down, in thousandths, of who is slowed most by neighbours known to him."""
        asked = (self._alike[node], together.kinds)
        if asked not in self._worst:
            self._worst[asked] = self._slowed_most(node, dict(together.kinds))
        return self._worst[asked]

    def _slowed_most(self, node: int, pods: dict[str, int]) -> int:
        at = self._nodes[node]
        beside = math.ceil(sum(pods.values()) / at.boards) - 1
        if beside < 1:
            return 1000
        known = self._added.get(at.model, {})
        self.looks += sum(len(known.get(work, ())) for work in pods)
        return max(_beside_the_worst(known.get(work, {}), work, pods, beside) for work in pods)

    def _all_measured(self, node: int, together: Crowd) -> bool:
        known = self._added.get(self._nodes[node].model, {})
        self.looks += len(together.kinds) ** 2
        return all(
            other in known.get(one, {})
            for one, _ in together.kinds
            for other, count in together.kinds
            if other != one or count > 1
        )

    def _shares_fit(self, node: int, together: Crowd) -> bool:
        offers = self._nodes[node].offers
        return together.compute_milli <= offers[0] and together.bandwidth_milli <= offers[1]


def _beside_the_worst(added: dict[str, int], work: str, pods: dict[str, int], beside: int) -> int:
    """A pod's slow-down, thousandths, with so many of the others on its board, the worst ones.

    Args:
        added: What each neighbour adds, the worst first; others add nothing.
    """
    slow = 1000
    for other, each in added.items():
        count = min(beside, pods.get(other, 0) - (other == work))
        slow += each * count
        beside -= count
        if not beside:
            break
    return slow


def neighbours_of(snapshot: Snapshot, leaving: Collection[str] = ()) -> Neighbours | None:
    """The rule; None where nothing was measured of any pod: then shares alone decide, as ever.

    Args:
        snapshot: With measured pairs.
        leaving: Uids of running pods that a plan may move.
    """
    known = {slow_down.work for slow_down in snapshot.slow_downs}
    if not known or not any(pod.shared_work in known for pod in snapshot.pods):
        return None
    return Neighbours(snapshot, leaving)


def _boards(node: Node) -> _Boards:
    offers = (node.resources.get(COMPUTE_MILLI, 0), node.resources.get(BANDWIDTH_MILLI, 0))
    return _Boards(node.gpu_model, node.shared_boards, node.slow_down_limit_milli, offers)
