"""What a request says: which object, under which conditions, which part of it."""

from __future__ import annotations

from collections.abc import Mapping

from simulation.kube import kinds
from simulation.kube.object_store import Key
from simulation.kube.selectors import Predicate, field_predicate, label_predicate
from wattpack.kube.port import (
    ConflictError,
    InvalidError,
    JsonObject,
    NotFoundError,
    Resource,
    WatchEvent,
)
from wattpack.kube.values import copy_json, same

# What the API server alone writes into metadata.
SYSTEM_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


def detached(body: JsonObject) -> JsonObject:
    """A copy that the caller may change."""
    copied: JsonObject = copy_json(body)
    return copied


def metadata(body: JsonObject) -> JsonObject:
    """The object's metadata, or ``InvalidError``."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise InvalidError(f"metadata: expected an object, got {metadata!r}")
    return metadata


def key(resource: Resource, name: object, namespace: str | None) -> Key:
    """The object's key, or ``InvalidError`` naming what is wrong with it."""
    checked = kinds.check_name(name)
    if not resource.namespaced:
        return "", checked
    if not namespace:
        raise InvalidError(f"metadata.namespace: required for {resource.plural}")
    return kinds.check_name(namespace, "metadata.namespace"), checked


def check_type(resource: Resource, body: JsonObject) -> None:
    """Refuse an object of another kind or version."""
    for field, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if body.get(field, expected) != expected:
            raise InvalidError(f"{field}: expected {expected!r}, got {body[field]!r}")


def check_preconditions(live: JsonObject, wanted: Mapping[str, object]) -> None:
    """Refuse, as a conflict, a uid or resourceVersion that is not the stored one."""
    for field in ("uid", "resourceVersion"):
        if wanted.get(field) and wanted[field] != live["metadata"][field]:
            raise ConflictError(
                f"{live['metadata']['name']}: {field} is {live['metadata'][field]},"
                f" not {wanted[field]}: the object has been modified"
            )


def configuration(resource: Resource, given: JsonObject, subresource: str) -> JsonObject:
    """What of an applied body speaks of fields that can be owned."""
    if subresource:
        return {subresource: given.get(subresource) or {}}
    return owned(
        {k: v for k, v in given.items() if k != "status" or not kinds.has_status(resource)}
    )


def owned(body: JsonObject) -> JsonObject:
    """The object without what nobody owns: its identity and the system's metadata."""
    metadata = {
        key: value
        for key, value in body.get("metadata", {}).items()
        if key in {"labels", "annotations", "finalizers", "ownerReferences"}
    }
    rest = {k: v for k, v in body.items() if k not in {"apiVersion", "kind", "metadata"}}
    return {**rest, **({"metadata": metadata} if metadata else {})}


def combined(
    resource: Resource, live: JsonObject, wanted: JsonObject, subresource: str
) -> JsonObject:
    """What is stored: the status of one side, everything else of the other."""
    if subresource not in {"", "status"} or (subresource and not kinds.has_status(resource)):
        raise NotFoundError(f"{resource.plural} has no subresource {subresource!r}")
    source, other = (live, wanted) if subresource else (wanted, live)
    result: JsonObject = copy_json(source)
    if kinds.has_status(resource):
        result.pop("status", None)
        if other.get("status"):
            result["status"] = copy_json(other["status"])
    result["apiVersion"], result["kind"] = resource.api_version, resource.kind
    metadata = {k: v for k, v in result["metadata"].items() if k not in SYSTEM_METADATA}
    kinds.check_metadata(metadata)
    system = {k: v for k, v in live["metadata"].items() if k in SYSTEM_METADATA}
    fixed = {k: v for k, v in live["metadata"].items() if k in {"name", "namespace"}}
    if metadata.get("name", fixed["name"]) != fixed["name"]:
        raise InvalidError("metadata.name: cannot be changed")
    result["metadata"] = {**metadata, **fixed, **system}
    return result


def same_desire(before: JsonObject, after: JsonObject) -> bool:
    """Whether all but metadata and status is the same."""
    one, other = (
        {k: v for k, v in body.items() if k not in {"metadata", "status"}}
        for body in (before, after)
    )
    return same(one, other)


def predicate(
    resource: Resource, namespace: str | None, label_selector: str, field_selector: str
) -> Predicate:
    """Whether an object is in the namespace and matches both selectors."""
    labels = label_predicate(label_selector) if label_selector else None
    fields = field_predicate(resource, field_selector) if field_selector else None

    def matches(body: JsonObject) -> bool:
        if namespace and body["metadata"].get("namespace") != namespace:
            return False
        return (labels is None or labels(body)) and (fields is None or fields(body))

    return matches


def version(text: str) -> int:
    """The number behind a resourceVersion, or ``InvalidError``."""
    if not text.isdigit():
        raise InvalidError(f"resourceVersion: expected digits, got {text!r}")
    return int(text)


def bookmark(resource: Resource, version: int) -> WatchEvent:
    """An event that tells only the newest version."""
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"resourceVersion": str(version)},
    }
    return WatchEvent("BOOKMARK", body)
