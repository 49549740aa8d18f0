"""What would have to change so that a pod may use each node, by the rules that know no amounts.

Nodes that every rule treats alike are one group: a rule is asked once a group, not once a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scheduler_plugin.documents.node_rules import Taint
from scheduler_plugin.documents.plan_changes import (
    AcceptGpuModel,
    AcceptHostClass,
    Change,
    DropAffinity,
    DropSelector,
    LiftQuarantine,
    OfThePod,
    ReturnNode,
    StatePower,
    TolerateTaint,
)
from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.packing.problem import BoolArray, IntArray
from scheduler_plugin.rules.label_index import LabelIndex
from scheduler_plugin.rules.static_rules import (
    STATIC_RULES,
    StaticRule,
    borne_taints,
    static_key,
)

__all__ = ["Needs", "NodeRules", "of_the_node"]

ANY: Final = "*"
"""Stands for whoever waits: pods that ask for the same have the same needs."""

MOST_OF_THE_POD: Final = 60
"""Different changes of one pod's request that are told apart, as bits of an integer."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Of one kind of pod, for each node.

    Attributes:
        of_the_pod: Changes of the request that one node or another asks for.
        bits: Which of them each node asks for, shape (n,).
        of_the_node: How many changes of the node itself: ``return_node``, ``state_power``, (n,).
        never: No change that we know would do, shape (n,).
        failed: Rules that do not hold, as bits in the order of ``STATIC_RULES``, shape (n,).
    """

    of_the_pod: tuple[OfThePod, ...]
    bits: IntArray
    of_the_node: IntArray
    never: BoolArray
    failed: IntArray

    @property
    def asked_of_the_pod(self) -> IntArray:
        """How many changes of the request each node asks for, shape (n,)."""
        return _ones(self.bits, len(self.of_the_pod))

    def asked_beside(self, made: Iterable[OfThePod]) -> IntArray:
        """The same where some have been made, whoever waits, shape (n,)."""
        number = {change: i for i, change in enumerate(self.of_the_pod)}
        named = {change.model_copy(update={"waiting": ANY}) for change in made}
        granted = sum(1 << number[change] for change in named if change in number)
        return _ones(self.bits & ~granted, len(self.of_the_pod))

    def named(self, node: int, waiting: str) -> list[OfThePod]:
        """Changes of a request, by uid or gang, that a node asks for."""
        asked = int(self.bits[node])
        every = enumerate(self.of_the_pod)
        return [c.model_copy(update={"waiting": waiting}) for i, c in every if asked >> i & 1]


class _Look(NamedTuple):
    """A pod's own rules, of which it may bring any number, asked of all nodes at once.

    Attributes:
        suits: Node selector and required affinity hold, shape (n,).
        terms: Required affinity alone does, shape (n,).
        borne: Taints that keep it from no node.
    """

    pod: Pod
    nodes: Sequence[Node]
    suits: BoolArray
    terms: BoolArray
    borne: Set[Taint]

    def holds(self, rule: StaticRule, number: int) -> bool:
        """On the node of that number."""
        if rule.reason is PendingReason.NODE_AFFINITY:
            return bool(self.suits[number])
        if rule.reason is PendingReason.TAINT_NOT_TOLERATED:
            return self.borne >= set(self.nodes[number].taints)
        return rule.holds(self.pod, self.nodes[number])


class NodeRules:
    """The rules over one snapshot's nodes.

    Args:
        snapshot: With the nodes.
        leaving: Names of nodes that nobody gives back where they are down or cordoned.
    """

    def __init__(self, snapshot: Snapshot, leaving: Set[str] = frozenset()) -> None:
        self._nodes, self._leaving = snapshot.nodes, leaving
        self._plain = [(*_plain(node), node.name in leaving) for node in snapshot.nodes]
        self._labels = LabelIndex(snapshot.nodes)
        self._taints = frozenset(taint for node in snapshot.nodes for taint in node.taints)
        self._groups: dict[tuple[frozenset[str], frozenset[str], bool], IntArray] = {}
        self._needs: dict[str, Needs] = {}

    def needs(self, pod: Pod) -> Needs:
        """Of a pod that waits; kept for those that rules treat alike."""
        key = static_key(pod)
        if key not in self._needs:
            self._needs[key] = self._found(pod)
        return self._needs[key]

    def _found(self, pod: Pod) -> Needs:
        group_of = self._group_of(pod)
        bits: list[int] = []
        of_node: list[int] = []
        never: list[bool] = []
        broken: list[int] = []
        known: dict[OfThePod, int] = {}
        _, where = np.unique(group_of, return_index=True)
        look = self._look(pod)
        for number in where.tolist():
            failed = [i for i, rule in enumerate(STATIC_RULES) if not look.holds(rule, number)]
            changes = [self._remedy(STATIC_RULES[i].reason, look, number) for i in failed]
            flat = [change for some in changes for change in some or ()]
            own = [change for change in flat if isinstance(change, OfThePod)]
            for change in own:
                known.setdefault(change, len(known))
            too_many = any(known[change] >= MOST_OF_THE_POD for change in own)
            bits.append(0 if too_many else sum({1 << known[change] for change in own}))
            of_node.append(len(flat) - len(own))
            never.append(too_many or None in changes)
            broken.append(sum(1 << i for i in failed))
        return Needs(
            tuple(known)[:MOST_OF_THE_POD],
            np.array(bits, dtype=np.int64)[group_of],
            np.array(of_node, dtype=np.int64)[group_of],
            np.array(never, dtype=np.bool_)[group_of],
            np.array(broken, dtype=np.int64)[group_of],
        )

    def _look(self, pod: Pod) -> _Look:
        selected = self._labels.selected(pod.node_selector.items())
        terms = self._labels.any_of(pod.required_terms)
        return _Look(pod, self._nodes, selected & terms, terms, borne_taints(self._taints, pod))

    def _remedy(self, reason: PendingReason, look: _Look, number: int) -> list[Change] | None:
        """What makes a rule hold that does not; None if nothing that we know does."""
        node = self._nodes[number]
        if reason is PendingReason.NO_READY_NODE and node.name in self._leaving:
            return None
        if reason is PendingReason.NODE_AFFINITY:
            return _less_choosy(look.pod, node, terms_hold=bool(look.terms[number]))
        if reason is PendingReason.TAINT_NOT_TOLERATED:
            return _tolerant([taint for taint in node.taints if taint not in look.borne])
        make = _REMEDIES.get(reason)
        return None if make is None else make(look.pod, node)

    def _group_of(self, pod: Pod) -> IntArray:
        """Number of each node's group, from 0 without gaps, shape (n,)."""
        terms = pod.required_terms
        labels = frozenset(pod.node_selector).union(
            r.key for term in terms for r in term.match_expressions
        )
        by_name = any(term.match_fields for term in terms)
        labels &= self._labels.keys
        asked = (labels, frozenset(pod.excluded_nodes), by_name)
        if asked not in self._groups:
            numbers: dict[object, int] = {}
            keys, excluded = sorted(labels), asked[1]
            found = [
                numbers.setdefault(
                    (
                        plain,
                        tuple(node.labels.get(key) for key in keys),
                        node.name if by_name or node.name in excluded else "",
                    ),
                    len(numbers),
                )
                for node, plain in zip(self._nodes, self._plain, strict=True)
            ]
            self._groups[asked] = np.array(found, dtype=np.int64)
        return self._groups[asked]


