"""Values from JSON, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from scheduler_plugin.documents.value import PRINTABLE
from wattpack.errors import InputError
from wattpack.named_problems import named_problem
from wattpack.near_names import one_of

__all__ = ["named_error", "parse_value"]

V = TypeVar("V", bound=BaseModel)

_UNITS: Final = {
    "_bytes": "bytes",
    "milli_cpu": "thousandths of a core",
    "gpu_milli": "thousandths of a GPU",
    "_watts": "watts",
    "watts_per_gpu": "watts",
    "_seconds": "seconds",
}
"""By how a field's name ends. Who comes from manifests writes ``80Gi``, or ``8`` for cores."""


def parse_value(model: type[V], text: str | bytes, source: str = "") -> V:
    """A value from JSON.

    Raises:
        InputError: naming the first wrong field.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise named_error(error, source, model) from error


def named_error(
    error: ValidationError, source: str = "", model: type[BaseModel] | None = None
) -> InputError:
    """The first wrong field and what was expected of it, in one line.

    Args:
        error: What the model said.
        source: Where the value came from.
        model: What was read, so that a key which nobody knows is told those that there are.
    """
    problems = error.errors(include_url=False, include_context=False)
    # An unknown key is often the misspelt form of the one that is missing.
    unknown = [each for each in problems if each["type"] == "extra_forbidden"]
    first = (unknown or problems)[0]
    message = str(first["msg"])
    place = [str(part) for part in first["loc"]]
    field = ".".join(place)
    if first["type"] == "json_invalid":
        return InputError("document", "valid JSON", message.removeprefix("Invalid JSON: "), source)
    if first["type"] == "value_error":
        field, message, _ = named_problem(first)
    elif first["type"] == "extra_forbidden":
        known = _keys(model, place[:-1])
        message = one_of(place[-1], known) if known else "a known key"
    elif PRINTABLE in message:
        message = "text without control characters"
    elif first["type"] == "missing":
        message = f"this field{_unit(field)}"
    else:
        message = message.removeprefix("Input should be ") + _unit(field)
        if message.startswith(("greater", "less")):
            message = f"a number {message}"
    return InputError(field or "document", message, _identity(first.get("input")), source)


def _unit(field: str) -> str:
    unit = next((unit for end, unit in _UNITS.items() if field.endswith(end)), "")
    return f" ({unit})" if unit else ""


def _identity(value: object) -> object:
    """Of an object its name, or its keys: all of it may be a million lines."""
    if not isinstance(value, Mapping):
        return value
    names = {key: value[key] for key in ("namespace", "name", "uid", "id") if key in value}
    return names or f"an object with {', '.join(map(str, list(value)[:10])) or 'no key'}"


def _keys(model: type[BaseModel] | None, place: list[str]) -> list[str]:
    """What the object at this place may hold; empty where that is not known."""
    if model is None:
        return []
    whole = model.model_json_schema()
    found: Any = whole
    for part in place:
        found = found.get("items") if part.isdigit() else found.get("properties", {}).get(part)
        if found is None:
            return []
        found = whole["$defs"][found["$ref"].rsplit("/", 1)[-1]] if "$ref" in found else found
    return list(found.get("properties", {}))
