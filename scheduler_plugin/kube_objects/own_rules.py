"""A pod's own rules about nodes as a snapshot has them, also those of the pod that replaces it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

from scheduler_plugin.documents.node_rules import (
    NodeTerm,
    Preference,
    Requirement,
    TaintEffect,
    Toleration,
)
from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.object_names import DEFAULT_SCHEDULER

MOST_ALTERNATIVES: Final = 10_000
"""Each volume with alternatives multiplies them; far beyond what people write (assumed)."""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Their deleted pods are failures, or come back on the same node.
_UNMOVABLE_OWNERS = ("Job", "DaemonSet")


def rules_of(
    spec: Mapping[str, Any], places: Iterable[Iterable[Mapping[str, Any]]] = ()
) -> dict[str, Any]:
    """Selector, required and preferred affinity, tolerations.

    Args:
        spec: Of the pod.
        places: Alternatives of node terms that have to hold beside its affinity, each of them.

    Raises:
        InputError: an operator that core/v1 lacks.
        ValueError: an effect that it lacks.
    """
    return {
        "node_selector": dict(spec.get("nodeSelector") or {}),
        "required_terms": reduce(_both, map(_node_terms, places), _terms(spec)),
        "preferences": tuple(_preferences(spec)),
        "tolerations": tuple(_toleration(t) for t in spec.get("tolerations") or ()),
    }


def rules_of_next(pod: JsonObject) -> dict[str, Any] | None:
    """Those of the pod that its owner would create in its place: without our pin.

    None where nobody would, where a deleted pod counts as a failure, or where another scheduler or
    a claim decides.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    owners = {str(o.get("kind")) for o in metadata.get("ownerReferences") or ()}
    elsewhere = spec.get("schedulerName", DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER
    leaving = bool(metadata.get("deletionTimestamp"))
    claims = bool(spec.get("resourceClaims"))
    if pod_facts.is_bare(pod) or owners & set(_UNMOVABLE_OWNERS) or elsewhere or leaving or claims:
        return None
    try:
        rules = rules_of(spec)
    except (InputError, ValueError):
        return None
    if pod_facts.pinned_node(pod):
        rules["required_terms"] = _without_pin(rules["required_terms"])
    return rules


def _without_pin(terms: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """A term that was nothing but our pin is ours as a whole."""
    kept = [
        term.model_copy(
            update={"match_fields": tuple(r for r in term.match_fields if r.key != "metadata.name")}
        )
        for term in terms
    ]
    return tuple(term for term in kept if term.match_expressions or term.match_fields)


def _terms(spec: Mapping[str, Any]) -> tuple[NodeTerm, ...]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED) or {}
    return _node_terms(required.get("nodeSelectorTerms") or ())


def _preferences(spec: Mapping[str, Any]) -> Iterator[Preference]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    for each in affinity.get(_PREFERRED) or ():
        (term,) = _node_terms([each.get("preference") or {}])
        # An empty one matches all nodes alike.
        if term.match_expressions or term.match_fields:
            yield Preference(weight=each.get("weight"), term=term)


def _both(one: tuple[NodeTerm, ...], other: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """Alternatives of which each fulfils one of both; none at all asks for nothing."""
    if not one or not other:
        return one or other
    if (count := len(one) * len(other)) > MOST_ALTERNATIVES:
        expected = f"at most {MOST_ALTERNATIVES} alternatives together with those of its volumes"
        raise InputError("nodeSelectorTerms", expected, count)
    return tuple(
        NodeTerm(
            match_expressions=a.match_expressions + b.match_expressions,
            match_fields=a.match_fields + b.match_fields,
        )
        for a in one
        for b in other
        # An empty term matches no node, and neither does it together with another one.
        if (a.match_expressions or a.match_fields) and (b.match_expressions or b.match_fields)
    ) or (NodeTerm(),)


def _node_terms(terms: Iterable[Mapping[str, Any]]) -> tuple[NodeTerm, ...]:
    return tuple(
        NodeTerm(
            match_expressions=tuple(_requirement(r) for r in t.get("matchExpressions") or ()),
            match_fields=tuple(_requirement(r) for r in t.get("matchFields") or ()),
        )
        for t in terms
    )


def _requirement(rule: Mapping[str, Any]) -> Requirement:
    operator = rule.get("operator")
    if operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
        raise InputError("nodeSelectorTerms.operator", "an operator of core/v1", operator)
    values = tuple(str(v) for v in rule.get("values") or ())
    return Requirement(key=str(rule.get("key", "")), operator=operator, values=values)


def _toleration(body: Mapping[str, Any]) -> Toleration:
    effect = body.get("effect")
    return Toleration(
        key=str(body.get("key") or ""),
        operator="Exists" if body.get("operator") == "Exists" else "Equal",
        value=str(body.get("value") or ""),
        effect=TaintEffect(effect) if effect else None,
    )
