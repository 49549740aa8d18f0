"""The search for a better assignment: chains, proofs of small problems, neighbourhoods.

It begins with the best of the greedy orders and what runs now, and keeps the better of what it has
and what it finds, so that it may be ended at any moment.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler_plugin.bounds import cumulative_bounds
from scheduler_plugin.chains import let_in, let_stay
from scheduler_plugin.greedy import Packing, fill
from scheduler_plugin.greedy_orders import incumbent
from scheduler_plugin.neighbourhoods import Neighbourhoods
from scheduler_plugin.objective import demanded_values, objective, placed_values
from scheduler_plugin.pod_classes import Job
from scheduler_plugin.problem import Assignment, Problem, placed_counts
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND

__all__ = [
    "LOOKS_PER_SECOND",
    "WORK_PER_SECOND",
    "Search",
    "SearchSettings",
    "cumulative",
    "improve_all",
]

#: Up to this many integers CP-SAT takes the whole problem (it stops helping above about 64 nodes).
WHOLE_PROBLEM_COUNTS = 3000
#: With running pods that may move, far fewer can be proved in the time that there is.
WHOLE_WITH_MOVES_COUNTS = 250
#: What such a proof may take of what is left.
PROOF_SHARE = 0.3
#: Of the search, for placing more; after that only fewer moves are looked for, if there are any.
PLACING_SHARE = 0.6
#: Every so many rounds fewer moves are looked for, among so many nodes.
MOVES_EVERY, MOVES_NODES = 2, 6
#: Rounds without improvement before the search gives up.
PATIENCE = 60
#: CP-SAT's deterministic work for one neighbourhood.
ROUND_WORK = 0.02
#: CP-SAT's deterministic work for a second of deadline; a unit took 1 to 3 s where we measured.
WORK_PER_SECOND = 0.3
#: The same for a look at all chains that would let one pod in: 2 to 5 ms where we measured.
CHAIN_WORK = 1e-3
#: Looks of ``board_neighbours`` for a second of deadline: assumed.
LOOKS_PER_SECOND = 3e6
#: Without a wall limit only deterministic work ends a search.
NO_WALL_LIMIT = 1e9


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search goes, besides its budget and seed.

    Attributes:
        workers: Of CP-SAT; one makes the plan deterministic.
        wall_seconds: Ends the search so long after ``plan`` began, and with it determinism.
        clock: Tells how long that is; without one only CP-SAT's own time counts.
        moves: Whether running pods that can be moved may be, and may lose their places to more
            important ones.
        explain_seconds: Ends the look for causes so long after ``plan`` began, on that clock.
    """

    workers: int = 1
    wall_seconds: float | None = None
    moves: bool = False
    clock: Clock | None = None
    explain_seconds: float | None = None


