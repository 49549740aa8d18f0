"""Judges what pods want of one another: plain Python, no code shared with the planner.

kube-scheduler binds in an order of its own and tries again who has no place yet. So who keeps apart
or is spread is judged by where everybody is in the end, which holds in some order; who wants
company needs an order in which it finds that company, or is the first of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from scheduler_plugin.documents.peer_rule import PeerRule
from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot

__all__ = ["peer_complaints"]

Suits = Callable[[Pod, Node], bool]


def peer_complaints(
    snapshot: Snapshot, placements: tuple[Placement, ...], suits: Suits, tolerates: Suits
) -> list[str]:
    """Pods that no order lets go where they are sent.

    Args:
        snapshot: What the plan was made for.
        placements: Of the plan; who arrives elsewhere is of no concern to anybody (``_steps``).
        suits: Whether a pod's selector and affinity match a node.
        tolerates: Whether a pod tolerates all of a node's taints.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    pods = {pod.uid: pod for pod in snapshot.pods}
    chosen = [(pods[p.uid], nodes[p.node]) for p in placements]
    chosen = [(pod, node) for pod, node in chosen if pod.groups or pod.peer_rules]
    there = _There(nodes, suits, tolerates)
    for pod in snapshot.pods:
        if pod.node in nodes and (pod.groups or pod.peer_rules):
            there.arrives(pod, nodes[pod.node])
    found = _lonely(there, chosen)
    for pod, node in chosen:
        found += [f"pod {pod.uid} on node {node.name}: {why}" for why in there.crowded(pod, node)]
    return found


def _lonely(there: _There, chosen: list[tuple[Pod, Node]]) -> list[str]:
    """Who never finds its company; everybody else has arrived afterwards."""
    # The first of a group that wants its own company may go anywhere: it has to come first.
    left = sorted(chosen, key=lambda one: not _wants_company(one[0]))
    while left:
        alone: list[tuple[Pod, Node]] = []
        for pod, node in left:
            if there.is_alone(pod, node):
                alone.append((pod, node))
            else:
                there.arrives(pod, node)
        if len(alone) == len(left):
            return [f"pod {p.uid} on node {n.name}: none of its group is near" for p, n in alone]
        left = alone
    return []


def _wants_company(pod: Pod) -> bool:
    return bool([rule for rule in pod.peer_rules if rule.kind.value == "together"])


class _There:
    """Who is where."""

    def __init__(self, nodes: dict[str, Node], suits: Suits, tolerates: Suits) -> None:
        self._nodes, self._suits, self._tolerates = nodes, suits, tolerates
        self._in_domain: Counter[tuple[str, str, str]] = Counter()
        self._on_node: Counter[tuple[str, str]] = Counter()
        self._keeps_out: Counter[tuple[str, str, str]] = Counter()
        self._apart_by: defaultdict[str, set[str]] = defaultdict(set)
        self._countable: dict[str, list[Node]] = {}
        self._sums: dict[tuple[str, str, str], Counter[str]] = {}

    def arrives(self, pod: Pod, node: Node) -> None:
        self._sums.clear()
        for group in pod.groups:
            self._on_node[group, node.name] += 1
            for key, value in node.labels.items():
                self._in_domain[group, key, value] += 1
        for rule in pod.peer_rules:
            if rule.kind.value == "apart" and rule.topology_key in node.labels:
                value = node.labels[rule.topology_key]
                self._keeps_out[rule.group, rule.topology_key, value] += 1
                self._apart_by[rule.group].add(rule.topology_key)

    def is_alone(self, pod: Pod, node: Node) -> bool:
        wanted = [rule for rule in pod.peer_rules if rule.kind.value == "together"]
        if [rule for rule in wanted if rule.topology_key not in node.labels]:
            return True
        near = [self._count(rule.group, rule.topology_key, node) for rule in wanted]
        return not all(near) and not self._is_first(pod)

    def crowded(self, pod: Pod, node: Node) -> list[str]:
        """What is wrong about where a pod is that has arrived."""
        found = []
        mine = [(r.group, r.topology_key) for r in pod.peer_rules if r.kind.value == "apart"]
        for group in pod.groups:
            for key in sorted(self._apart_by[group] & node.labels.keys()):
                others = self._keeps_out[group, key, node.labels[key]] - mine.count((group, key))
                if others > 0:
                    found.append(f"a pod there keeps {group} out of its {key}")
        for group, key in mine:
            if self._count(group, key, node) > (group in pod.groups):
                found.append(f"one of {group} is in its {key}")
        for rule in pod.peer_rules:
            if rule.kind.value == "spread" and (why := self._uneven(pod, node, rule)):
                found.append(why)
        return found

    def _count(self, group: str, key: str, node: Node) -> int:
        return self._in_domain[group, key, node.labels[key]] if key in node.labels else 0

    def _is_first(self, pod: Pod) -> bool:
        wanted = [rule for rule in pod.peer_rules if rule.kind.value == "together"]
        anywhere = sum(
            count
            for (group, key, _), count in self._in_domain.items()
            if [r for r in wanted if (r.group, r.topology_key) == (group, key)]
        )
        return not anywhere and all(rule.group in pod.groups for rule in wanted)

    def _uneven(self, pod: Pod, node: Node, rule: PeerRule) -> str:
        group, key = rule.group, rule.topology_key
        if key not in node.labels:
            return f"the node has no {key}"
        totals = self._totals(pod, rule)
        emptiest = min(totals.values(), default=0)
        if len(totals) < rule.min_domains:
            emptiest = 0
        here = totals.get(node.labels[key], 0)
        if here - emptiest > rule.max_skew:
            return f"{here} of {group} in its {key}, {emptiest} in the emptiest"
        return ""

    def _totals(self, pod: Pod, rule: PeerRule) -> Counter[str]:
        """Members of the rule's group in each domain; kept until somebody arrives."""
        name, counted = self._domains(pod, rule.any_node, rule.only_tolerated)
        asked = name, rule.group, rule.topology_key
        if asked not in self._sums:
            totals = Counter({node.labels[rule.topology_key]: 0 for node in counted})
            for node in counted:
                totals[node.labels[rule.topology_key]] += self._on_node[rule.group, node.name]
            self._sums[asked] = totals
        return self._sums[asked]

    def _domains(self, pod: Pod, any_node: bool, only_tolerated: bool) -> tuple[str, list[Node]]:
        """Nodes whose domains count, by a name; kept, since replicas ask alike."""
        keys = sorted({r.topology_key for r in pod.peer_rules if r.kind.value == "spread"})
        asked = [pod.node_selector, pod.required_terms, pod.tolerations, any_node, only_tolerated]
        name = repr([keys, *asked])
        if name not in self._countable:
            self._countable[name] = [
                node
                for node in self._nodes.values()
                if all(key in node.labels for key in keys)
                and (any_node or self._suits(pod, node))
                and (not only_tolerated or self._tolerates(pod, node))
            ]
        return name, self._countable[name]
