"""Progressive filling written the slow and obvious way: what the vectorised one must agree with.

All GPUs of a stage rise together. The first domain to fill up freezes everybody below it; the
others go on. Loops over GPUs, no gangs. Used by the tests as an oracle and here as a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.allocation import Wants
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree

_TINY = 1e-9


@dataclass(slots=True)
class Filling:
    """What one stage leaves to the next.

    Attributes:
        above: Domains above each GPU.
        expected: Each GPU's expected draw: what lies above it in a cap costs no room.
        caps: So far, by GPU.
        room: What each domain has left, in watts of caps.
        closed: Domains that are full.
        stopped: GPUs that rise no more.
    """

    above: list[list[int]]
    expected: list[float]
    caps: list[float]
    room: list[float]
    closed: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)


def loop_allocate(
    load: LoadTree, wants: Wants, room_watts: FloatArray, expected_watts: FloatArray
) -> list[float]:
    """Caps by the same rules as ``controller.allocation.allocate``, without gangs."""
    n = load.n_gpus
    above = [[int(d) for d in load.gpu_domains[:, i] if d < len(load.tree)] for i in range(n)]
    active = [i for i in range(n) if not wants.fixed[i]]
    caps = [float(c) for c in wants.minimum_watts]
    expected = [float(e) for e in expected_watts]
    room = [float(r / f) for r, f in zip(room_watts, load.gpu_factor, strict=True)]
    for i in active:
        for d in above[i]:
            room[d] -= min(caps[i], expected[i])
    # A domain that the minimum alone overdraws lets nobody rise, idle or not.
    closed = {d for d, r in enumerate(room) if r < -_TINY}
    filling = Filling(above, expected, caps, [max(r, 0.0) for r in room], closed)
    for members, goal in _stages(wants, active):
        rising = [i for i in members if i not in filling.stopped and goal[i] - caps[i] > 1e-6]
        _fill(rising, goal, filling)
    return caps


def _stages(wants: Wants, active: Sequence[int]) -> list[tuple[list[int], FloatArray]]:
    stages = [(list(active), wants.guaranteed_watts), (list(active), wants.floor_watts)]
    for level in sorted({int(wants.priority[i]) for i in active}, reverse=True):
        stages.append(([i for i in active if wants.priority[i] == level], wants.request_watts))
    return stages


def _fill(rising: list[int], goal: FloatArray, filling: Filling) -> None:
    caps, room, above = filling.caps, filling.room, filling.above
    closed, stopped, expected = filling.closed, filling.stopped, filling.expected
    start = {i: caps[i] for i in rising}
    span = {i: float(goal[i]) - caps[i] for i in rising}
    bend = {i: min(max((expected[i] - caps[i]) / span[i], 0.0), 1.0) for i in rising}
    left = dict(enumerate(room))
    free = set(rising)
    newly_closed: set[int] = set()
    for i in rising:
        if closed & set(above[i]):
            free.discard(i)
            stopped.add(i)
    while free:
        members: dict[int, list[int]] = {}
        for i in sorted(free):
            for d in above[i]:
                members.setdefault(d, []).append(i)
        level, first = min((_level(left[d], mine, span, bend), d) for d, mine in members.items())
        if level >= 1.0 - _TINY:
            level, frozen = 1.0, set(free)
        else:
            frozen = set(members[first])
            stopped |= frozen
            newly_closed.add(first)
        for i in frozen:
            caps[i] = start[i] + span[i] * level
            for d in above[i]:
                left[d] -= span[i] * min(level, bend[i])
        free -= frozen
    closed |= newly_closed
    for d, r in left.items():
        room[d] = max(r, 0.0)


def _level(
    room: float, members: list[int], span: dict[int, float], bend: dict[int, float]
) -> float:
    """Common level at which the members' load fills the room, infinite if it never does."""
    used, rate, last = 0.0, sum(span[i] for i in members), 0.0
    for i in sorted(members, key=lambda m: bend[m]):
        step = (bend[i] - last) * rate
        if used + step > room + _TINY:
            return last + max(room - used, 0.0) / rate
        used, last, rate = used + step, bend[i], rate - span[i]
    return math.inf
