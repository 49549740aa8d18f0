"""How a refusal names what there is, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["near_name", "one_of"]


def near_name(got: str, names: Iterable[str]) -> str | None:
    """The name that ``got`` comes nearest to, in any case; None if it comes near none."""
    spelled = {name.lower(): name for name in names}
    near = difflib.get_close_matches(got.strip().lower(), spelled, n=1)
    return spelled[near[0]] if near else None


def one_of(got: str, names: Iterable[str]) -> str:
    """What an ``InputError`` expects in place of ``got``: all names, and the nearest one."""
    known = list(names)
    near = near_name(got, known)
    hint = f" (did you mean {near!r}?)" if near else ""
    return f"one of {', '.join(known)}{hint}"