class Search:
    """The best assignment so far and what finding it has cost.

    Args:
        problem: What is packed.
        budget: Deterministic work.
        seed: Of the search.
        settings: With the wall limit.
        began_ns: When the plan began, on the settings' clock.
        first: What the first greedy order gave, if the caller has it already.
    """

    def __init__(
        self,
        problem: Problem,
        budget: float,
        seed: int,
        settings: SearchSettings,
        began_ns: int,
        first: Assignment | None = None,
    ) -> None:
        self.problem, self.settings, self._began_ns = problem, settings, began_ns
        self.kept = problem.kept_in_place
        self.proved = False
        self.bounds: tuple[int, ...] | None = None
        self.budget = budget
        self.solver_work = self.wall = 0.0
        self.jobs = sorted(problem.jobs, key=lambda job: -job.priority)
        self.packing = Packing(problem, incumbent(problem, self._is_enough, first))
        self.best_objective = objective(problem, self.best)
        self.start_values = placed_values(problem, self.best)
        self.rounds = self.improving = 0
        self.seed = seed
        self.random = random.Random(seed)

    @property
    def spent(self) -> float:
        """Deterministic work, CP-SAT's and what asking for neighbours has cost.

        Each greedy pass asks every node about every class: thousands of pods that all differ take
        longer than the deadline by passes alone.
        """
        rule = self.problem.neighbours
        looks = 0 if rule is None else rule.looks
        return self.solver_work + looks * WORK_PER_SECOND / LOOKS_PER_SECOND

    def _is_enough(self, assignment: Assignment) -> bool:
        """A further greedy order is of no use, or there is no time for it."""
        over = self.spent > self.budget or self.seconds_left() <= 0.0
        return over or self._reaches_bound(assignment)

    def _reaches_bound(self, assignment: Assignment) -> bool:
        values = placed_values(self.problem, assignment)
        if values == demanded_values(self.problem):
            return True
        if self.bounds is None:
            self.bounds = cumulative_bounds(self.problem)
        return cumulative(values) == self.tier_bounds(values)

    def tier_bounds(self, reached: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Cumulative bounds, at most the demand, tightened by a proof of the whole problem."""
        if self.proved or self.bounds is None:
            return cumulative(reached or placed_values(self.problem, self.best))
        demand = cumulative(demanded_values(self.problem))
        return tuple(min(b, d) for b, d in zip(self.bounds, demand, strict=True))

    def done(self) -> bool:
        """Nothing more can be placed, or the budget is spent."""
        return (
            self.proved
            or self._reaches_bound(self.best)
            or self.spent >= self.budget
            or self.seconds_left() <= 0.0
        )

    def progress(self) -> float:
        """Of its budget and its wall limit, the share that the search has used of either."""
        used = self.spent / self.budget if self.budget else 1.0
        limit = self.settings.wall_seconds
        return used if not limit else max(used, 1.0 - self.seconds_left() / limit)

    def seconds_left(self) -> float:
        """Until the wall limit."""
        limit, clock = self.settings.wall_seconds, self.settings.clock
        if limit is None:
            return NO_WALL_LIMIT
        if clock is None:
            return limit - self.wall
        return limit - (clock.monotonic_ns() - self._began_ns) / NS_PER_SECOND

    def attempt(
        self, classes: Sequence[int], nodes: Sequence[int], share: float, *, whole: bool = False
    ) -> bool:
        """One CP-SAT call with a share of what is left; True if the best got better."""
        # OR-Tools brings pandas with it: a process that lets a child search starts without them.
        from scheduler_plugin.cpsat import SolverLimits, improve

        classes = [c for c in classes if c not in self.kept]
        limits = SolverLimits(
            (self.budget - self.spent) * share if whole else ROUND_WORK,
            max(0.01, self.seconds_left() * share),
            self.seed + self.rounds,
            self.settings.workers,
        )
        result = improve(self.packing, classes, nodes, limits, at_once=not whole)
        self.solver_work += max(result.deterministic_time, 1e-3)
        self.wall += result.wall_seconds
        self.rounds += 1
        self.proved = self.proved or (whole and result.proved)
        mark = self.packing.mark()
        self.packing.become(result.assignment)
        fill(self.packing, self.jobs)
        let_stay(self.packing)
        reached = objective(self.problem, self.packing.assignment)
        if reached <= self.best_objective or self.packing.states.is_overbooked():
            self.packing.undo_to(mark)
            return False
        self.best_objective = reached
        self.improving += 1
        return True

    def short_chains(self, jobs: Sequence[Job]) -> None:
        """Let waiting pods in by one or two moves each, the most important first."""
        placed = placed_counts(self.problem, self.packing.assignment)
        came_in = True
        while came_in:
            came_in = False
            for job in jobs:
                c = job.classes[0]
                while not job.gang and placed[c] < self.problem.counts[c] and not self.done():
                    self.solver_work += CHAIN_WORK
                    if not let_in(self.packing, c):
                        break
                    placed[c] += 1
                    came_in = True
        self.best_objective = objective(self.problem, self.packing.assignment)

    @property
    def best(self) -> Assignment:
        """The best assignment so far."""
        return self.packing.assignment


def improve_all(search: Search) -> None:
    """The whole problem if it is small, else neighbourhoods around one waiting job at a time.

    A job that stays where greedy put it is nothing that CP-SAT could place.
    """
    problem = search.problem
    jobs = [job for job in search.jobs if search.kept.isdisjoint(job.classes)]
    if not jobs:
        return
    free = Packing(problem)
    could = np.stack([free.capacity(c) for c in range(len(problem.classes))]) > 0
    useful = np.flatnonzero(could.any(axis=0)).tolist()
    every, integers = range(len(problem.classes)), int(could.sum())
    if integers <= WHOLE_PROBLEM_COUNTS and not problem.start:
        search.attempt(every, useful, 1.0, whole=True)
        return
    jobs = [job for job in jobs if all(could[c].any() for c in job.classes)]
    search.short_chains(jobs)
    if integers <= WHOLE_WITH_MOVES_COUNTS and not search.done():
        search.attempt(every, useful, PROOF_SHARE, whole=True)
    neighbourhoods = Neighbourhoods(problem, could, search.random)
    fruitless = turn = 0
    while fruitless < PATIENCE and not search.done():
        turn += 1
        around = None
        if turn % MOVES_EVERY == 0 or search.progress() > PLACING_SHARE:
            around = neighbourhoods.around_moves(search.packing, MOVES_NODES)
        around = around or neighbourhoods.next_one(search.packing, jobs, turn)
        if around is None:
            return
        better = search.attempt(around.classes, around.nodes, 1.0)
        fruitless = 0 if better else fruitless + 1


def cumulative(values: tuple[int, ...]) -> tuple[int, ...]:
    """Sums from the first on."""
    total, result = 0, []
    for value in values:
        total += value
        result.append(total)
    return tuple(result)
