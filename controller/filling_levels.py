"""How far movers come on their ways to their goals before a domain above them is full.

A mover's counted load at level x is span * min(x, bend). Below one domain the level is common; one
pass from the leaves to the root finds everybody's. The form in numpy is the one to read, the oracle
of the compiled one, and what runs without numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.compiled_levels import lower_levels
from wattpack.compiled import AVAILABLE
from wattpack.masks import some
from wattpack.power.domain_tree import FloatArray, IntArray

__all__ = ["Held", "Ways", "compile_fillings", "fair_levels", "levels_alone", "lower_by_arrays"]

_NOBODY: IntArray = np.zeros(0, dtype=np.int64)
_NO_LIMIT: FloatArray = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Ways:
    """Who rises how far, and below what.

    Attributes:
        above: Domain of each depth above each mover, the number of domains for none,
            (n_depths, n_movers).
        span: Watts of each way, (n_movers,).
        bends: Of each kind of room: share of the way beyond which nothing more is taken,
            (n_movers,).
        rooms: Of each kind: what every domain has left and, last, none, (n_domains + 1,).
    """

    above: IntArray
    span: FloatArray
    bends: Sequence[FloatArray]
    rooms: Sequence[FloatArray]


@dataclass(frozen=True, slots=True)
class Held:
    """How far each mover comes and what stops it, (n_movers,) each.

    Attributes:
        level: Share of the way, 0 to 1.
        domain: What set it, -1 for none.
        kind: Which of the rooms.
    """

    level: FloatArray
    domain: IntArray
    kind: IntArray

    @staticmethod
    def free(n_movers: int) -> Held:
        """Nothing holds anybody."""
        none = np.full(n_movers, -1, dtype=np.int64)
        return Held(np.ones(n_movers), none, np.zeros(n_movers, dtype=np.int64))

    def lower(self, where: IntArray, limit: FloatArray, domain: IntArray, kind: int) -> None:
        """Take in limits of some movers, where they are tighter."""
        if not where.size:
            return
        tighter = limit < self.level.take(where)
        chosen = where[tighter]
        self.level[chosen] = limit[tighter]
        self.domain[chosen] = domain[tighter]
        self.kind[chosen] = kind

    def of(self, source: IntArray) -> Held:
        """Each mover as another one is held."""
        return Held(self.level[source], self.domain[source], self.kind[source])


def compile_fillings() -> None:
    """Compile what the first tick would wait for: seconds, once a machine, where numba is there."""
    nobody_above = np.zeros((1, 1), dtype=np.int64)
    fair_levels(Ways(nobody_above, np.ones(1), [np.ones(1)], [np.array([0.5, np.inf])]))


def fair_levels(ways: Ways) -> Held:
    """Max-min fair share of the way for each mover, gangs aside."""
    return _lowered(ways, alone=False)[0]


def levels_alone(ways: Ways) -> tuple[Held, FloatArray]:
    """Each mover's least level, and each domain's if no other held its movers.

    Shapes: movers as given, (n_domains + 1,).
    """
    return _lowered(ways, alone=True)


def _lowered(ways: Ways, *, alone: bool) -> tuple[Held, FloatArray]:
    held, domain_level = Held.free(len(ways.span)), np.ones(len(ways.rooms[0]))
    if AVAILABLE:
        bends, rooms = np.array(ways.bends), np.array(ways.rooms)
        found = (held.level, held.domain, held.kind, domain_level)
        lower_levels(ways.above, ways.span, bends, rooms, found, alone)
    else:
        lower_by_arrays(ways, held, domain_level, alone=alone)
    return held, domain_level


def lower_by_arrays(ways: Ways, held: Held, domain_level: FloatArray, *, alone: bool) -> None:
    """``compiled_levels.lower_levels`` in numpy."""
    for domains in ways.above[::-1]:
        for kind, (room, bend) in enumerate(zip(ways.rooms, ways.bends, strict=True)):
            reached = bend if alone else np.minimum(bend, held.level)
            inside, limit = _limits(domains, ways.span, reached, room)
            held.lower(inside, limit, domains[inside], kind)
            np.minimum.at(domain_level, domains[inside], limit)


def _limits(
    above: IntArray, span: FloatArray, bend: FloatArray, room: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Positions of the movers below domains that have too little room, and their levels there."""
    wanted = np.bincount(above, weights=span * bend, minlength=len(room))
    over = wanted > room
    if not some(over):
        return _NOBODY, _NO_LIMIT
    (inside,) = over.take(above).nonzero()
    if not inside.size:  # A closed domain is over its room with nobody below it.
        return _NOBODY, _NO_LIMIT
    return inside, _level_of_each(above.take(inside), span.take(inside), bend.take(inside), room)


def _level_of_each(
    domains: IntArray, span: FloatArray, bend: FloatArray, room: FloatArray
) -> FloatArray:
    """The level x at which sum(span * min(x, bend)) of each domain equals its room, by member.

    All domains at once: members sorted by domain and bend give each domain's load at every bend as
    running sums; the level lies in the first piece that the room does not cover.
    """
    order = np.lexsort((bend, domains))
    group, span_s, bend_s = domains.take(order), span.take(order), bend.take(order)
    begins = np.ones(len(group), dtype=np.bool_)
    begins[1:] = group[1:] != group[:-1]
    (starts,) = begins.nonzero()
    sizes = np.append(starts[1:], len(group)) - starts
    which = begins.cumsum() - 1
    load_before = _running_before(span_s * bend_s, starts, which)
    span_before = _running_before(span_s, starts, which)
    ends = starts + sizes - 1
    span_total = span_before.take(ends) + span_s.take(ends)
    at_bend = load_before + bend_s * (span_total.take(which) - span_before)
    group_room = room.take(group.take(starts))
    covered = np.add.reduceat((at_bend <= group_room.take(which)).astype(np.int64), starts)
    piece = starts + np.minimum(covered, sizes - 1)
    rest = span_total - span_before[piece]
    level = (group_room - load_before[piece]) / np.maximum(rest, 1e-12)
    by_member = np.empty(len(domains))
    by_member[order] = np.minimum(np.maximum(level, 0.0), 1.0).take(which)
    return by_member


def _running_before(values: FloatArray, starts: IntArray, which: IntArray) -> FloatArray:
    """Sum of the values before each entry inside its own group."""
    before = values.cumsum() - values
    return np.asarray(before - before.take(starts).take(which), dtype=np.float64)
