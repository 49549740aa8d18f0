"""Values from JSON, with errors that name the field."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from wattpack.errors import InputError

__all__ = ["named_error", "parse_value"]

V = TypeVar("V", bound=BaseModel)


def parse_value(model: type[V], text: str | bytes, source: str = "") -> V:
    """A value from JSON.

    Raises:
        InputError: naming the first wrong field.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise named_error(error, source) from error


def named_error(error: ValidationError, source: str = "") -> InputError:
    """The first wrong field and what was expected of it, in one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    message = str(first["msg"])
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error":
        message = message.removeprefix("Value error, ")
        named, _, rest = message.partition(": ")
        if rest and " " not in named:
            field, message = ".".join(filter(None, (field, named))), rest
    return InputError(field or "document", message, first.get("input"), source)
