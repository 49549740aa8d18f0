"""What pydantic found, in our words: for whoever turns it into an InputError."""

from __future__ import annotations

from typing import Any, Self

import pytest
from pydantic import BaseModel, Field, ValidationError, model_validator

from wattpack.errors import InputError
from wattpack.named_problems import NamedProblem, named_problem
from wattpack.settings import Settings, validate


class Range(Settings):
    """Two fields with an order."""

    least: int = 0
    most: int = Field(9, le=9)
    word: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.least > self.most:
            raise ValueError("most: at least the value of least")
        if self.word == "whole":
            raise ValueError("no word for all of it: not this one")
        return self


class Outer(Settings):
    """A range in a list."""

    ranges: list[Range]

    @model_validator(mode="after")
    def _first_begins_low(self) -> Self:
        if self.ranges[0].least > 5:
            raise ValueError("ranges.least: at most 5 in the first")
        return self


@pytest.mark.parametrize(
    ("model", "values", "problem"),
    [
        (Range, {"most": 10}, NamedProblem("most", "less than or equal to 9", 10)),
        (Range, {"least": 3, "most": 2}, ("most", "at least the value of least", 2)),
        (Range, {"least": 10}, ("most", "at least the value of least", None)),
        (
            Range,
            {"word": "whole"},
            ("", "no word for all of it: not this one", {"word": "whole"}),
        ),
        (Outer, {"ranges": [{"least": 3, "most": 2}]},
         ("ranges.0.most", "at least the value of least", 2)),
        (Outer, {"ranges": [{"least": 6}]},
         ("ranges.least", "at most 5 in the first", {"ranges": [{"least": 6}]})),
    ],
)  # fmt: skip
def test_a_validator_names_a_field_before_a_colon(
    model: type[BaseModel], values: dict[str, Any], problem: tuple[str, str, object]
) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(values)
    assert named_problem(refused.value.errors()[0]) == NamedProblem(*problem)


def test_settings_tell_it_so() -> None:
    with pytest.raises(InputError) as refused:
        validate(Range, {"least": 3, "most": 2})
    assert str(refused.value) == "most: expected at least the value of least, got 2"
