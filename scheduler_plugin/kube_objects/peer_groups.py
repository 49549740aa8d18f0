"""Pod (anti-)affinity and topology spread of Kubernetes pods, as a snapshot's groups and rules.

Only required rules: ``requiredDuringScheduling…`` and ``whenUnsatisfiable: DoNotSchedule``. A
``namespaceSelector`` is resolved by the labels of the namespaces that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["PeerGroups"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LONGEST_NAME = 300
MOST_RULES: Final = 100
"""Of one waiting pod; each may be another group that all pods are asked about (assumed)."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """Pods that all of some selectors select.

    Attributes:
        terms: Selectors as canonical JSON, each with its namespaces; None for all namespaces.
        staying: Whether pods that are being deleted do not count.
    """

    terms: tuple[tuple[frozenset[str] | None, str], ...]
    staying: bool = False

    def holds(self, pod: JsonObject) -> bool:
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


_Wanted = tuple[_Selection, PeerRule]


class PeerGroups:
    """Groups and rules of all pods, as far as a pod without a node is concerned with them.

    Args:
        pods: All pods, as the API server shows them.
        namespaces: Labels of namespaces by name; whose labels are not known is selected by ``{}``
            only.
    """

    def __init__(
        self, pods: Iterable[JsonObject], namespaces: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        spaces = _Spaces(namespaces or {})
        alive = [pod for pod in pods if not pod_facts.is_finished(pod)]
        waiting = [pod for pod in alive if not pod_facts.node_name(pod)]
        self._rules: dict[str, tuple[PeerRule, ...]] = {}
        self._unreadable: dict[str, InputError] = {}
        groups: dict[str, _Selection] = {}
        for pod in waiting:
            try:
                wanted = _wanted(pod, spaces)
            except InputError as error:
                self._unreadable[pod_facts.uid(pod)] = error
                continue
            if wanted:
                self._rules[pod_facts.uid(pod)] = tuple(rule for _, rule in wanted)
                groups |= {selection.name: selection for selection, _ in wanted}
        repelling = _Repelling(waiting, spaces)
        for pod in alive:
            if pod_facts.node_name(pod) and (repels := repelling.of(pod)):
                self._rules[pod_facts.uid(pod)] = tuple(rule for _, rule in repels)
                groups |= {selection.name: selection for selection, _ in repels}
        self._groups = groups
        self._sought = _Sought(groups)
        self._kinds: dict[str, tuple[str, ...]] = {}

    def of(self, pod: JsonObject) -> dict[str, Any]:
        """The fields ``groups`` and ``peer_rules`` of a snapshot's pod."""
        if not self._groups:
            return {}
        rules = self._rules.get(pod_facts.uid(pod), ())
        return {"groups": self._groups_of(pod), "peer_rules": rules}

    def of_waiting(self, pod: JsonObject) -> dict[str, Any]:
        """The same of a pod that is to be planned.

        Raises:
            InputError: if its rules cannot be read.
        """
        if error := self._unreadable.get(pod_facts.uid(pod)):
            raise error
        return self.of(pod)

    def _groups_of(self, pod: JsonObject) -> tuple[str, ...]:
        """Looked up once for all pods with the same labels: those of a template have them."""
        metadata = pod["metadata"]
        leaving = bool(metadata.get("deletionTimestamp"))
        kind = json.dumps([metadata.get("namespace"), metadata.get("labels"), leaving])
        if kind not in self._kinds:
            asked = self._sought.of(_labels(pod))
            self._kinds[kind] = tuple(sorted(n for n in asked if self._groups[n].holds(pod)))
        return self._kinds[kind]


class _Sought:
    """Which selections a pod with some labels has to be asked about, by what they look for.

    Pods with labels of their own are many, and a pod may have any number of rules: asked about each
    of 3,000 selections, 1,400 such pods took 7 s of a cycle.

    Args:
        groups: Selections by name.
    """

    def __init__(self, groups: Mapping[str, _Selection]) -> None:
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


class _Spaces:
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
        canonical = _canonical(selector)
        if not _parsed(canonical):
            return None
        if canonical not in self._selected:
            found = (n for n, has in self._labels.items() if _selects(_parsed(canonical), has))
            self._selected[canonical] = frozenset(found)
        return named | self._selected[canonical]


