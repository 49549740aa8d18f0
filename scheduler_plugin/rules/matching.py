"""Which nodes a pod may use at all: GPU model, selector, affinity, taints.

The rules are those of core/v1 as kube-scheduler applies them, because it binds in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler_plugin.documents.node_rules import (
    NodeTerm,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
)
from scheduler_plugin.documents.snapshot import Node, Pod


def affinity_matches(pod: Pod, node: Node) -> bool:
    """Node selector and required node affinity hold on the node."""
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    if not pod.required_terms:
        return True
    return any(_term_matches(term, node) for term in pod.required_terms)


def taints_tolerated(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> bool:
    """Every taint that blocks scheduling is tolerated."""
    return all(
        taint.effect is TaintEffect.PREFER_NO_SCHEDULE or tolerates(tolerations, taint)
        for taint in taints
    )


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """One of the tolerations covers the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect is not None and toleration.effect is not taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _term_matches(term: NodeTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(rule, node.labels) for rule in term.match_expressions) and all(
        _holds(rule, fields) for rule in term.match_fields
    )


def _holds(rule: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(rule.key)
    match rule.operator:
        case "In":
            return value is not None and value in rule.values
        case "NotIn":
            return value is None or value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(rule, value)


def _compares(rule: Requirement, value: str | None) -> bool:
    """Gt and Lt compare whole numbers; anything else never matches."""
    if value is None or len(rule.values) != 1:
        return False
    try:
        have, limit = int(value), int(rule.values[0])
    except ValueError:
        return False
    return have > limit if rule.operator == "Gt" else have < limit
