"""What holds between parts of a snapshot: ids once, references to what is there, a domain tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final

__all__ = ["MAX_LEVELS", "known", "shallow_tree", "unique"]

MAX_LEVELS: Final = 64
"""Of power domains: a utility feed is seven or eight levels above a rack."""


def unique(what: str, ids: Sequence[str]) -> None:
    """Raise a ValueError that names an id which is there twice."""
    if len(set(ids)) < len(ids):
        repeated = next(name for name, count in Counter(ids).items() if count > 1)
        raise ValueError(f"{what}: every id once, {repeated!r} is repeated")


def known(what: str, names: Set[str], declared: Set[str]) -> None:
    """Raise a ValueError that names what was not declared."""
    if unknown := sorted(names - declared):
        raise ValueError(f"{what}: a declared id, {unknown[0]!r} is none")


def shallow_tree(what: str, parents: Mapping[str, str]) -> None:
    """Raise a ValueError for a circle, and for more than ``MAX_LEVELS`` levels.

    Args:
        what: The field.
        parents: Of each name; empty for none.
    """
    levels = {"": 0}
    for start in parents:
        path: list[str] = []
        on_path: set[str] = set()
        name = start
        while name not in levels:
            if name in on_path:
                raise ValueError(f"{what}: a tree, {name!r} is its own ancestor")
            path.append(name)
            on_path.add(name)
            name = parents[name]
        for above, each in enumerate(reversed(path), levels[name] + 1):
            levels[each] = above
            if above > MAX_LEVELS:
                raise ValueError(f"{what}: at most {MAX_LEVELS} levels, {each!r} is below more")
