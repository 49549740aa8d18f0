"""All members of a gang, whatever order lets them in beside one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["left_over"]

MOST_ROUNDS: Final = 8
"""Of members that wait for others: longer chains of such are given up (assumed)."""


def left_over(
    place: Callable[[int, int], int],
    wanted: Mapping[int, int],
    wants_others: Callable[[int], bool],
) -> dict[int, int]:
    """Pods by class that find no place once the others have theirs; empty if all have one.

    Args:
        place: Books up to so many pods of a class; how many found a place. That stays booked.
        wanted: Pods by class, who comes first first.
        wants_others: Whether pods that are placed later may open nodes to a class. Such a class is
            tried again after the others, whatever its size; another one that finds no place ends
            it, and stands first.
    """
    left = {c: count for c, count in wanted.items() if count}
    for _ in range(MOST_ROUNDS):
        before = sum(left.values())
        for c, count in tuple(left.items()):
            left[c] -= place(c, count)
            if left[c] and not wants_others(c):
                return {c: left[c]} | {other: n for other, n in left.items() if n}
        left = {c: count for c, count in left.items() if count}
        if not left or sum(left.values()) == before:
            break
    return left