def _ones(bits: IntArray, width: int) -> IntArray:
    count = np.zeros(len(bits), dtype=np.int64)
    for i in range(width):
        count += bits >> i & 1
    return count


def _plain(node: Node) -> tuple[object, ...]:
    """All that rules ask of a node besides labels and its name."""
    taints = tuple((t.key, t.value, t.effect) for t in node.taints)
    classes = (node.gpu_model, node.cpu_class, node.nic_class)
    return (classes, taints, node.is_open, node.feed_known)


def of_the_node(node: Node) -> list[Change]:
    """Changes of the node itself that let pods in."""
    found: list[Change] = []
    if not node.is_open:
        found.append(ReturnNode(node=node.name))
    if not node.feed_known:
        found.append(StatePower(node=node.name))
    return found


def _other_model(pod: Pod, node: Node) -> list[Change] | None:
    if not node.gpu_model:
        return None
    return [AcceptGpuModel(waiting=ANY, gpu_model=node.gpu_model)]


def _other_cpu(pod: Pod, node: Node) -> list[Change] | None:
    known = node.cpu_class
    return [AcceptHostClass(waiting=ANY, part="CPU", name=known)] if known else None


def _other_nic(pod: Pod, node: Node) -> list[Change] | None:
    known = node.nic_class
    return [AcceptHostClass(waiting=ANY, part="NIC", name=known)] if known else None


def _less_choosy(pod: Pod, node: Node, *, terms_hold: bool) -> list[Change]:
    wrong = [key for key, value in pod.node_selector.items() if node.labels.get(key) != value]
    found: list[Change] = [DropSelector(waiting=ANY, key=key) for key in wrong]
    if not terms_hold:
        found.append(DropAffinity(waiting=ANY))
    return found


def _tolerant(missing: Sequence[Taint]) -> list[Change] | None:
    if not all(taint.key for taint in missing):
        return None
    return [TolerateTaint(waiting=ANY, key=t.key, value=t.value, effect=t.effect) for t in missing]


_REMEDIES: Final[dict[PendingReason, Callable[[Pod, Node], list[Change] | None]]] = {
    PendingReason.NO_GPU_MODEL: _other_model,
    PendingReason.NO_CPU_CLASS: _other_cpu,
    PendingReason.NO_NIC_CLASS: _other_nic,
    PendingReason.NO_READY_NODE: lambda pod, node: [ReturnNode(node=node.name)],
    PendingReason.GPU_POWER_UNKNOWN: lambda pod, node: [StatePower(node=node.name)],
    PendingReason.QUARANTINED: lambda pod, node: [LiftQuarantine(waiting=ANY, node=node.name)],
}
