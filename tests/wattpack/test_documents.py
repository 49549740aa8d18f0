"""YAML is read in C as Python would read it: the same values, the same refusals."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from wattpack.documents import MAX_DEPTH, parse_yaml
from wattpack.errors import InputError

_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
)
_DOCUMENTS = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)
#: What makes structure in YAML, where a wrong one most often stands.
_EDITS = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from("\t\n -:[]{}#*|>'\"%@,?a0~.=é\u2028")),
    max_size=3,
)


def _outcome(read: Callable[[str], object], text: str) -> str:
    try:
        return repr(read(text))
    except (InputError, yaml.YAMLError, ValueError, OverflowError):
        return "refused"


@given(_DOCUMENTS, st.booleans(), _EDITS)
def test_what_both_read_is_the_same(
    document: object, flow: bool, edits: list[tuple[int, str]]
) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow)
    for at, character in edits:
        text = text[: at % (len(text) + 1)] + character + text[at % (len(text) + 1) :]
    theirs, ours = _outcome(yaml.safe_load, text), _outcome(parse_yaml, text)
    # libyaml takes a comment right after a block's indicator; keys twice are refused by us alone.
    assert ours == theirs or (edits and "refused" in (ours, theirs))


@pytest.mark.parametrize(
    ("text", "field", "got"),
    [
        ("a: [", "file", "line 1, column 5:\\n    a: [\\n        ^"),
        ("a:\n\tb: 1", "file", "line 2, column 1:\\n    \\tb: 1\\n    ^"),
        ("a: &x 1\nb: *x", "file", "an alias in line 2: write its value out"),
        ("a: 1\nb: 2\na: 3", "a", "the key again in line 3"),
        ('"\\UFFFFFFFF"', "file", "too large"),
        ("[" * 1_000_000, "file", "deeper nesting"),
    ],
)
def test_refusals_name_the_place_as_python_finds_it(text: str, field: str, got: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_yaml(text, "house.yaml")
    assert refused.value.field == field
    assert got in str(refused.value)


def test_nests_as_deep_as_it_says() -> None:
    deepest = "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)
    assert str(parse_yaml(deepest)) == deepest
    with pytest.raises(InputError, match="at most 64 levels"):
        parse_yaml(f"[{deepest}]")


def test_large_files_are_read_in_c() -> None:
    rows = [{"name": f"work-{i}", "watts": i, "share": i / 7} for i in range(1000)]
    text = yaml.safe_dump(rows)
    took: dict[str, float] = {}
    for name, read in [("ours", parse_yaml), ("pyyaml", yaml.safe_load)] * 5:
        began = time.process_time()
        assert read(text) == rows
        took[name] = min(time.process_time() - began, took.get(name, float("inf")))
    # A third was measured.
    assert took["ours"] < 0.7 * took["pyyaml"]
