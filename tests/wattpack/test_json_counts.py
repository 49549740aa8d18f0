"""Counts of a text that is not parsed are those of the parsed document."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wattpack import json_counts
from wattpack.documents import MAX_DIGITS, parse_json, parse_yaml
from wattpack.errors import InputError
from wattpack.json_counts import count_json

TEXTS = st.text(st.sampled_from('ab"\\\\{}[],:\u00e9\U0001f600 '), max_size=6)
JSON = st.recursive(
    st.none() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=25,
)


def children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def commas(value: Any) -> int:
    inner = children(value)
    return max(0, len(inner) - 1) + sum(map(commas, inner))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"nodes": [{"a": 1}, {"milli_cpu": %s}]}', "nodes.1.milli_cpu"),
        ("%s", "file"),
    ],
)
def test_a_number_that_is_too_long_is_told_by_its_place(text: str, field: str) -> None:
    assert parse_json(text % ("9" * MAX_DIGITS)) is not None
    with pytest.raises(InputError) as refusal:
        parse_json(text % ("9" * (MAX_DIGITS + 1)))
    assert (refusal.value.field, refusal.value.expected) == (field, "at most 4300 digits")


def test_in_yaml_it_is_told_by_its_line() -> None:
    with pytest.raises(InputError) as refusal:
        parse_yaml("a: 1\nb: -" + "9" * (MAX_DIGITS + 1))
    assert refusal.value.field == "line 2"
    assert parse_yaml("b: -12") == {"b": -12}


@examples(300)
@given(
    document=JSON,
    block_bytes=st.integers(1, 9),
    ascii_only=st.booleans(),
    indent=st.none() | st.integers(0, 2),
    as_bytes=st.booleans(),
)
def test_counts_are_those_of_the_document(
    document: Any, block_bytes: int, ascii_only: bool, indent: int | None, as_bytes: bool
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    with (
        mock.patch.object(json_counts, "BLOCK_BYTES", block_bytes),
        mock.patch.object(json_counts, "LEAST_COUNTED", 1),
    ):
        counts = count_json(text.encode() if as_bytes else text)
    assert counts.values == commas(document)
    members = children(document)
    assert counts.entries == max(0, len(members) - 1) + sum(
        max(0, len(children(member)) - 1) for member in members
    )
    assert counts.largest_entry == max(
        (commas(entry) for member in members for entry in children(member)), default=0
    )
    named: Counter[str] = Counter()
    keys = list(document) if isinstance(document, dict) else [""] * len(members)
    for key, member in zip(keys, members, strict=True):
        if len(children(member)) > 1:
            named[key] += len(children(member))
    assert counts.members == named
