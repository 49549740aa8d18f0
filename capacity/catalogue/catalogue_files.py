"""The catalogue read from files: the shipped folder, then a user's, inheritance resolved.

A file is a mapping ``workloads: {NAME: ENTRY}``. ``extends: NAME`` takes over another entry's
keys, also of another file: mappings are merged key by key, lists and plain values replaced. A
user's entry may extend a shipped one, and may not take its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from capacity.catalogue.workload_schema import Workload
from wattpack.errors import InputError
from wattpack.near_names import one_of
from wattpack.settings import read_yaml_mapping, validate

FOLDER: Final = "workloads"

DEEPEST: Final = 8
"""Entries that extend one another; a longer chain is a mistake nobody can read."""

_OWN: Final = frozenset({"extends", "abstract", "shape", "evidence", "profile_hash"})
"""Never inherited: what one entry was found to draw says nothing of another."""


@dataclass(frozen=True, slots=True)
class _Raw:
    body: Mapping[str, Any]
    source: str


def read_catalogue(*folders: Path) -> Mapping[str, Workload]:
    """Every entry that is not abstract, by name, sorted.

    Raises:
        InputError: naming file, entry and key; nothing of the catalogue is used then.
    """
    raw: dict[str, _Raw] = {}
    for folder in folders:
        for name, entry in _entries(folder):
            if name in raw:
                expected = f"a name that {raw[name].source} does not have"
                raise InputError(f"workloads.{name}", expected, name, entry.source)
            raw[name] = entry
    made = {name: _workload(name, raw) for name in sorted(raw)}
    return MappingProxyType({n: entry for n, entry in made.items() if not entry.abstract})


@lru_cache(maxsize=1)
def shipped_catalogue() -> Mapping[str, Workload]:
    """The entries that come with wattpack (read once)."""
    with as_file(files("capacity") / FOLDER) as folder:
        return read_catalogue(folder)


def catalogue_with(folder: Path | None) -> Mapping[str, Workload]:
    """The shipped entries and those of a user's folder, if there is one."""
    if folder is None:
        return shipped_catalogue()
    with as_file(files("capacity") / FOLDER) as shipped:
        return read_catalogue(shipped, folder)


def find_workload(catalogue: Mapping[str, Workload], name: str) -> Workload:
    """The entry of that name.

    Raises:
        InputError: naming what there is.
    """
    if name not in catalogue:
        raise InputError("workload", one_of(name, catalogue), name)
    return catalogue[name]


def _entries(folder: Path) -> Iterator[tuple[str, _Raw]]:
    if not folder.is_dir():
        raise InputError("catalogue", "a folder of *.yaml files", str(folder))
    for file in sorted(folder.glob("*.yaml")):
        document = read_yaml_mapping(file)
        for key in document:
            if key != "workloads":
                raise InputError(key, "the key workloads alone", document[key], str(file))
        workloads = document.get("workloads")
        if not isinstance(workloads, dict):
            raise InputError("workloads", "a mapping of names to entries", workloads, str(file))
        for name, body in workloads.items():
            if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
                raise InputError(f"workloads.{name}", "a mapping of keys", body, str(file))
            if "name" in body:
                raise InputError(f"workloads.{name}.name", "a known key", body["name"], str(file))
            yield str(name), _Raw(body, str(file))


def _workload(name: str, raw: Mapping[str, _Raw]) -> Workload:
    source = f"{raw[name].source}: workloads.{name}"
    merged = _inherited(name, raw, ()) | {"name": name}
    return validate(Workload, merged, source)


def _inherited(name: str, raw: Mapping[str, _Raw], below: tuple[str, ...]) -> dict[str, Any]:
    entry = raw[name]
    body = {key: value for key, value in entry.body.items() if key != "extends"}
    parent = entry.body.get("extends")
    if parent is None:
        return body
    source = f"{entry.source}: workloads.{name}"
    if not isinstance(parent, str) or parent not in raw:
        raise InputError("extends", "the name of an entry", parent, source)
    if parent in (name, *below) or len(below) >= DEEPEST:
        raise InputError("extends", f"a chain of at most {DEEPEST} entries, no circle",
                         [*below, name, parent], source)  # fmt: skip
    taken = _inherited(parent, raw, (*below, name))
    return _merged({key: taken[key] for key in taken.keys() - _OWN}, body)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _merged(made[key], value) if both else value
    return made
