"""Every value of every example object, replaced by every kind of nonsense."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from wattpack.api import KINDS
from wattpack.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
OF_KIND = {kind.meta.kind: kind for kind in KINDS}
DOCUMENTS = [
    body
    for file in sorted(EXAMPLES.glob("*.yaml"))
    for body in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    if body and body.get("kind") in OF_KIND
]
#: Refused wherever they stand in a spec.
NEVER = [float("nan"), float("inf"), [[]], {"unknown": 1}]
#: Refused in place of a number.
NO_NUMBER = [*NEVER, "many", -1e300, 1e300, True]


def leaves(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, value


def with_value(body: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("body", DOCUMENTS, ids=lambda b: f"{b['kind']}-{b['metadata']['name']}")
def test_nonsense_in_place_of_any_value_is_refused_by_the_fields_name(body: dict[str, Any]) -> None:
    kind = OF_KIND[body["kind"]]
    kind.from_json(body)
    for path, value in leaves(body.get("spec", {}), ("spec",)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        for nonsense in NO_NUMBER if is_number else NEVER:
            with pytest.raises(InputError) as refusal:
                kind.from_json(with_value(body, path, nonsense))
            named, full = refusal.value.field, ".".join(map(str, path))
            assert full.startswith(named) or named.startswith(full), nonsense


@pytest.mark.parametrize("document", [None, [], "text", 7, {}, {"spec": {}}, {"metadata": {}}])
def test_what_is_no_object_is_refused(document: Any) -> None:
    for kind in KINDS:
        with pytest.raises(InputError):
            kind.from_json(document)
