"""Which pods the selectors of other pods select, each resolved once."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["Selection", "Sought", "Spaces", "canonical", "labels_of", "spread_selection"]

_LONGEST_NAME = 300

_NOBODY: Final = {"key": "", "operator": "In", "values": []}
"""What a selector that is not there selects; an empty one selects everybody."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods that all of some selectors select.

    Attributes:
        terms: Selectors as canonical JSON, each with its namespaces; None for all namespaces.
        staying: Whether pods that are being deleted do not count.
    """

    terms: tuple[tuple[frozenset[str] | None, str], ...]
    staying: bool = False

    def holds(self, pod: JsonObject) -> bool:
        """Whether the pod is one of them."""
        metadata = pod["metadata"]
        if self.staying and metadata.get("deletionTimestamp"):
            return False
        space, labels = pod_facts.namespace(pod), metadata.get("labels") or {}
        return all(
            (spaces is None or space in spaces) and _selects(_parsed(selector), labels)
            for spaces, selector in self.terms
        )

    def wanted_labels(self) -> list[tuple[str, str]]:
        """Labels with values, one of which each such pod has; none if it may have others."""
        rule = self._first("In")
        return [] if rule is None else [(rule["key"], value) for value in rule["values"]]

    def wanted_key(self) -> str:
        """Of a label that each such pod has; empty if there is none."""
        rule = self._first("Exists")
        return "" if rule is None else str(rule["key"])

    def _first(self, operator: str) -> Mapping[str, Any] | None:
        rules = (rule for _, text in self.terms for rule in _parsed(text))
        return next((rule for rule in rules if rule["operator"] == operator), None)

    @property
    def name(self) -> str:
        """Unique, and readable as long as it is short."""
        parts = []
        for spaces, selector in self.terms:
            where = "all namespaces" if spaces is None else ",".join(sorted(spaces))
            parts.append(f"{where}: {_words(_parsed(selector))}")
        text = " and ".join(parts) + (" (staying)" if self.staying else "")
        if len(text) <= _LONGEST_NAME:
            return text
        return text[:_LONGEST_NAME] + " #" + hashlib.sha256(text.encode()).hexdigest()[:16]


class Sought:
    """Which selections a pod with some labels has to be asked about, by what they look for.

    Pods with labels of their own are many, and a pod may have any number of rules: asked about each
    of 3,000 selections, 1,400 such pods took 7 s of a cycle.

    Args:
        groups: Selections by name.
    """

    def __init__(self, groups: Mapping[str, Selection]) -> None:
        self._by_value: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._by_key: dict[str, list[str]] = defaultdict(list)
        self._always: list[str] = []
        for name, selection in groups.items():
            if labels := selection.wanted_labels():
                for label in labels:
                    self._by_value[label].append(name)
            elif key := selection.wanted_key():
                self._by_key[key].append(name)
            else:
                self._always.append(name)

    def of(self, labels: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Each once: a selection is filed under one label, and a label has one value."""
        yield from self._always
        for key, value in labels:
            yield from self._by_key.get(key, ())
            yield from self._by_value.get((key, value), ())


class Spaces:
    """Which namespaces a term means.

    Args:
        labels: Of namespaces by name.
    """

    def __init__(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self._labels = labels
        self._selected: dict[str, frozenset[str]] = {}

    def of(self, pod: JsonObject, term: Mapping[str, Any]) -> frozenset[str] | None:
        """Names of the namespaces, None for all: those listed and those selected, or its own.

        Raises:
            InputError: an operator that label selectors lack.
        """
        named = frozenset(str(name) for name in term.get("namespaces") or ())
        selector = term.get("namespaceSelector")
        if selector is None:
            return named or frozenset([pod_facts.namespace(pod)])
        text = canonical(selector)
        if not _parsed(text):
            return None
        if text not in self._selected:
            found = (n for n, has in self._labels.items() if _selects(_parsed(text), has))
            self._selected[text] = frozenset(found)
        return named | self._selected[text]


@lru_cache(maxsize=8192)
def _parsed(selector: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(selector))


def labels_of(pod: JsonObject) -> Iterator[tuple[str, str]]:
    """Those of a template of somebody else's kind may be anything; no selector finds such."""
    for key, value in (pod["metadata"].get("labels") or {}).items():
        if isinstance(value, str):
            yield key, value


def canonical(selector: Mapping[str, Any] | None) -> str:
    """Label selectors that select alike in the plain cases are one text.

    Raises:
        InputError: an operator that label selectors lack.
    """
    if selector is None:
        selector = {"matchExpressions": [_NOBODY]}
    rules = [
        {"key": str(key), "operator": "In", "values": [str(value)]}
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for rule in selector.get("matchExpressions") or ():
        operator = rule.get("operator")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise InputError("labelSelector.operator", "an operator of meta/v1", operator)
        values = sorted({str(value) for value in rule.get("values") or ()})
        rules.append({"key": str(rule.get("key")), "operator": operator, "values": values})
    unique = {json.dumps(rule, sort_keys=True) for rule in rules}
    return json.dumps([json.loads(rule) for rule in sorted(unique)])


def _selects(rules: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    for rule in rules:
        value = labels.get(rule["key"])
        match rule["operator"]:
            case "In":
                holds = value is not None and value in rule["values"]
            case "NotIn":
                holds = value is None or value not in rule["values"]
            case "Exists":
                holds = value is not None
            case _:
                holds = value is None
        if not holds:
            return False
    return True


def _words(rules: Iterable[Mapping[str, Any]]) -> str:
    """As kubectl writes selectors."""
    parts = []
    for rule in rules:
        key, values = rule["key"], ",".join(rule["values"])
        match rule["operator"]:
            case "In":
                single = len(rule["values"]) == 1
                parts.append(f"{key}={values}" if single else f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case _:
                parts.append(f"!{key}")
    return ",".join(parts) or "all pods"


def spread_selection(pod: JsonObject, constraint: Mapping[str, Any]) -> Selection:
    """Whom one of a pod's ``topologySpreadConstraints`` counts.

    Raises:
        InputError: an operator that label selectors lack.
    """
    labels = pod["metadata"].get("labels") or {}
    selector = dict(constraint.get("labelSelector") or {"matchExpressions": [_NOBODY]})
    same = [
        {"key": key, "operator": "In", "values": [labels[key]]}
        for key in constraint.get("matchLabelKeys") or ()
        if key in labels
    ]
    selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *same]
    space = frozenset([pod_facts.namespace(pod)])
    return Selection(((space, canonical(selector)),), staying=True)
