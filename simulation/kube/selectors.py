"""Label and field selectors, as the API server reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from wattpack.kube.port import InvalidError, JsonObject, Resource

Predicate = Callable[[JsonObject], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")

# Fields beyond metadata.name and metadata.namespace that the API server offers, by plural.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase"),
    "nodes": ("spec.unschedulable",),
    "events": ("reason", "type", "regarding.name", "regarding.kind", "reportingController"),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
}


def label_predicate(selector: str) -> Predicate:
    """Whether an object's labels match ``a=b,c!=d,e in (f,g),!h``.

    Raises:
        InvalidError: if the selector cannot be read.
    """
    terms = [_label_term(term) for term in _split(selector)]

    def matches(body: JsonObject) -> bool:
        labels = body["metadata"].get("labels") or {}
        return all(term(labels) for term in terms)

    return matches


def field_predicate(resource: Resource, selector: str) -> Predicate:
    """Whether an object's fields match ``spec.nodeName=a,status.phase!=Failed``.

    Raises:
        InvalidError: if the selector cannot be read or the field is not offered for the kind.
    """
    offered = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource.plural, ()))
    terms: list[tuple[list[str], bool, str]] = []
    for term in _split(selector):
        matched = re.fullmatch(r"([A-Za-z.]+)\s*(==|=|!=)\s*(.*)", term)
        if matched is None:
            raise InvalidError(f"field selector {term!r} is not field=value")
        field, operator, value = matched.groups()
        if field not in offered:
            raise InvalidError(f"field label not supported for {resource.plural}: {field}")
        terms.append((field.split("."), operator != "!=", value))

    def matches(body: JsonObject) -> bool:
        return all((_text(body, path) == value) == wanted for path, wanted, value in terms)

    return matches


def _text(body: JsonObject, path: list[str]) -> str:
    node: object = body
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if node is None:
        return ""
    return str(node).lower() if isinstance(node, bool) else str(node)


def _split(selector: str) -> list[str]:
    """The terms; commas inside parentheses do not separate."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", selector) if term.strip()]


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if matched := _EQUALITY.fullmatch(term):
        key, operator, value = matched.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if matched := _SET.fullmatch(term):
        key, operator, listed = matched.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "notin":
            return lambda labels: labels.get(key) not in values
        return lambda labels: labels.get(key) in values
    if matched := _EXISTS.fullmatch(term):
        negated, key = matched.groups()
        return lambda labels: (key in labels) != bool(negated)
    raise InvalidError(f"label selector {term!r} cannot be read")
