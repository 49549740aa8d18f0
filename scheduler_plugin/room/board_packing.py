"""Boards for pods of one node, found from their sizes alone.

Best fit of the largest first finds most. What it misses is searched board by board: the fullest
sets of what is left that one board takes, as long as what they waste leaves enough for the rest
("bin completion", Gent and Walsh, AAAI 1998; Korf, AAAI 2002).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["packed"]

MOST_LOOKS: Final = 10_000
"""Sets looked at, about 10 ms; then no way counts as found."""

MOST_BOARDS: Final = 64
"""Of a node that is searched; more stand for a whole cluster, where best fit is enough."""


def packed(parts: Sequence[int], left: Sequence[int]) -> list[int] | None:
    """A board for each part; None if there is no way or none was found.

    Args:
        parts: Thousandths of a board, falling.
        left: Thousandths of each board; below 0 where it is none.
    """
    found = _best_fit(parts, left)
    if found is not None or len(left) > MOST_BOARDS:
        return found
    return _Completions(parts, left).found()


def _best_fit(parts: Sequence[int], left: Sequence[int]) -> list[int] | None:
    boards, chosen = list(left), []
    for part in parts:
        able = [board for board, rest in enumerate(boards) if rest >= part]
        if not able:
            return None
        board = min(able, key=boards.__getitem__)
        boards[board] -= part
        chosen.append(board)
    return chosen


class _Completions:
    """Each board in turn is completed around the largest part that is left."""

    def __init__(self, parts: Sequence[int], left: Sequence[int]) -> None:
        self._parts = parts
        self._boards: dict[int, list[int]] = defaultdict(list)
        for board, rest in enumerate(left):
            if rest > 0:
                self._boards[rest].append(board)
        self._count = Counter(parts)
        self._sizes = sorted(self._count, reverse=True)
        self._slack = sum(rest * len(same) for rest, same in self._boards.items()) - sum(parts)
        self._looks = 0
        self._chosen: list[tuple[int, tuple[int, ...]]] = []

    def found(self) -> list[int] | None:
        """A board for each part."""
        if self._slack < 0 or not self._completed(0, self._slack):
            return None
        of_size: dict[int, list[int]] = {size: [] for size in self._sizes}
        for board, sizes in self._chosen:
            for size in sizes:
                of_size[size].append(board)
        return [of_size[size].pop() for size in self._parts]

    def _completed(self, largest: int, slack: int) -> bool:
        while largest < len(self._sizes) and not self._count[self._sizes[largest]]:
            largest += 1
        if largest == len(self._sizes):
            return True
        for rest in sorted(self._boards):
            if not self._boards[rest] or rest < self._sizes[largest]:
                continue
            board = self._boards[rest].pop()
            sets = sorted(self._sets_with(largest, rest), key=sum, reverse=True)
            for sizes in sets:
                wasted = rest - sum(sizes)
                if wasted > slack or self._looks > MOST_LOOKS:
                    break
                self._count.subtract(sizes)
                self._chosen.append((board, sizes))
                if self._completed(largest, slack - wasted):
                    return True
                self._chosen.pop()
                self._count.update(sizes)
            self._boards[rest].append(board)
        return False

    def _sets_with(self, largest: int, rest: int) -> list[tuple[int, ...]]:
        size = self._sizes[largest]
        self._count[size] -= 1
        found = [(size, *more) for more in self._sets(largest, rest - size)]
        self._count[size] += 1
        return found

    def _sets(self, first: int, rest: int) -> Iterator[tuple[int, ...]]:
        """Of what is left, every set that fits; sizes falling from the given one on."""
        self._looks += 1
        yield ()
        for number in range(first, len(self._sizes)):
            size = self._sizes[number]
            if size <= rest and self._count[size] and self._looks <= MOST_LOOKS:
                self._count[size] -= 1
                for more in self._sets(number, rest - size):
                    yield (size, *more)
                self._count[size] += 1
