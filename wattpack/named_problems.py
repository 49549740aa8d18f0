"""A problem that pydantic found, in the words of an InputError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic_core import ErrorDetails

__all__ = ["NamedProblem", "named_problem"]


class NamedProblem(NamedTuple):
    """What an ``InputError`` says.

    Attributes:
        field: Dotted path, empty for the whole.
        expected: In words.
        got: The refused value; None where the field is not there.
    """

    field: str
    expected: str
    got: object


def named_problem(problem: ErrorDetails) -> NamedProblem:
    """The problem without the library's own words.

    A validator of several fields names the one that is to change before a colon:
    ``ValueError("most: at least the value of least")``. A message without such a name is about all
    that the validator saw.
    """
    place = [str(part) for part in problem["loc"]]
    expected = problem["msg"].removeprefix("Input should be ")
    got: object = problem.get("input")
    if problem["type"] == "value_error":
        expected = expected.removeprefix("Value error, ")
        key, _, rest = expected.partition(": ")
        if rest and " " not in key:
            place, expected, got = [*place, key], rest, _value_at(key, got)
    return NamedProblem(".".join(place), expected, got)


def _value_at(path: str, whole: object) -> object:
    """The value there; the whole where the way leads through something else than mappings."""
    value = whole
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return whole
        value = value.get(key)
    return value
