"""Selectors and node affinity over many nodes at once.

A pod may list hundreds of alternatives, by name of node for example. Asked one by one on each of a
thousand nodes, 20 such pods took 12 s of a cycle; here an expression costs one look-up for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.node_rules import NodeTerm, Requirement
from scheduler_plugin.documents.snapshot import Node, Pod

__all__ = ["LabelIndex"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
_NAME = "metadata.name"


class _Column:
    """One label of all nodes: the number of its value, -1 without it."""

    def __init__(self, values: Sequence[str | None]) -> None:
        self._number: dict[str, int] = {}
        numbers = (
            -1 if value is None else self._number.setdefault(value, len(self._number))
            for value in values
        )
        self._of_node: IntArray = np.fromiter(numbers, dtype=np.int64, count=len(values))
        self._whole: list[tuple[int, int]] | None = None

    @property
    def there(self) -> BoolArray:
        """Nodes that have the label, (n,)."""
        return np.asarray(self._of_node >= 0)

    def among(self, values: Iterable[str]) -> BoolArray:
        """Nodes whose value is one of these, (n,)."""
        known = [self._number[value] for value in set(values) if value in self._number]
        if len(known) == 1:
            return np.asarray(self._of_node == known[0])
        return np.isin(self._of_node, known)

    def compared(self, rule: Requirement) -> BoolArray:
        """Gt and Lt: whole numbers on both sides; anything else never matches, (n,)."""
        limit = _whole(rule.values[0]) if len(rule.values) == 1 else None
        if limit is None:
            return np.zeros(len(self._of_node), dtype=np.bool_)
        if self._whole is None:
            parsed = ((number, _whole(value)) for value, number in self._number.items())
            self._whole = [(number, value) for number, value in parsed if value is not None]
        greater = rule.operator == "Gt"
        held = [n for n, value in self._whole if (value > limit if greater else value < limit)]
        return np.isin(self._of_node, held)


class LabelIndex:
    """Labels and names of nodes.

    Args:
        nodes: Whose, (n,).

    Attributes:
        keys: Of the labels that any of them has.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self.keys: frozenset[str] = frozenset().union(*(node.labels for node in nodes))
        self._columns: dict[tuple[str, bool], _Column] = {}

    def suits(self, pod: Pod) -> BoolArray:
        """Nodes on which node selector and required node affinity hold, (n,)."""
        return self.selected(pod.node_selector.items()) & self.any_of(pod.required_terms)

    def selected(self, labels: Iterable[tuple[str, str]]) -> BoolArray:
        """Nodes with all of these labels, (n,)."""
        found = np.ones(len(self._nodes), dtype=np.bool_)
        for key, value in labels:
            found &= self._column(key).among((value,))
        return found

    def any_of(self, terms: Sequence[NodeTerm]) -> BoolArray:
        """Nodes that fulfil one of these alternatives, all nodes for none, (n,)."""
        found = np.full(len(self._nodes), not terms, dtype=np.bool_)
        for term in terms:
            found |= self.matches(term)
        return found

    def matches(self, term: NodeTerm) -> BoolArray:
        """Nodes that fulfil all expressions of a term, none for an empty one, (n,)."""
        empty = not (term.match_expressions or term.match_fields)
        found = np.full(len(self._nodes), not empty, dtype=np.bool_)
        for rule in term.match_expressions:
            found &= self._holds(rule, self._column(rule.key))
        for rule in term.match_fields:
            found &= self._holds(rule, self._column(rule.key, field=True))
        return found

    def _holds(self, rule: Requirement, column: _Column) -> BoolArray:
        match rule.operator:
            case "In":
                return column.among(rule.values)
            case "NotIn":
                return ~column.among(rule.values)
            case "Exists":
                return column.there
            case "DoesNotExist":
                return ~column.there
            case _:
                return column.compared(rule)

    def _column(self, key: str, *, field: bool = False) -> _Column:
        if not field and key not in self.keys:
            key = ""  # As nobody has it, it is like any other that nobody has.
        if (key, field) not in self._columns:
            own = [node.name if key == _NAME else None for node in self._nodes] if field else []
            self._columns[key, field] = _Column(own or [n.labels.get(key) for n in self._nodes])
        return self._columns[key, field]


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
