"""One check for every number from outside."""

from __future__ import annotations

import pytest

from wattpack.errors import InputError, read_from
from wattpack.units import require_number


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), 10**400, True, "1", None, [1.0], b"1"]
)
def test_what_is_no_finite_number_is_refused_by_its_field(value: object) -> None:
    for bounds in ({}, {"minimum": 0.0}, {"maximum": 1e6}, {"exclusive_minimum": 0.0}):
        with pytest.raises(InputError, match=r"row\.watts: expected a finite number"):
            require_number("row.watts", value, **bounds)


def test_bounds_hold_at_their_edges() -> None:
    assert require_number("x", 3, minimum=3, maximum=3) == 3.0
    for value, bounds in ((2.9, {"minimum": 3.0}), (3.1, {"maximum": 3.0})):
        with pytest.raises(InputError, match=r"x: expected a finite number [<>]= 3 W, got"):
            require_number("x", value, **bounds, unit="W")
    with pytest.raises(InputError, match="> 3"):
        require_number("x", 3, exclusive_minimum=3.0)


def test_a_refusal_names_the_innermost_source() -> None:
    with (
        pytest.raises(InputError, match=r"^a\.json: x: expected") as refused,
        read_from("outer"),
        read_from("a.json"),
    ):
        require_number("x", None)
    assert refused.value.source == "a.json"
    with pytest.raises(InputError, match=r"^x: expected"), read_from(""):
        require_number("x", None)
