"""How a refusal names what there is, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "near_name", "one_of"]


def near_name(got: str, names: Iterable[str]) -> str | None:
    """The name that ``got`` comes nearest to, in any case; None if it comes near none."""
    spelled = {name.lower(): name for name in names}
    near = difflib.get_close_matches(got.strip().lower(), spelled, n=1)
    return spelled[near[0]] if near else None


def did_you_mean(got: str, names: Iterable[str]) -> str:
    """A hint behind what an ``InputError`` expects; empty where nothing comes near."""
    near = near_name(got, names)
    return f" (did you mean {near!r}?)" if near else ""


def one_of(got: str, names: Iterable[str]) -> str:
    """What an ``InputError`` expects in place of ``got``: all names, and the nearest one."""
    known = list(names)
    return f"one of {', '.join(known)}{did_you_mean(got, known)}"
