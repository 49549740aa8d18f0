"""LightGBM, loaded in one place: it can be installed and of no use all the same.

Its binary is linked to an OpenMP library of the system (``libgomp.so.1``), and without that Python
finds the package and cannot load it (OSError). So whether it is there is known once it was loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wattpack.errors import PermanentError, WattpackError


class ForestsError(PermanentError):
    """LightGBM could not be loaded, or not compute with what it was given."""


@contextmanager
def lightgbm_at_work() -> Iterator[Any]:
    """The library; whatever it raises in here is a ``ForestsError``.

    Loading it takes a second, so nobody does before forests are wanted.

    Raises:
        ForestsError: with the library's own words.
    """
    try:
        import lightgbm

        yield lightgbm
    except WattpackError:
        raise
    except Exception as error:
        raise ForestsError(f"LightGBM: {type(error).__name__}: {error}"[:200]) from error


def lightgbm_problem() -> str:
    """Why there can be no forests; empty if there can. The first call loads the library."""
    try:
        with lightgbm_at_work():
            return ""
    except ForestsError as error:
        return str(error)
