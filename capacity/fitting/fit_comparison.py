"""Whether two fits of the same data say the same.

A value that lies half-way between two numbers as they are printed goes up on one processor and
down on another, because their linear algebra adds in another order: 0.66227499999 with AVX2 and
0.66227501069 with AVX-512 for one point of a curve (measured, OpenBLAS kernels Zen and SkylakeX).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Final

__all__ = ["fit_difference", "text_difference"]

RELATIVE: Final = 2e-5
"""Of serving times, printed with six significant digits."""

ABSOLUTE: Final = 1.5e-5
"""Of curves, printed with five digits after the point."""


def text_difference(fresh: str, shipped: str) -> str:
    """Where the shipped JSON text says something else than the fresh one; empty if nowhere."""
    try:
        return fit_difference(json.loads(fresh), json.loads(shipped))
    except json.JSONDecodeError as error:
        return f"no JSON: {error}"


def fit_difference(fresh: object, shipped: object, place: str = "") -> str:
    """The first place where two documents differ by more than the last digit of a fraction.

    Returns:
        The place and both values; empty where they say the same. Order of keys counts.
    """
    if isinstance(fresh, dict) and isinstance(shipped, dict) and list(fresh) == list(shipped):
        return _first((f"{place}.{key}", fresh[key], shipped[key]) for key in fresh)
    if isinstance(fresh, list) and isinstance(shipped, list) and len(fresh) == len(shipped):
        pairs = zip(fresh, shipped, strict=True)
        return _first((f"{place}[{i}]", a, b) for i, (a, b) in enumerate(pairs))
    if isinstance(fresh, float) and isinstance(shipped, float):
        both_missing = math.isnan(fresh) and math.isnan(shipped)
        if both_missing or math.isclose(fresh, shipped, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            return ""
    elif type(fresh) is type(shipped) and fresh == shipped:
        return ""
    return f"{place.lstrip('.') or 'all'}: {_short(fresh)}, shipped {_short(shipped)}"


def _first(pairs: Iterable[tuple[str, object, object]]) -> str:
    return next(filter(None, (fit_difference(a, b, place) for place, a, b in pairs)), "")


def _short(value: object) -> str:
    if isinstance(value, dict | list):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)
