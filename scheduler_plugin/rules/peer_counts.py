"""Which nodes other pods leave to a pod: (anti-)affinity and topology spread, as arrays.

The rules are those of kube-scheduler's plugins InterPodAffinity and PodTopologySpread. They are
asked one pod at a time, since each pod that arrives changes what the next one may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.rules.label_index import LabelIndex
from scheduler_plugin.rules.matching import taints_tolerated

__all__ = ["PeerCounts", "Peers", "is_concerned", "peers_of"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Pair = tuple[str, str]
"""Group and topology key."""


class _Domains(NamedTuple):
    """The domains of one topology key.

    Attributes:
        of_node: Number of each node's domain, shape (n,); 0 where ``known`` is False.
        known: Whether the node has the label, shape (n,).
        number: Of domains, at least 1.
    """

    of_node: IntArray
    known: BoolArray
    number: int

    def totals(self, on_node: IntArray, counted: BoolArray | None = None) -> IntArray:
        """Sums over domains, shape (number,)."""
        which = self.known if counted is None else self.known & counted
        sums = np.bincount(self.of_node[which], weights=on_node[which], minlength=self.number)
        return sums.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Class:
    """What a class of pods is concerned with.

    Attributes:
        groups: That its pods belong to.
        rules: That its pods have.
        countable: By rule, the nodes whose domains count (``spread``), shape (n,).
    """

    groups: frozenset[str]
    rules: tuple[PeerRule, ...]
    countable: tuple[BoolArray | None, ...]


@dataclass(frozen=True)
class Peers:
    """Rules of a problem's classes and who is where at the start.

    Attributes:
        classes: By class index.
        domains: By topology key.
        members: Of each group, pods on each node that the plan does not place, shape (n,).
        repellers: The same of pods that keep a group out of their domain.
    """

    classes: tuple[_Class, ...]
    domains: dict[str, _Domains]
    members: dict[str, IntArray]
    repellers: dict[Pair, IntArray]

    def counts(self) -> PeerCounts:
        """A state of its own, to begin with."""
        return PeerCounts(
            self,
            {group: each.copy() for group, each in self.members.items()},
            {pair: each.copy() for pair, each in self.repellers.items()},
        )

    def concerned(self) -> frozenset[int]:
        """Classes whose pods have a rule or count for one."""
        return frozenset(c for c, each in enumerate(self.classes) if each.groups or each.rules)


@dataclass(slots=True)
class PeerCounts:
    """Who is where while an assignment grows; every booking can be taken back."""

    peers: Peers
    _members: dict[str, IntArray]
    _repellers: dict[Pair, IntArray]
    _binding: frozenset[int] = field(init=False)
    _placed: dict[int, IntArray] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._binding = self.peers.concerned()

    def binds(self, class_index: int) -> bool:
        """Whether other pods matter for the class, so that its pods go one by one."""
        return class_index in self._binding

    def wants_others(self, class_index: int) -> bool:
        """Whether more pods somewhere may open nodes to the class: by affinity or spread."""
        rules = self.peers.classes[class_index].rules
        return any(rule.kind is not PeerKind.APART for rule in rules)

    def add(self, class_index: int, node: int, count: int) -> None:
        """So many pods of the class are on the node from now on (negative takes them back)."""
        if class_index not in self._binding:
            return
        one = self.peers.classes[class_index]
        for group in one.groups:
            self._members[group][node] += count
        for rule in one.rules:
            if rule.kind is PeerKind.APART:
                self._repellers[rule.group, rule.topology_key][node] += count
        if any(rule.kind is not PeerKind.APART for rule in one.rules):
            nowhere = np.zeros_like(self._nodes(), dtype=np.int64)
            self._placed.setdefault(class_index, nowhere)[node] += count

    def settle(self) -> None:
        """Whoever was placed so far counts as promised: as those who are there at the start."""
        members = {group: each.copy() for group, each in self._members.items()}
        self.peers = replace(self.peers, members=members)
        self._placed = {}

    def allowed(self, class_index: int) -> BoolArray:
        """Nodes where one more pod of the class breaks no rule, of its own or of others, (n,)."""
        verdicts = [ok for _, ok in self._verdicts(class_index)]
        return np.asarray(np.logical_and.reduce(verdicts))

    def why(self, class_index: int, nodes: npt.NDArray[np.intp]) -> str:
        """What keeps a pod of the class off all of these nodes; empty if nothing does.

        Args:
            class_index: Of the pod.
            nodes: That have room for it, by index, shape (k,).
        """
        if not self.binds(class_index) or self.allowed(class_index)[nodes].any():
            return ""
        told = sorted(
            ((text, ok[nodes]) for text, ok in self._verdicts(class_index)),
            key=lambda one: int(one[1].sum()),
        )
        words: list[str] = []
        left = np.ones(len(nodes), dtype=np.bool_)
        for text, ok in told:
            if (left & ~ok).any():
                words.append(f"{text} excludes {int((~ok).sum())}")
                left &= ok
        return f"{len(nodes)} nodes have room; {'; '.join(words)}"

    def _verdicts(self, class_index: int) -> Iterator[tuple[str, BoolArray]]:
        """Each rule in words, and the nodes where it holds, shape (n,)."""
        one = self.peers.classes[class_index]
        together = [rule for rule in one.rules if rule.kind is PeerKind.TOGETHER]
        if together:
            keys = " and ".join(rule.topology_key for rule in together)
            yield f"affinity to {together[0].group} by {keys}", self._near(together, one)
        every_key = self._has_every_key(one)
        for rule, countable in zip(one.rules, one.countable, strict=True):
            about = f"{rule.group} by {rule.topology_key}"
            if rule.kind is PeerKind.APART:
                taken = self._occupied(rule.topology_key, self._members[rule.group])
                yield f"anti-affinity to {about}", ~taken
            elif countable is not None:
                yield f"spread of {about}", self._even(rule, one, countable & every_key)
        for (group, key), on_node in self._repellers.items():
            if group in one.groups:
                yield f"anti-affinity of others to {group} by {key}", ~self._occupied(key, on_node)
        yield from self._others_spread(one)
        yield from self._founders(one)
        yield "", np.ones(len(self._nodes()), dtype=np.bool_)

    def _others_spread(self, one: _Class) -> Iterator[tuple[str, BoolArray]]:
        """Nobody joins a domain that would become too full for whom the plan has spread there.

        Who is bound first is not for the plan to say; so its rules hold with everybody in place.
        """
        for c, placed in self._placed.items():
            other = self.peers.classes[c]
            if other is one or not placed.any():
                continue
            every_key = self._has_every_key(other)
            for rule, countable in zip(other.rules, other.countable, strict=True):
                if countable is not None and rule.group in one.groups:
                    here = self._occupied(rule.topology_key, placed)
                    even = self._even(rule, one, countable & every_key)
                    yield f"others' spread of {rule.group} by {rule.topology_key}", ~here | even

    def _founders(self, one: _Class) -> Iterator[tuple[str, BoolArray]]:
        """Who was sent somewhere as the first of its group gets the next ones for company.

        Somebody of the group who is bound elsewhere before would keep it out.
        """
        pairs: dict[Pair, IntArray] = {}
        for c, placed in self._placed.items():
            other = self.peers.classes[c]
            for rule in other.rules:
                pair = rule.group, rule.topology_key
                its_own = rule.group in other.groups and rule.group in one.groups
                if rule.kind is PeerKind.TOGETHER and its_own:
                    pairs[pair] = pairs.get(pair, 0) + placed
        for (group, key), founders in pairs.items():
            domains = self.peers.domains[key]
            if domains.totals(self.peers.members[group]).any():
                continue
            others = domains.totals(self._members[group] - founders)
            alone = (domains.totals(founders) > 0) & (others == 0)
            if alone.any():
                yield f"the first of {group} by {key}", domains.known & alone[domains.of_node]

    def _nodes(self) -> BoolArray:
        return next(iter(self.peers.domains.values())).known

    def _occupied(self, key: str, on_node: IntArray) -> BoolArray:
        """Nodes in a domain where one of these pods is."""
        domains = self.peers.domains[key]
        taken: BoolArray = domains.known & (domains.totals(on_node) > 0)[domains.of_node]
        return taken

    def _near(self, rules: list[PeerRule], one: _Class) -> BoolArray:
        known = np.logical_and.reduce([self.peers.domains[r.topology_key].known for r in rules])
        near = [self._occupied(r.topology_key, self._members[r.group]) for r in rules]
        if all(r.group in one.groups for r in rules) and not any(n.any() for n in near):
            # The first of a group that wants its own company may go anywhere.
            return np.asarray(known)
        return np.asarray(known & np.logical_and.reduce(near))

    def _has_every_key(self, one: _Class) -> BoolArray:
        keys = [r.topology_key for r in one.rules if r.kind is PeerKind.SPREAD]
        known = [self.peers.domains[key].known for key in keys]
        return np.asarray(np.logical_and.reduce(known)) if known else np.ones(1, dtype=np.bool_)

    def _even(self, rule: PeerRule, one: _Class, countable: BoolArray) -> BoolArray:
        domains = self.peers.domains[rule.topology_key]
        totals = domains.totals(self._members[rule.group], countable)
        exists = np.zeros(domains.number, dtype=np.bool_)
        exists[domains.of_node[countable & domains.known]] = True
        least = int(totals[exists].min(initial=np.iinfo(np.int64).max)) if exists.any() else 0
        if int(exists.sum()) < rule.min_domains:
            least = 0
        own = int(rule.group in one.groups)
        fits = domains.known & (totals + own - least <= rule.max_skew)[domains.of_node]
        return np.asarray(fits)


def is_concerned(pod: Pod) -> bool:
    """Whether other pods matter for the pod, or it for them."""
    return bool(pod.groups or pod.peer_rules)


def peers_of(snapshot: Snapshot, classes: Sequence[Pod]) -> Peers | None:
    """The rules among all pods; None where no pod has any.

    Args:
        snapshot: With nodes and pods.
        classes: A pod of each class. Running ones are never of those that are concerned
            (``pod_classes.is_movable``).
    """
    rules = {rule for pod in snapshot.pods for rule in pod.peer_rules}
    if not rules:
        return None
    nodes, index = snapshot.nodes, {node.name: i for i, node in enumerate(snapshot.nodes)}
    members = {r.group: np.zeros(len(nodes), dtype=np.int64) for r in rules}
    repellers = {
        (r.group, r.topology_key): np.zeros(len(nodes), dtype=np.int64)
        for r in rules
        if r.kind is PeerKind.APART
    }
    for pod in snapshot.pods:
        at = index.get(pod.node)
        if at is None or not is_concerned(pod):
            continue
        for group in pod.groups:
            if group in members:
                members[group][at] += 1
        for rule in pod.peer_rules:
            if rule.kind is PeerKind.APART:
                repellers[rule.group, rule.topology_key][at] += 1
    labels = LabelIndex(nodes)
    return Peers(
        classes=tuple(_class_of(pod, nodes, labels, members.keys()) for pod in classes),
        domains={key: _domains(nodes, key) for key in {r.topology_key for r in rules}},
        members=members,
        repellers=repellers,
    )


def _class_of(
    pod: Pod, nodes: Sequence[Node], labels: LabelIndex, known: Collection[str]
) -> _Class:
    groups = frozenset(group for group in pod.groups if group in known)
    countable = tuple(_countable(pod, rule, nodes, labels) for rule in pod.peer_rules)
    return _Class(groups, pod.peer_rules, countable)


def _countable(
    pod: Pod, rule: PeerRule, nodes: Sequence[Node], labels: LabelIndex
) -> BoolArray | None:
    if rule.kind is not PeerKind.SPREAD:
        return None
    found = np.ones(len(nodes), dtype=np.bool_) if rule.any_node else labels.suits(pod)
    if rule.only_tolerated:
        tolerated = (taints_tolerated(node.taints, pod.tolerations) for node in nodes)
        found &= np.fromiter(tolerated, dtype=np.bool_, count=len(nodes))
    return found


def _domains(nodes: Sequence[Node], key: str) -> _Domains:
    numbers: dict[str, int] = {}
    of_node = np.zeros(len(nodes), dtype=np.int64)
    known = np.zeros(len(nodes), dtype=np.bool_)
    for i, node in enumerate(nodes):
        value = node.labels.get(key)
        if value is not None:
            known[i] = True
            of_node[i] = numbers.setdefault(value, len(numbers))
    return _Domains(of_node, known, max(1, len(numbers)))
