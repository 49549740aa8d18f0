"""Server-side apply: who owns which field, and what an apply changes.

A field is a path of map keys and list items. Lists are atomic unless Kubernetes declares them
associative; those few are in ``LIST_KEYS``.

Source: Kubernetes documentation, "Server-Side Apply", sections Field management, Conflicts,
Merge strategy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wattpack.kube.port import ConflictError, JsonObject
from wattpack.kube.values import copy_json, same

# Associative lists by the name of the field: the keys of their items.
LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "devices": ("uuid",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "schedulingGates": ("name",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
SET_LISTS = frozenset({"finalizers"})


@dataclass(frozen=True, slots=True)
class Item:
    """An item of an associative list (its keys) or of a set (its value)."""

    keys: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Owner:
    """A field manager's entry: applies and updates are owned apart, and so are subresources."""

    manager: str
    operation: str
    subresource: str = ""


Path = tuple[str | Item, ...]
Owners = dict[Owner, frozenset[Path]]
_MISSING = object()


def apply_configuration(
    live: JsonObject, config: JsonObject, owners: Owners, who: Owner, force: bool
) -> tuple[JsonObject, Owners]:
    """The object and its owners after ``who`` applied a configuration.

    Fields that ``who`` applied before and names no more are removed, unless others own them.

    Raises:
        ConflictError: naming fields that others own at another value, unless ``force``.
    """
    wanted = frozenset(leaf_paths(config))
    merged = _merge(live, config, "")
    changed = {path for path in wanted if not same(_get(live, path), _get(merged, path))}
    contested = {other: owners[other] & changed for other in owners if other != who}
    if not force and any(contested.values()):
        raise ConflictError("; ".join(_complaints(contested)))
    after = {other: fields - contested.get(other, frozenset()) for other, fields in owners.items()}
    after[who] = wanted
    # A container goes with its last owned field, and what nobody owns in it (defaults) goes along.
    kept = _with_containers(frozenset().union(*after.values()))
    for path in sorted(_with_containers(owners.get(who, frozenset())) - kept, key=len):
        _remove(merged, path)
    return merged, {other: fields for other, fields in after.items() if fields}


def update_owners(before: JsonObject, after: JsonObject, owners: Owners, who: Owner) -> Owners:
    """The owners after ``who`` wrote by update or patch: it takes what it changed."""
    changed, removed = set(), set()
    for path, was, now in _differences(before, after, (), ""):
        removed |= set(leaf_paths(was, path)) if was is not _MISSING else set()
        changed |= set(leaf_paths(now, path)) if now is not _MISSING else set()
    if not changed and not removed:
        return owners
    result = {other: fields - changed - removed for other, fields in owners.items()}
    result[who] = result.get(who, frozenset()) | changed
    return {other: fields for other, fields in result.items() if fields}


