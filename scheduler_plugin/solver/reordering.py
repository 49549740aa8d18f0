"""Other orders and other nodes for jobs that CP-SAT leaves where greedy put them.

What pods want of others, gangs of one domain and sharers of measured boards are no linear rows, so
they are taken away and placed anew, one by one, in an order and on nodes that chance picks: ruin
and recreate (Schrimpf et al., J. Comput. Phys. 159, 2000). Every rule is asked as greedy asks it.
"""

from __future__ import annotations

import random
from collections.abc import Collection

import numpy as np

from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_fill import fill
from scheduler_plugin.packing.objective import placed_by_stage
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import Assignment, Problem, placed_counts

__all__ = ["Reordering"]

ALSO_TAKEN = (0.1, 0.4, 1.0)
"""Of the other jobs, the part that is taken away with them, in turn (assumed)."""
NODES_ASKED_FIRST = 0.5
"""Of all nodes, those that a pod or gang may go to before the others are asked (assumed)."""
WORK_PER_POD = 6e-5
"""CP-SAT's deterministic work that takes as long: 0.10 to 0.21 ms a pod where we measured."""
WAITING_FIRST = 0.5
"""How often those who wait come before everybody else of their tier (assumed)."""


class _Wandering(Packing):
    """Pods go where they strand least of half of the nodes, drawn anew each time; then anywhere."""

    def __init__(self, problem: Problem, assignment: Assignment, chance: random.Random) -> None:
        self._chance = chance
        super().__init__(problem, assignment)

    def place(self, class_index: int, count: int) -> int:
        """Book up to ``count`` pods; how many found a place."""
        allowed = self.only
        drawn = [self._chance.random() < NODES_ASKED_FIRST for _ in self.problem.node_names]
        some = np.array(drawn, dtype=np.bool_)
        self.only = some if allowed is None else some & allowed
        placed = super().place(class_index, count)
        self.only = allowed
        return placed if placed == count else placed + super().place(class_index, count - placed)


class Reordering:
    """Tries of one search, each from the best assignment that there is.

    Args:
        problem: What is packed.
        kept: Classes that only this can give another place.
        chance: Where orders and nodes come from.

    Attributes:
        work: Of one try, as CP-SAT counts its own.
    """

    def __init__(self, problem: Problem, kept: Collection[int], chance: random.Random) -> None:
        self.problem, self._chance = problem, chance
        self._kept = [job for job in problem.jobs if not set(kept).isdisjoint(job.classes)]
        self._others = [job for job in problem.jobs if set(kept).isdisjoint(job.classes)]
        self.work = WORK_PER_POD * max(1, sum(one.count for one in problem.classes))
        self._turn = 0

    def another(self, best: Assignment) -> Assignment | None:
        """An assignment that places more than the given one; None if this try found none."""
        packing = _Wandering(self.problem, best, self._chance)
        self._turn += 1
        part = ALSO_TAKEN[self._turn % len(ALSO_TAKEN)]
        taken = self._kept + [job for job in self._others if self._chance.random() < part]
        placed = placed_counts(self.problem, best)
        for job in taken:
            self._take_away(packing, job)
        fill(packing, self._order(taken, placed))
        fill(packing, self._order(self._others, placed))
        found = packing.assignment
        better = placed_by_stage(self.problem, found) > placed_by_stage(self.problem, best)
        return dict(found) if better else None

    def _take_away(self, packing: Packing, job: Job) -> None:
        """All pods of a job that the plan placed; who runs stays."""
        for c, node in [key for key in packing.assignment if key[0] in job.classes]:
            count = packing.assignment[c, node] - self.problem.start.get((c, node), 0)
            if count > 0:
                packing.put(c, node, -count)

    def _order(self, jobs: list[Job], placed: list[int]) -> list[Job]:
        """Tiers first; often those who wait before the others."""
        waiting_first = self._chance.random() < WAITING_FIRST

        def rank(job: Job) -> tuple[int, bool, float]:
            waits = any(placed[c] < self.problem.counts[c] for c in job.classes)
            return -job.priority, waiting_first and not waits, self._chance.random()

        return sorted(jobs, key=rank)