class _Repelling:
    """Anti-affinity of pods with a node that keeps waiting ones away.

    Args:
        waiting: Pods without a node.
        spaces: Which namespaces terms mean.
    """

    def __init__(self, waiting: list[JsonObject], spaces: _Spaces) -> None:
        self._waiting, self._spaces = waiting, spaces
        self._with: dict[tuple[str, str], list[JsonObject]] = defaultdict(list)
        for pod in waiting:
            for label in _labels(pod):
                self._with[label].append(pod)
        self._seen: dict[str, list[_Wanted]] = {}

    def of(self, pod: JsonObject) -> list[_Wanted]:
        """Looked up once for all pods of the same template."""
        terms = _terms(pod, "podAntiAffinity")
        if not terms:
            return []
        template = json.dumps([pod["metadata"].get("namespace"), terms])
        if template not in self._seen:
            try:
                found = _apart(pod, self._spaces)
            except InputError:
                found = []  # admitted all the same: kube-scheduler cannot use it either
            self._seen[template] = [one for one in found if self._keeps_away(one[0])]
        return self._seen[template]

    def _keeps_away(self, selection: _Selection) -> bool:
        labels = selection.wanted_labels()
        some = chain.from_iterable(self._with.get(label, ()) for label in labels)
        return any(map(selection.holds, some if labels else self._waiting))


@lru_cache(maxsize=4096)
def _parsed(selector: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(selector))


def _labels(pod: JsonObject) -> Iterator[tuple[str, str]]:
    """Those of a template of somebody else's kind may be anything; no selector finds such."""
    for key, value in (pod["metadata"].get("labels") or {}).items():
        if isinstance(value, str):
            yield key, value


def _wanted(pod: JsonObject, spaces: _Spaces) -> list[_Wanted]:
    count = len(_terms(pod, "podAntiAffinity")) + len(_terms(pod, "podAffinity"))
    count += len(pod["spec"].get("topologySpreadConstraints") or ())
    if count > MOST_RULES:
        raise InputError("affinity", f"at most {MOST_RULES} rules about other pods", count)
    return [*_apart(pod, spaces), *_together(pod, spaces), *_spread(pod)]


def _apart(pod: JsonObject, spaces: _Spaces) -> list[_Wanted]:
    found = []
    for term in _terms(pod, "podAntiAffinity"):
        selection = _Selection(((spaces.of(pod, term), _canonical(term.get("labelSelector"))),))
        found.append((selection, _rule(PeerKind.APART, selection, term)))
    return found


def _together(pod: JsonObject, spaces: _Spaces) -> list[_Wanted]:
    """A pod counts if all terms select it; each term may name another key."""
    terms = _terms(pod, "podAffinity")
    selection = _Selection(
        tuple((spaces.of(pod, term), _canonical(term.get("labelSelector"))) for term in terms)
    )
    return [(selection, _rule(PeerKind.TOGETHER, selection, term)) for term in terms]


def _spread(pod: JsonObject) -> list[_Wanted]:
    found = []
    labels = pod["metadata"].get("labels") or {}
    space = frozenset([pod_facts.namespace(pod)])
    for constraint in pod["spec"].get("topologySpreadConstraints") or ():
        if constraint.get("whenUnsatisfiable") != "DoNotSchedule":
            continue
        selector = dict(constraint.get("labelSelector") or {"matchExpressions": [_NOBODY]})
        same = [
            {"key": key, "operator": "In", "values": [labels[key]]}
            for key in constraint.get("matchLabelKeys") or ()
            if key in labels
        ]
        selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *same]
        selection = _Selection(((space, _canonical(selector)),), staying=True)
        rule = _rule(PeerKind.SPREAD, selection, constraint)
        found.append(
            (
                selection,
                rule.model_copy(
                    update={
                        "max_skew": _positive(constraint, "maxSkew"),
                        "min_domains": _positive(constraint, "minDomains"),
                        "any_node": constraint.get("nodeAffinityPolicy") == "Ignore",
                        "only_tolerated": constraint.get("nodeTaintsPolicy") == "Honor",
                    }
                ),
            )
        )
    return found


#: A selector that is not there selects nobody, an empty one everybody.
_NOBODY = {"key": "", "operator": "In", "values": []}


def _terms(pod: JsonObject, kind: str) -> list[Mapping[str, Any]]:
    affinity = pod["spec"].get("affinity") or {}
    return list((affinity.get(kind) or {}).get(_REQUIRED) or ())


def _rule(kind: PeerKind, selection: _Selection, term: Mapping[str, Any]) -> PeerRule:
    key = str(term.get("topologyKey") or "")
    if not key or len(key) > 640:
        raise InputError("topologyKey", "a label of nodes", key)
    return PeerRule(kind=kind, group=selection.name, topology_key=key)


def _canonical(selector: Mapping[str, Any] | None) -> str:
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


def _positive(constraint: Mapping[str, Any], field: str) -> int:
    value = constraint.get(field)
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000:
        raise InputError(f"topologySpreadConstraints.{field}", "a whole number from 1", value)
    return value
