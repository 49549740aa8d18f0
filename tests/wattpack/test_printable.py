"""Names of others where people look at them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wattpack.printable import printable, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('rate(x{i=~"[ab]$"}[5m])', 'rate(x{i=~"[ab]$"}[5m])'),
        ("Ünï 😀", "Ünï 😀"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\x07", r"a\nb\x07"),
        ("a\u202eb", r"a\u202eb"),
    ],
)
def test_what_can_be_seen_stays_and_what_acts_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(), st.integers(3, 80))
@examples(60)
def test_nothing_acts_on_a_terminal_and_no_name_is_longer_than_its_room(
    text: str, most: int
) -> None:
    shown = shortened(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    assert shown == printable(text) or "…" in shown
