"""Which nodes and classes CP-SAT may rearrange together, so that a waiting job gets a place.

One node's leftover is too small for the job, or it would have been placed. So a neighbourhood is
a node that lacks little, and others whose leftovers make up for it: together they have room for the
job, and CP-SAT sees whether the pods on them can be arranged so that the room is in one place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import BoolArray, Problem, placed_counts

__all__ = ["Goal", "Neighbourhood", "Neighbourhoods", "everything"]

SIZES: Final = (3, 4, 5, 6)
"""Nodes of a neighbourhood, in turn: small ones are solved in milliseconds."""

OTHERS_WAITING: Final = 8
"""Classes that wait besides the job and may come in, too."""


class Goal(Enum):
    """What a call is after; every answer is at least as good as the start in the whole objective.

    Attributes:
        PROOF: Values by themselves before all costs, so that they can be proved best.
        BETTER: Values and costs in one expression.
        FEWER_MOVES: Values are held, only costs are looked at.
    """

    PROOF = auto()
    BETTER = auto()
    FEWER_MOVES = auto()


IN_ANOTHERS_STEAD: Final = 24
"""Waiting classes that may come in for others, so that fewer moves do: assumed."""


class Neighbourhood(NamedTuple):
    """What may be rearranged."""

    classes: Sequence[int]
    nodes: Sequence[int]


def everything(problem: Problem) -> tuple[BoolArray, Neighbourhood]:
    """Where each class has room beside what stays, shape (c, n), and all of it as one part."""
    free = Packing(problem)
    classes = range(len(problem.classes))
    could = np.stack([free.capacity(c) for c in classes]) > 0
    return could, Neighbourhood(classes, np.flatnonzero(could.any(axis=0)).tolist())


class Neighbourhoods:
    """Neighbourhoods of one problem.

    Args:
        problem: What is packed.
        could: Which node could take a pod of which class, were it empty of what moves, (c, n).
        chance: Breaks ties and leaves the obvious ones now and then.
    """

    def __init__(self, problem: Problem, could: BoolArray, chance: random.Random) -> None:
        self._problem, self._could, self._chance = problem, could, chance
        self._scale = np.maximum(problem.total, 1).astype(np.float64)
        self._together: dict[str, list[int]] = {}
        for job in problem.jobs:
            if job.gang:
                self._together[job.gang] = list(job.classes)

    def next_one(self, packing: Packing, jobs: Sequence[Job], turn: int) -> Neighbourhood | None:
        """Around one of the jobs that wait, the most important first; None if none waits."""
        placed = placed_counts(self._problem, packing.assignment)
        lacking = np.array(placed, dtype=np.int64) < self._problem.counts
        waiting = [job for job in jobs if lacking[list(job.classes)].any()]
        if not waiting:
            return None
        job = waiting[turn % len(waiting)]
        nodes = self._nodes(packing, job, SIZES[turn % len(SIZES)])
        return Neighbourhood(self._classes(packing, job, waiting, nodes), nodes)

    def around_moves(self, packing: Packing, size: int) -> Neighbourhood | None:
        """Nodes that pods leave and others that they come to: fewer moves may do; None for none.

        One pod that left: its node, where its class came to, who came to its node and from where,
        then nodes of other moves and, at last, any. Who waits may come in another's stead.
        """
        start, now = self._problem.start, packing.assignment
        left = [key for key, count in start.items() if now.get(key, 0) < count]
        if not left:
            return None
        came = [key for key, count in now.items() if count > start.get(key, 0)]
        c, source = left[self._chance.randrange(len(left))]
        came_here = {k for k, n in came if n == source}
        linked = [n for k, n in came if k == c] + [n for k, n in left if k in came_here]
        others = [n for _, n in [*left, *came]]
        count = len(self._problem.node_names)
        anywhere = self._chance.sample(range(count), min(size, count))
        for nodes in (linked, others):
            self._chance.shuffle(nodes)
        chosen = list(dict.fromkeys([source, *linked, *others, *anywhere]))[:size]
        lacking = np.array(placed_counts(self._problem, now)) < self._problem.counts
        waiting = np.flatnonzero(lacking).tolist()
        inside = set(self._classes(packing, None, (), chosen))
        inside |= set(self._chance.sample(waiting, min(IN_ANOTHERS_STEAD, len(waiting))))
        return Neighbourhood(self._with_gangs(inside), sorted(chosen))

    def _nodes(self, packing: Packing, job: Job, size: int) -> list[int]:
        """A node that lacks little for the largest pod of the job, then complementary ones."""
        problem = self._problem
        largest = max(job.classes, key=lambda c: tuple(problem.requests[c]))
        reach = np.flatnonzero(self._could[list(job.classes)].any(axis=0))
        room = packing.free[reach] / self._scale[reach]
        asked = problem.requests[largest] / self._scale[reach]
        lack = np.maximum(asked - room, 0.0).sum(axis=1)
        first = self._near_the_best(lack)
        chosen = [first]
        have = room[first].copy()
        open_to = np.ones(len(reach), dtype=np.bool_)
        open_to[first] = False
        while len(chosen) < min(size, len(reach)):
            still = np.maximum(asked[first] - have, 0.0)
            gain = np.minimum(room, still).sum(axis=1) + 0.1 * room.mean(axis=1)
            following = self._near_the_best(np.where(open_to, -gain, np.inf))
            chosen.append(following)
            open_to[following] = False
            have += room[following]
        return sorted(reach[chosen].tolist())

    def _near_the_best(self, cost: npt.NDArray[np.float64]) -> int:
        """Mostly the lowest, now and then one of the next."""
        able = int(np.isfinite(cost).sum())
        rank = min(able - 1, int(self._chance.expovariate(0.5)))
        return int(np.argpartition(cost, rank)[rank])

    def _classes(
        self, packing: Packing, job: Job | None, waiting: Sequence[Job], nodes: Sequence[int]
    ) -> list[int]:
        there = set(nodes)
        inside = {c for c, n in packing.assignment if n in there}
        inside |= {c for c, n in self._problem.start if n in there}
        inside |= set(job.classes if job is not None else ())
        others = [c for other in waiting for c in other.classes if not other.gang]
        inside |= set(self._chance.sample(others, min(OTHERS_WAITING, len(others))))
        return self._with_gangs(inside)

    def _with_gangs(self, inside: set[int]) -> list[int]:
        """And all other classes of their gangs."""
        gangs = {self._problem.classes[c].pod.gang for c in inside} - {""}
        return sorted(inside | {c for gang in gangs for c in self._together[gang]})
