"""The levels of progressive filling, compiled where numba is there: a row's tick is mostly them.

``filling_levels.lower_by_arrays`` is the same in numpy. Both add one number after the other in the
same order, so they give the same bits.
"""

from __future__ import annotations

import numpy as np

from wattpack.compiled import compiled
from wattpack.power.domain_tree import FloatArray, IntArray

__all__ = ["lower_levels"]


@compiled
def lower_levels(
    above: IntArray,
    span: FloatArray,
    bends: FloatArray,
    rooms: FloatArray,
    found: tuple[FloatArray, IntArray, IntArray, FloatArray],
    alone: bool,
) -> None:
    """Lower how far each mover comes to what the domains above it have room for, in place.

    Args:
        above: Domain of each depth above each mover, the number of domains for none,
            (n_depths, n_movers).
        span: Watts of each way, (n_movers,).
        bends: Share of the way beyond which nothing more is taken, (n_kinds, n_movers).
        rooms: Of every domain and, last, of none, (n_kinds, n_domains + 1).
        found: Level so far, the domain that set it, and which of the rooms, (n_movers,) each; the
            lowest level that each domain set, (n_domains + 1,).
        alone: Each domain counts as if no other held its movers.
    """
    level, domain, kind, domain_level = found
    n_kinds, n_rooms = rooms.shape
    n_depths, n_movers = above.shape
    reached, wanted = np.empty(n_movers), np.empty(n_rooms)
    for depth in range(n_depths - 1, -1, -1):
        mine = above[depth]
        for one in range(n_kinds):
            room = rooms[one]
            wanted[:] = 0.0
            for i in range(n_movers):
                reached[i] = bends[one, i] if alone else min(bends[one, i], level[i])
                wanted[mine[i]] += span[i] * reached[i]
            # Running sums go on from one domain to the next, as those of numpy do.
            passed = passed_load = 0.0
            for full in np.flatnonzero(wanted > room):
                members = np.flatnonzero(mine == full)
                if not members.size:  # A closed domain is over its room with nobody below it.
                    continue
                passed, passed_load, limit = _full_at(
                    members, span, reached, room[full], passed, passed_load
                )
                domain_level[full] = min(domain_level[full], limit)
                for held in members:
                    if limit < level[held]:
                        level[held], domain[held], kind[held] = limit, full, one


@compiled
def _full_at(
    members: IntArray, span: FloatArray, bend: FloatArray, room: float, passed: float,
    passed_load: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Running sums of ways and of loads after a domain, and the level at which it is full."""
    order = members[np.argsort(bend[members], kind="mergesort")]
    n = len(order)
    load_before, span_before = np.empty(n), np.empty(n)
    for k in range(n):
        way, load = span[order[k]], span[order[k]] * bend[order[k]]
        passed += way
        passed_load += load
        span_before[k], load_before[k] = passed - way, passed_load - load
    first, first_load = span_before[0], load_before[0]
    for k in range(n):
        span_before[k] -= first
        load_before[k] -= first_load
    total = span_before[n - 1] + span[order[n - 1]]
    covered = 0
    for k in range(n):
        if load_before[k] + bend[order[k]] * (total - span_before[k]) <= room:
            covered += 1
    piece = min(covered, n - 1)
    level = (room - load_before[piece]) / max(total - span_before[piece], 1e-12)
    return passed, passed_load, min(max(level, 0.0), 1.0)
