"""JSON Patch (RFC 6902) on JSON mappings: add, remove, replace, move, copy, test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattpack.kube.port import ConflictError, InvalidError, JsonObject
from wattpack.kube.values import copy_json

# As the API server limits it (MaxJSONPatchOperations in k8s.io/apiserver).
MAX_OPERATIONS = 10_000


def apply_json_patch(document: JsonObject, operations: Sequence[JsonObject]) -> JsonObject:
    """A patched copy of the document; all operations or none.

    Raises:
        ConflictError: if a ``test`` does not hold.
        InvalidError: naming the operation that cannot be done.
    """
    if len(operations) > MAX_OPERATIONS:
        raise InvalidError(f"at most {MAX_OPERATIONS} operations, got {len(operations)}")
    result: Any = copy_json(document)
    for index, operation in enumerate(operations):
        result = _one(result, operation, f"operation {index}")
    if not isinstance(result, dict):
        raise InvalidError("the patch leaves no object")
    return result


def _one(root: Any, operation: JsonObject, where: str) -> Any:  # noqa: ANN401
    verb = operation.get("op")
    path = _parse(operation.get("path"), where)
    if verb == "test":
        if _lookup(root, path, where, missing_ok=True) != operation.get("value"):
            raise ConflictError(f"{where}: test of {operation['path']} does not hold")
        return root
    if verb == "add":
        return _add(root, path, copy_json(_value(operation, where)), where)
    if verb == "replace":
        value = copy_json(_value(operation, where))
        if not path:
            return value
        _lookup(root, path, where)
        return _put(root, path, value, where)
    if verb == "remove":
        _remove(root, path, where)
        return root
    if verb in {"move", "copy"}:
        source = _parse(operation.get("from"), where)
        value = copy_json(_lookup(root, source, where))
        if verb == "move":
            _remove(root, source, where)
        return _add(root, path, value, where)
    raise InvalidError(f"{where}: unknown op {verb!r}")


def _value(operation: JsonObject, where: str) -> Any:  # noqa: ANN401
    if "value" not in operation:
        raise InvalidError(f"{where}: no value")
    return operation["value"]


def _parse(pointer: object, where: str) -> list[str]:
    """A JSON Pointer (RFC 6901) as its tokens."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise InvalidError(f"{where}: {pointer!r} is no JSON Pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _lookup(root: Any, path: list[str], where: str, missing_ok: bool = False) -> Any:  # noqa: ANN401
    node = root
    for part in path:
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        elif missing_ok:
            return None
        else:
            raise InvalidError(f"{where}: no value at /{'/'.join(path)}")
    return node


def _add(root: Any, path: list[str], value: Any, where: str) -> Any:  # noqa: ANN401
    if not path:
        return value
    parent = _lookup(root, path[:-1], where)
    if isinstance(parent, list):
        key = path[-1]
        index = len(parent) if key == "-" else int(key) if key.isdigit() else -1
        if not 0 <= index <= len(parent):
            raise InvalidError(f"{where}: no index {key!r} in a list of {len(parent)}")
        parent.insert(index, value)
        return root
    return _put(root, path, value, where)


def _put(root: Any, path: list[str], value: Any, where: str) -> Any:  # noqa: ANN401
    parent = _lookup(root, path[:-1], where)
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        parent[int(path[-1])] = value
    else:
        raise InvalidError(f"{where}: /{'/'.join(path[:-1])} is neither object nor list")
    return root


def _remove(root: Any, path: list[str], where: str) -> None:  # noqa: ANN401
    if not path:
        raise InvalidError(f"{where}: the whole object cannot be removed")
    _lookup(root, path, where)
    parent = _lookup(root, path[:-1], where)
    del parent[path[-1] if isinstance(parent, dict) else int(path[-1])]
