"""Nodes that every static rule treats alike, so that a rule is asked once for all of them.

Of 5,000 nodes a few dozen differ in what rules look at: GPU model, taints, readiness, and of the
labels only those that some pod selects by.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.node_rules import Taint
from scheduler_plugin.documents.snapshot import Node, Pod
from scheduler_plugin.rules.label_index import LabelIndex

__all__ = ["NodeKinds", "node_kinds"]

_LOOKED_AT = attrgetter(
    *("gpu_model", "cpu_class", "nic_class"),
    *("taints", "ready", "schedulable", "disrupted", "feed_known"),
)
_BY_EQUALITY = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True, slots=True)
class NodeKinds:
    """Kinds of nodes.

    Attributes:
        of_node: The kind of each node, shape (n,).
        examples: A node of each kind.
        labels: Theirs.
        taints: Of all of them, each once.
    """

    of_node: npt.NDArray[np.intp]
    examples: tuple[Node, ...]
    labels: LabelIndex
    taints: frozenset[Taint]

    def mask(self, holds: Callable[[Node], bool]) -> npt.NDArray[np.bool_]:
        """Nodes for which it holds, shape (n,), asked once a kind."""
        answers = np.fromiter(map(holds, self.examples), dtype=np.bool_, count=len(self.examples))
        return answers[self.of_node]

    def amounts(self, of: Callable[[Node], int]) -> npt.NDArray[np.int64]:
        """A figure of each node, shape (n,), asked once a kind."""
        answers = np.fromiter(map(of, self.examples), dtype=np.int64, count=len(self.examples))
        return answers[self.of_node]


def node_kinds(nodes: Sequence[Node], pods: Iterable[Pod]) -> NodeKinds:
    """Kinds for rules about these pods.

    Args:
        nodes: All of them.
        pods: One of each kind of pods that will be asked about.
    """
    labels, names = _named_by(pods)
    # A pod may name thousands of labels that no node has.
    there = frozenset().union(*(node.labels for node in nodes))
    labels = tuple(label for label in labels if label in there)
    kinds: dict[Hashable, int] = {}
    examples: list[Node] = []
    of_node = np.empty(len(nodes), dtype=np.intp)
    for i, node in enumerate(nodes):
        own = node.name if names is None or node.name in names else ""
        key = (_LOOKED_AT(node), tuple(map(node.labels.get, labels)), own)
        kind = kinds.setdefault(key, len(examples))
        if kind == len(examples):
            examples.append(node)
        of_node[i] = kind
    taints = frozenset(taint for node in examples for taint in node.taints)
    return NodeKinds(of_node, tuple(examples), LabelIndex(examples), taints)


def _named_by(pods: Iterable[Pod]) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """Labels and node names that a pod asks for; None for names where any may matter."""
    labels: set[str] = set()
    names: set[str] = set()
    any_name = False
    for pod in pods:
        labels.update(pod.node_selector)
        names.update(pod.excluded_nodes)
        for term in (*pod.required_terms, *(wish.term for wish in pod.preferences)):
            labels.update(rule.key for rule in term.match_expressions)
            for rule in term.match_fields:
                any_name = any_name or rule.operator not in _BY_EQUALITY
                names.update(rule.values)
    return tuple(sorted(labels)), None if any_name else frozenset(names)