def leaf_paths(value: Any, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401
    """The paths of all leaves: scalars, atomic lists, empty containers."""
    name = path[-1] if path and isinstance(path[-1], str) else ""
    children = _children(value, name)
    if not children:
        yield path
        return
    for element, child in children.items():
        yield from leaf_paths(child, (*path, element))


def _children(value: Any, name: str) -> dict[str | Item, Any] | None:  # noqa: ANN401
    """What merges one by one below a value; None for a leaf."""
    if isinstance(value, dict):
        return dict(value)
    if not isinstance(value, list):
        return None
    if name in SET_LISTS:
        return {Item((("", entry),)): entry for entry in value}
    keys = LIST_KEYS.get(name)
    if keys is None or not all(isinstance(e, dict) and all(k in e for k in keys) for e in value):
        return None
    items: dict[str | Item, Any] = {
        Item(tuple((key, entry[key]) for key in keys)): entry for entry in value
    }
    return items if len(items) == len(value) else None


def _merge(live: Any, config: Any, name: str) -> Any:  # noqa: ANN401
    if isinstance(live, dict) and isinstance(config, dict):
        result = copy_json(live)
        for key, value in config.items():
            result[key] = _merge(live.get(key), value, key)
        return result
    ours, theirs = _children(live, name), _children(config, name)
    if isinstance(config, list) and ours is not None and theirs is not None:
        return [
            _merge(ours.get(item), theirs[item], "") if item in theirs else copy_json(ours[item])
            for item in _merged_order(list(ours), list(theirs))
        ]
    return copy_json(config)


def _merged_order(live: list[str | Item], applied: list[str | Item]) -> list[str | Item]:
    """Applied items in their order; what only live has stays before what followed it."""
    shared = [item for item in applied if item in set(live)]
    result: list[str | Item] = []
    remaining, given = deque(live), deque(applied)
    while remaining or given:
        if remaining and remaining[0] not in applied:
            result.append(remaining.popleft())
        elif remaining and (not shared or remaining[0] != shared[0]):
            remaining.popleft()
        else:
            item = given.popleft()
            result.append(item)
            if shared and item == shared[0]:
                shared.pop(0)
                if remaining and remaining[0] == item:
                    remaining.popleft()
    return result


def _differences(
    before: Any,  # noqa: ANN401
    after: Any,  # noqa: ANN401
    path: Path,
    name: str,
) -> Iterator[tuple[Path, Any, Any]]:
    """The smallest subtrees that differ, with the value on each side."""
    if same(before, after):
        return
    ours, theirs = _children(before, name), _children(after, name)
    if not ours or not theirs or isinstance(before, dict) != isinstance(after, dict):
        yield path, before, after
        return
    for element in {**ours, **theirs}:
        child_name = element if isinstance(element, str) else ""
        was, now = ours.get(element, _MISSING), theirs.get(element, _MISSING)
        yield from _differences(was, now, (*path, element), child_name)


def _get(root: Any, path: Path) -> Any:  # noqa: ANN401
    node, name = root, ""
    for element in path:
        children = _children(node, name)
        if children is None or element not in children:
            return _MISSING
        node, name = children[element], element if isinstance(element, str) else ""
    return node


def _with_containers(paths: frozenset[Path]) -> frozenset[Path]:
    """The paths and all containers on the way to them, below the object's top level."""
    containers = {path[:end] for path in paths for end in range(1, len(path))}
    return paths | (containers - {("metadata",)})


def _remove(root: JsonObject, path: Path) -> None:
    """Remove a subtree, if it is there."""
    parent: Any = root
    for element in path[:-1]:
        parent = _step(parent, element)
        if parent is _MISSING:
            return
    if _step(parent, path[-1]) is not _MISSING:
        _delete(parent, path[-1])


def _step(node: Any, element: str | Item) -> Any:  # noqa: ANN401
    if isinstance(element, str):
        return node.get(element, _MISSING) if isinstance(node, dict) else _MISSING
    index = _index(node, element)
    return _MISSING if index is None else node[index]


def _delete(parent: Any, element: str | Item) -> None:  # noqa: ANN401
    if isinstance(element, str):
        del parent[element]
        return
    index = _index(parent, element)
    if index is not None:
        del parent[index]


def _index(items: Any, element: Item) -> int | None:  # noqa: ANN401
    for index, entry in enumerate(items if isinstance(items, list) else ()):
        if isinstance(entry, dict):
            if all(entry.get(key) == value for key, value in element.keys):
                return index
        elif entry == element.keys[0][1]:
            return index
    return None


def _complaints(contested: Mapping[Owner, frozenset[Path]]) -> Iterator[str]:
    for owner, fields in contested.items():
        for path in sorted(map(path_text, fields)):
            yield f"conflict with {owner.manager!r} ({owner.operation}): {path}"


def path_text(path: Path) -> str:
    """As kubectl prints it: ``.status.conditions[type=Ready].reason``."""
    parts = []
    for element in path:
        if isinstance(element, str):
            parts.append(f".{element}")
        else:
            parts.append("[" + ",".join(f"{key}={value}" for key, value in element.keys) + "]")
    return "".join(parts)
