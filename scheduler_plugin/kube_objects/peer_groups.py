"""Pod (anti-)affinity and topology spread of Kubernetes pods, as a snapshot's groups and rules.

Rules are what is required: ``requiredDuringScheduling…`` and ``whenUnsatisfiable: DoNotSchedule``;
what is preferred are wishes. A ``namespaceSelector`` is resolved by the labels of the namespaces
that are there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.pod_selections import (
    Selection,
    Sought,
    Spaces,
    canonical,
    labels_of,
    spread_selection,
)
from scheduler_plugin.kube_objects.rule_budget import RuleBudget
from scheduler_plugin.kube_objects.wished_peers import affordable_wishes
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["PeerGroups"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MOST_RULES: Final = 100
"""Of one waiting pod; each may be another group that all pods are asked about (assumed)."""


_Wanted = tuple[Selection, PeerRule]


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
        spaces = Spaces(namespaces or {})
        alive = [pod for pod in pods if not pod_facts.is_finished(pod)]
        waiting = [pod for pod in alive if not pod_facts.node_name(pod)]
        self._rules: dict[str, tuple[PeerRule, ...]] = {}
        self._unreadable: dict[str, InputError] = {}
        groups: dict[str, Selection] = {}
        budget = RuleBudget(alive)
        for pod in waiting:
            try:
                wanted = _wanted(pod, spaces)
                if not budget.admits(pod, (selection for selection, _ in wanted)):
                    expected = "fewer different rules about other pods in its namespace"
                    raise InputError("affinity", expected, f"{len(wanted)} more")
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
        self._groups = _Membership(groups)
        wishes = affordable_wishes(waiting, alive, spaces)
        self._wishes = {uid: tuple(wish for _, wish in each) for uid, each in wishes.items()}
        wished = (selection for each in wishes.values() for selection, _ in each)
        self._wished = _Membership({selection.name: selection for selection in wished})

    def of(self, pod: JsonObject) -> dict[str, Any]:
        """What a snapshot's pod has of ``groups``, ``peer_rules`` and both of wishes."""
        uid, found = pod_facts.uid(pod), dict[str, Any]()
        if self._groups.are_any:
            found |= {"groups": self._groups.of(pod), "peer_rules": self._rules.get(uid, ())}
        if self._wished.are_any:
            wishes = self._wishes.get(uid, ())
            found |= {"wished_groups": self._wished.of(pod), "peer_wishes": wishes}
        return found

    def of_waiting(self, pod: JsonObject) -> dict[str, Any]:
        """The same of a pod that is to be planned.

        Raises:
            InputError: if its rules cannot be read.
        """
        if error := self._unreadable.get(pod_facts.uid(pod)):
            raise error
        return self.of(pod)


class _Membership:
    """Which of some selections select a pod.

    Args:
        groups: Selections by name.
    """

    def __init__(self, groups: Mapping[str, Selection]) -> None:
        self.are_any = bool(groups)
        self._groups, self._sought = groups, Sought(groups)
        self._kinds: dict[str, tuple[str, ...]] = {}

    def of(self, pod: JsonObject) -> tuple[str, ...]:
        """Looked up once for all pods with the same labels: those of a template have them."""
        metadata = pod["metadata"]
        leaving = bool(metadata.get("deletionTimestamp"))
        kind = json.dumps([metadata.get("namespace"), metadata.get("labels"), leaving])
        if kind not in self._kinds:
            asked = self._sought.of(labels_of(pod))
            self._kinds[kind] = tuple(sorted(n for n in asked if self._groups[n].holds(pod)))
        return self._kinds[kind]


class _Repelling:
    """Anti-affinity of pods with a node that keeps waiting ones away.

    Args:
        waiting: Pods without a node.
        spaces: Which namespaces terms mean.
    """

    def __init__(self, waiting: list[JsonObject], spaces: Spaces) -> None:
        self._waiting, self._spaces = waiting, spaces
        self._with: dict[tuple[str, str], list[JsonObject]] = defaultdict(list)
        for pod in waiting:
            for label in labels_of(pod):
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

    def _keeps_away(self, selection: Selection) -> bool:
        labels = selection.wanted_labels()
        some = chain.from_iterable(self._with.get(label, ()) for label in labels)
        return any(map(selection.holds, some if labels else self._waiting))


def _wanted(pod: JsonObject, spaces: Spaces) -> list[_Wanted]:
    count = len(_terms(pod, "podAntiAffinity")) + len(_terms(pod, "podAffinity"))
    count += len(pod["spec"].get("topologySpreadConstraints") or ())
    if count > MOST_RULES:
        raise InputError("affinity", f"at most {MOST_RULES} rules about other pods", count)
    return [*_apart(pod, spaces), *_together(pod, spaces), *_spread(pod)]


def _apart(pod: JsonObject, spaces: Spaces) -> list[_Wanted]:
    found = []
    for term in _terms(pod, "podAntiAffinity"):
        selection = Selection(((spaces.of(pod, term), canonical(term.get("labelSelector"))),))
        found.append((selection, _rule(PeerKind.APART, selection, term)))
    return found


def _together(pod: JsonObject, spaces: Spaces) -> list[_Wanted]:
    """A pod counts if all terms select it; each term may name another key."""
    terms = _terms(pod, "podAffinity")
    selection = Selection(
        tuple((spaces.of(pod, term), canonical(term.get("labelSelector"))) for term in terms)
    )
    return [(selection, _rule(PeerKind.TOGETHER, selection, term)) for term in terms]


def _spread(pod: JsonObject) -> list[_Wanted]:
    found = []
    for constraint in pod["spec"].get("topologySpreadConstraints") or ():
        if constraint.get("whenUnsatisfiable") != "DoNotSchedule":
            continue
        selection = spread_selection(pod, constraint)
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


def _terms(pod: JsonObject, kind: str) -> list[Mapping[str, Any]]:
    affinity = pod["spec"].get("affinity") or {}
    return list((affinity.get(kind) or {}).get(_REQUIRED) or ())


def _rule(kind: PeerKind, selection: Selection, term: Mapping[str, Any]) -> PeerRule:
    key = str(term.get("topologyKey") or "")
    if not key or len(key) > 640:
        raise InputError("topologyKey", "a label of nodes", key)
    return PeerRule(kind=kind, group=selection.name, topology_key=key)


def _positive(constraint: Mapping[str, Any], field: str) -> int:
    value = constraint.get(field)
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000:
        raise InputError(f"topologySpreadConstraints.{field}", "a whole number from 1", value)
    return value
