"""What differs from kind to kind: status subresource, generation, validation, defaults."""

from __future__ import annotations

import re
from typing import Any

from wattpack.api import GROUP, KINDS
from wattpack.api.object_meta import ApiObject
from wattpack.errors import InputError
from wattpack.kube.port import InvalidError, JsonObject, Resource

MODELS: dict[str, type[ApiObject]] = {kind.meta.plural: kind for kind in KINDS}

_WITH_STATUS = frozenset({"pods", "nodes", "namespaces"})
# Kinds of Kubernetes whose objects count spec changes; leases, nodes and events do not.
_WITH_GENERATION = frozenset({"pods", "mutatingwebhookconfigurations", "priorityclasses"})
_UNCONDITIONAL_UPDATE_REFUSED = frozenset({"leases"})
# RFC 1123 subdomain, as most kinds require of their names.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def model_of(resource: Resource) -> type[ApiObject] | None:
    """The pydantic model of one of our kinds, None for others."""
    return MODELS.get(resource.plural) if resource.group == GROUP else None


def has_status(resource: Resource) -> bool:
    """Whether status is written only through ``/status``."""
    return resource.group == GROUP or (not resource.group and resource.plural in _WITH_STATUS)


def counts_generations(resource: Resource) -> bool:
    """Whether ``metadata.generation`` rises with each change of the desired state."""
    return resource.group == GROUP or resource.plural in _WITH_GENERATION


def needs_resource_version(resource: Resource) -> bool:
    """Whether a replace without a resourceVersion is refused."""
    return resource.group == GROUP or resource.plural in _UNCONDITIONAL_UPDATE_REFUSED


def check_name(name: object, field: str = "metadata.name") -> str:
    """The name.

    Raises:
        InvalidError: if it is no RFC 1123 subdomain of at most 253 characters.
    """
    if not isinstance(name, str) or len(name) > 253 or not _NAME.fullmatch(name):
        raise InvalidError(f"{field}: expected a lower-case RFC 1123 subdomain, got {name!r}")
    return name


def check_metadata(metadata: JsonObject) -> None:
    """Whether labels and annotations are maps of strings.

    Raises:
        InvalidError: naming the field.
    """
    for field in ("labels", "annotations"):
        entries = metadata.get(field)
        if entries is None:
            continue
        if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
            raise InvalidError(f"metadata.{field}: expected a map of strings, got {entries!r}")


def validated(resource: Resource, body: JsonObject, before: JsonObject | None) -> JsonObject:
    """The object with defaults filled in.

    Raises:
        InvalidError: naming the field, for what the kind's model or a rule about changes refuses.
    """
    model = model_of(resource)
    if model is None:
        return body
    try:
        parsed = model.from_json(body)
    except InputError as error:
        raise InvalidError(f"{resource.kind} is invalid: {error}") from error
    if before is not None:
        _check_transition(resource, before, body)
    return {**body, "spec": _filled(body["spec"], parsed.to_json()["spec"])}


# The paths that the models' CEL transition rules fix (``oldSelf``).
_IMMUTABLE = {
    "poweroverrides": ("spec", "target"),
    "gpuprofiles": ("spec", "model"),
    "placementplans": ("spec", "snapshotDigest"),
}


def _check_transition(resource: Resource, before: JsonObject, after: JsonObject) -> None:
    path = _IMMUTABLE.get(resource.plural)
    if path is None:
        return
    was: Any = before
    now: Any = after
    for part in path:
        was, now = was.get(part), now.get(part)
    if was != now:
        raise InvalidError(f"{'.'.join(path)}: cannot be changed; make a new {resource.kind}")


def _filled(given: Any, complete: Any) -> Any:  # noqa: ANN401
    """What was given, with defaults added where nothing was given."""
    if isinstance(given, dict) and isinstance(complete, dict):
        kept = {k: _filled(v, complete[k]) for k, v in given.items() if v is not None}
        return {**complete, **kept}
    if isinstance(given, list) and isinstance(complete, list) and len(given) == len(complete):
        return [_filled(one, other) for one, other in zip(given, complete, strict=True)]
    return given
