"""Reading stored state: every field is there, of its shape and finite, or the state is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from forecasting.series_source import Floats
from wattpack.errors import InputError


class Fields:
    """The fields of one stored document.

    Args:
        document: What a JSON file held.
        path: Where it lies, for messages.

    Raises:
        InputError: if it is no mapping.
    """

    def __init__(self, document: object, path: str) -> None:
        if not isinstance(document, Mapping):
            raise InputError(path, "a mapping", document)
        self.path = path
        self._document = document

    def __iter__(self) -> Iterator[str]:
        """Names of the fields."""
        return iter(map(str, self._document))

    def version(self, expected: int) -> None:
        """Refuse other versions.

        Raises:
            InputError: another version, or none.
        """
        got = self._document.get("version")
        if got != expected:
            raise InputError(f"{self.path}.version", f"{expected}; its state starts anew", got)

    def inner(self, name: str) -> Fields:
        """A document inside.

        Raises:
            InputError: if there is none.
        """
        return Fields(self._document.get(name), f"{self.path}.{name}")

    def text(self, name: str) -> str:
        """A text.

        Raises:
            InputError: if it is none.
        """
        got = self._document.get(name)
        if not isinstance(got, str):
            raise InputError(f"{self.path}.{name}", "a text", got)
        return got

    def number(self, name: str) -> float:
        """A finite number.

        Raises:
            InputError: if it is none.
        """
        return float(self.numbers(name, ()))

    def whole(self, name: str) -> int:
        """A whole number, at least 0.

        Raises:
            InputError: if it is none.
        """
        got = self.number(name)
        if got < 0 or got % 1:
            raise InputError(f"{self.path}.{name}", "a whole number, at least 0", got)
        return int(got)

    def numbers(self, name: str, shape: tuple[int | None, ...]) -> Floats:
        """An array of finite numbers.

        Args:
            name: The field.
            shape: Its lengths; None for any.

        Raises:
            InputError: something else, or of another shape.
        """
        got = self._document.get(name)
        try:
            array = np.array(got, dtype=np.float64)
        except (TypeError, ValueError, OverflowError, RecursionError):
            array = np.array([[np.nan]])
        fits = array.ndim == len(shape) and all(
            wanted is None or length == wanted
            for length, wanted in zip(array.shape, shape, strict=True)
        )
        if not fits or not np.all(np.isfinite(array)):
            raise InputError(f"{self.path}.{name}", f"finite numbers of shape {shape}", got)
        return array
