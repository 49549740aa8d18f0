"""CustomResourceDefinitions from the pydantic models.

Kubernetes takes *structural* schemas: no references, no ``anyOf`` for optional fields, draft-4
exclusive bounds, no ``additionalProperties: false`` beside properties (unknown fields are pruned,
or refused with ``fieldValidation: Strict``). Everything is bounded, because the API server
refuses CEL rules whose worst cost it cannot estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wattpack.api.object_meta import GROUP, VERSION, ApiObject, PrintColumn
from wattpack.errors import PermanentError

Schema = dict[str, Any]

CATEGORY = "wattpack"
# Keywords of pydantic's JSON Schema that structural schemas lack or say in another way.
_DROPPED = frozenset({"title", "$defs", "propertyNames"})


def custom_resource_definition(kind: type[ApiObject]) -> Schema:
    """The kind's CustomResourceDefinition."""
    meta = kind.meta
    names = {
        "kind": meta.kind,
        "listKind": f"{meta.kind}List",
        "plural": meta.plural,
        "singular": meta.kind.lower(),
        "shortNames": list(meta.short_names),
        "categories": [CATEGORY],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in meta.columns],
        "schema": {"openAPIV3Schema": structural_schema(kind)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{meta.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced" if meta.namespaced else "Cluster",
            "versions": [version],
        },
    }


def structural_schema(kind: type[ApiObject]) -> Schema:
    """The kind's structural schema, with descriptions, bounds, defaults and CEL rules."""
    source = kind.model_json_schema(by_alias=True)
    converted = _convert(source, source.get("$defs", {}))
    properties = converted["properties"]
    result: Schema = {
        "type": "object",
        "description": converted["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind.meta.kind},
            "metadata": {"type": "object"},
            "spec": properties["spec"],
            "status": _without_judgement(properties["status"]),
        },
    }
    if "x-kubernetes-validations" in converted:
        result["x-kubernetes-validations"] = converted["x-kubernetes-validations"]
    return result


def _convert(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """One schema node in structural form, references inlined."""
    node = _inlined(_optional(_inlined(node, definitions)), definitions)
    result: Schema = {}
    for key, value in node.items():
        if key in _DROPPED or (key == "default" and value is None):
            continue
        if key == "properties":
            result[key] = {name: _convert(child, definitions) for name, child in value.items()}
        elif key == "items":
            result[key] = _convert(value, definitions)
        elif key == "additionalProperties":
            if isinstance(value, dict):
                result[key] = _convert(value, definitions)
        elif key == "const":
            result["enum"] = [value]
        elif key in {"exclusiveMinimum", "exclusiveMaximum"}:
            result["minimum" if key == "exclusiveMinimum" else "maximum"] = value
            result[key] = True
        elif key in {"anyOf", "oneOf", "allOf"}:
            raise PermanentError(f"{key} has no structural form: {value!r}")
        elif key == "default":
            result[key] = _without_nulls(value)
        else:
            result[key] = value
    return result


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A default without its unset fields: an API server refuses a schema whose default has null."""
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return value


def _inlined(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The node with its reference replaced; what stands beside the reference wins."""
    if "$ref" not in node:
        return node
    target = definitions[node["$ref"].removeprefix("#/$defs/")]
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return _inlined({**target, **beside}, definitions)


def _optional(node: Schema) -> Schema:
    """``T | None`` as T: in an API object, unset and null are the same."""
    variants = [variant for variant in node.get("anyOf", []) if variant.get("type") != "null"]
    if len(variants) != 1 or len(variants) == len(node["anyOf"]):
        return node
    beside = {key: value for key, value in node.items() if key != "anyOf"}
    return {**variants[0], **beside}


def _without_judgement(status: Schema) -> Schema:
    """The status without defaults and rules: it reports, and repeats a spec that was judged."""
    dropped = {"default", "x-kubernetes-validations"}

    def strip(node: Schema) -> Schema:
        return {
            key: {name: strip(child) for name, child in value.items()}
            if key == "properties"
            else strip(value)
            if isinstance(value, dict)
            else value
            for key, value in node.items()
            if key not in dropped
        }

    return strip(status)


def _column(column: PrintColumn) -> Schema:
    entry: Schema = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
        "description": column.description,
    }
    if column.priority:
        entry["priority"] = column.priority
    if column.format:
        entry["format"] = column.format
    return entry


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every node below a schema with its dotted path; items as ``[]``, map values as ``{}``."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")
