"""Which cells a frontier still needs, and what those that are known say; pure.

For each arm and set of limits: bisect for the largest count of servers that a few common seeds
carry (a count is given up at its first seed that does not), then all seeds there and at the next
count. Carrying is taken to end once: what a larger count carries a smaller one does. The bisection
starts at the rating, which most arms carry, and goes below it only where that is not carried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from scipy.stats import beta

from benchmarks._frontier_cells import PLAIN, STATIC, Cell, judged
from benchmarks._row_slos import COUNTED, broken

Known = Mapping[Cell, Mapping[str, Any]]
CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Search:
    """One frontier.

    Attributes:
        variant: Its name in cells.
        arm: The policy.
        slos: Which times are held against the limits, a name of ``COUNTED``.
        least: A count that is taken to be carried.
        most: A count that is taken not to be.
        bisect_seeds: Common to all arms.
        seeds: Of the counts found, with those of the bisection.
        start: Searched upwards from there, and down to ``least`` if it is not carried; ``least``
            where nothing is said.
    """

    variant: str
    arm: str
    slos: str
    least: int
    most: int
    bisect_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    start: int | None = None

    def cell(self, servers: int, seed: int) -> Cell:
        """Of this arm; the static row is the plain one."""
        return Cell(self.variant, PLAIN if self.arm == STATIC else self.arm, servers, seed)

    def cells(self, servers: int, seed: int) -> tuple[Cell, ...]:
        """What a verdict needs."""
        plain = Cell(self.variant, PLAIN, servers, seed)
        mine = self.cell(servers, seed)
        return (plain,) if mine == plain else (plain, mine)


class Outcome(NamedTuple):
    """How far a search has come.

    Attributes:
        servers: The largest count that is carried, as far as is known.
        needs: Cells that the next step needs; none when it is over.
    """

    servers: int
    needs: tuple[Cell, ...]


def why_not(search: Search, known: Known, servers: int, seed: int) -> list[str] | None:
    """Why a count is not carried with a seed, nothing if it is; None if that is not known."""
    cells = search.cells(servers, seed)
    if any(cell not in known for cell in cells):
        return None
    mine, plain = known[cells[-1]], known[cells[0]]
    if "refused" in mine:
        return ["I1"]
    if search.arm == STATIC:
        return ["peak"] if mine["peak_ratio"] > 1.0 else []
    events = [name for name in ("brakes", "trips", "violations") if mine[name] > 0]
    return events + broken(judged(dict(mine), dict(plain)), COUNTED[search.slos])


def outcome(search: Search, known: Known) -> Outcome:
    """The step that a search is at."""
    start = search.least if search.start is None else search.start
    low = _bisected(search, known, start, search.most)
    if low == start > search.least:
        carried = _carried(search, known, start)
        if isinstance(carried, tuple):
            return Outcome(start, carried)
        low = start if carried else _bisected(search, known, search.least, start)
    if isinstance(low, Outcome):
        return low
    needs = [
        cell
        for servers in (low, low + 1)
        for seed in search.seeds
        for cell in search.cells(servers, seed)
        if cell not in known
    ]
    return Outcome(low, tuple(needs))


def _bisected(search: Search, known: Known, low: int, high: int) -> int | Outcome:
    """The largest count that is carried, from ``low``, which is taken to be, to below ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        carried = _carried(search, known, middle)
        if isinstance(carried, tuple):
            return Outcome(low, carried)
        low, high = (middle, high) if carried else (low, middle)
    return low


def _carried(search: Search, known: Known, servers: int) -> bool | tuple[Cell, ...]:
    """Whether the bisection's seeds carry a count, or the cells that tell of the next seed."""
    for seed in search.bisect_seeds:
        why = why_not(search, known, servers, seed)
        if why is None:
            return tuple(cell for cell in search.cells(servers, seed) if cell not in known)
        if why:
            return False
    return True


def interval(kept: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share (Biometrika 26, 1934), at ``CONFIDENCE``."""
    tail = (1.0 - CONFIDENCE) / 2.0
    low = 0.0 if kept == 0 else float(beta.ppf(tail, kept, of - kept + 1))
    high = 1.0 if kept == of else float(beta.ppf(1.0 - tail, kept + 1, of - kept))
    return low, high


def all_cells(
    searches: Sequence[Search],
    known: dict[Cell, Mapping[str, Any]],
    evaluate: Callable[[list[Cell]], Iterator[tuple[Cell, Mapping[str, Any]]]],
) -> None:
    """Run rounds of what the searches need until none needs anything; adds to ``known``."""
    while needs := dict.fromkeys(cell for one in searches for cell in outcome(one, known).needs):
        for cell, row in evaluate(list(needs)):
            known[cell] = row
