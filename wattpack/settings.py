"""One way to read settings: file < environment < flag, unknown keys refused by name.

A process declares a ``Settings`` subclass; field names carry their unit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from wattpack.documents import parse_yaml, read_yaml
from wattpack.errors import InputError
from wattpack.named_problems import named_problem
from wattpack.near_names import did_you_mean

M = TypeVar("M", bound=BaseModel)

_TRUTH: Final = "truth_for_number"


class Settings(BaseModel):
    """A frozen settings model that refuses unknown keys, NaN, infinities and true as a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, values: object) -> object:
        """Pydantic takes true for 1, also inside a mapping or a list."""
        if not isinstance(values, Mapping):
            return values
        for name in cls.model_fields:
            types = _plain_types(cls.model_fields[name].annotation)
            is_number = bool(types & {int, float}) and bool not in types
            if is_number and _has_truth(values.get(name)):
                raise PydanticCustomError(_TRUTH, "a number, not true or false",
                                          {"name": name, "value": values[name]})  # fmt: skip
        return values

    @classmethod
    def load(
        cls,
        *,
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: str = "WATTPACK_",
        flags: Mapping[str, object] | None = None,
    ) -> Self:
        """The settings after file, environment and flags, the later winning.

        Args:
            file: A YAML mapping, or None.
            environment: Variables; ``{prefix}{FIELD}`` sets top-level scalar fields.
            prefix: Of the environment variables.
            flags: Values given on the command line; None means not given.

        Raises:
            InputError: naming the file, variable or flag, the key, what was expected, and the
                nearest known key for a typo.
        """
        values: dict[str, Any] = read_yaml_mapping(file) if file is not None else {}
        given_by: dict[str, str] = {}
        variables = os.environ if environment is None else environment
        for name in cls.model_fields:
            variable = f"{prefix}{name.upper()}"
            if variable in variables:
                values[name] = parse_yaml(variables[variable], variable)
                given_by[name] = variable
        for name, value in (flags or {}).items():
            if value is not None:
                values[name] = value
                given_by[name] = f"--{name.replace('_', '-')}"
        try:
            return validate(cls, values)
        except InputError as error:
            error.name_source(given_by.get(error.field.partition(".")[0], str(file or "")))
            raise


def read_yaml_mapping(file: Path) -> dict[str, Any]:
    """The file's single YAML mapping.

    Raises:
        InputError: if the file is missing, is not YAML, repeats a key, or is not a mapping.
    """
    document = read_yaml(file)
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise InputError("file", "a mapping of names to values", document, str(file))
    return document


def validate(model: type[M], values: Mapping[str, Any], source: str = "") -> M:
    """The values as a model.

    Raises:
        InputError: for the first problem, with a suggestion where a key looks like a typo.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        # An unknown key explains the missing one beside it, never the other way round.
        problems = error.errors()
        unknown = [p for p in problems if p["type"] == "extra_forbidden"]
        first = (unknown or problems)[0]
        field, told, got = named_problem(first)
        if first["type"] == _TRUTH:
            field = ".".join(filter(None, (field, first["ctx"]["name"])))
            got = first["ctx"]["value"]
        expected = told[0].lower() + told[1:]
        if first["type"] == "extra_forbidden":
            expected = f"a known key{did_you_mean(str(first['loc'][-1]), _all_names(model))}"
        raise InputError(field or model.__name__, expected, got, source) from error


def _plain_types(annotation: object) -> set[object]:
    """Of an annotation, all that it is made of."""
    parts = get_args(annotation)
    return {annotation}.union(*map(_plain_types, parts)) if parts else {annotation}


def _has_truth(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_truth, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_truth, value))
    return isinstance(value, bool)


def _all_names(model: type[BaseModel], depth: int = 3) -> list[str]:
    """Field names and aliases of a model and of the models nested in it."""
    names: list[str] = []
    for name, info in model.model_fields.items():
        names += [name, info.alias or name]
        for part in (info.annotation, *get_args(info.annotation)):
            if depth and isinstance(part, type) and issubclass(part, BaseModel):
                names += _all_names(part, depth - 1)
    return names
