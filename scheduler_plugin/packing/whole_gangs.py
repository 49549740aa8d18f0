"""All members of a gang, whatever order lets them in beside one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["left_over"]


def left_over(
    place: Callable[[int, int], int], wanted: Mapping[int, int], *, in_any_order: bool
) -> dict[int, int]:
    """Pods by class that find no place once the others have theirs; empty if all have one.

    Args:
        place: Books up to so many pods of a class; how many found a place. That stays booked.
        wanted: Pods by class, who comes first first.
        in_any_order: Whether the classes behind one without a place are asked, too, and it again
            after them: who wants others for company waits for these, whatever its size.
    """
    left = {c: count for c, count in wanted.items() if count}
    while left:
        before = sum(left.values())
        for c, count in tuple(left.items()):
            left[c] -= place(c, count)
            if left[c] and not in_any_order:
                break
        left = {c: count for c, count in left.items() if count}
        if not in_any_order or sum(left.values()) == before:
            break
    return left
