"""The search for a better assignment: chains, proofs of small problems, neighbourhoods.

It begins with the best of the greedy orders and what runs now, and keeps the better of what it has
and what it finds, so that it may be ended at any moment.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_fill import fill
from scheduler_plugin.packing.greedy_orders import incumbent
from scheduler_plugin.packing.objective import (
    demanded_by_stage,
    disruption,
    objective,
    placed_by_stage,
    placed_values,
)
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import Assignment, Problem, placed_counts
from scheduler_plugin.solver.bounds import cumulative_bounds, tightened
from scheduler_plugin.solver.chains import goes_home, let_in, let_stay
from scheduler_plugin.solver.exchanges import swap_in
from scheduler_plugin.solver.neighbourhoods import Goal, Neighbourhood
from scheduler_plugin.solver.node_contents import NodeContents, plain_classes
from scheduler_plugin.solver.reordering import Reordering
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND

__all__ = [
    "LOOKS_PER_SECOND",
    "NO_LIMIT",
    "PATIENCE",
    "PLACING_SHARES",
    "WHOLE_MOVES_COUNTS",
    "WHOLE_MOVES_SHARE",
    "WORK_PER_SECOND",
    "Attempt",
    "Search",
    "SearchSettings",
    "cumulative",
]

#: Of the search, until when more is to be placed; after each of them fewer moves are looked for.
PLACING_SHARES = (0.3, 0.8)
#: Up to this many integers all nodes are one neighbourhood first, for so much of what is left.
WHOLE_MOVES_COUNTS, WHOLE_MOVES_SHARE = 900, 0.7
#: Of what is left, what making them may take, and the deterministic work of a round and of a pick.
CONTENTS_SHARE, CONTENTS_WORK, PICK_WORK = 0.7, 5e-3, 0.2
#: A call that only what is left limits.
NO_LIMIT = math.inf
#: Deterministic work of one linear program of a bound, and until when another may begin.
BOUND_WORK, BOUND_SHARE = 5e-3, 0.2
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
        leaving: Nodes of which nobody is told that they should come back.
    """

    workers: int = 1
    wall_seconds: float | None = None
    moves: bool = False
    clock: Clock | None = None
    explain_seconds: float | None = None
    leaving: frozenset[str] = frozenset()


class Attempt(NamedTuple):
    """What came of one.

    Attributes:
        better: Than the best before.
        proved: Nothing there is better in what the goal asks for.
    """

    better: bool
    proved: bool


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
        first: Packing | None = None,
    ) -> None:
        self.problem, self.settings, self._began_ns = problem, settings, began_ns
        self.kept = problem.kept_in_place
        self.proved = False
        self.bounds: tuple[int, ...] | None = None
        self.budget = budget
        self.solver_work = self.wall = 0.0
        self.jobs = sorted(problem.jobs, key=lambda job: -job.priority)
        self.packing = Packing(problem, incumbent(problem, self._is_enough, first))
        self.best_objective = objective(self.packing)
        self.start_values = placed_values(problem, self.best)
        self.rounds = self.improving = 0
        self.seed = seed
        self.random = random.Random(seed)
        self.reordering = Reordering(problem, self.kept, random.Random(seed))

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
        values = placed_by_stage(self.problem, assignment)
        if values == demanded_by_stage(self.problem):
            return True
        if self.bounds is None:
            self.bounds = cumulative_bounds(self.problem)
        return cumulative(values) == self.stage_bounds(values)

    def stage_bounds(self, reached: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Cumulative bounds, at most the demand, tightened by a proof of the whole problem."""
        if self.proved or self.bounds is None:
            return cumulative(reached or placed_by_stage(self.problem, self.best))
        demand = cumulative(demanded_by_stage(self.problem))
        return tuple(min(b, d) for b, d in zip(self.bounds, demand, strict=True))

    def tighten(self) -> None:
        """Let linear programs say what all resources together allow, while they take little."""

        def is_over() -> bool:
            self.solver_work += BOUND_WORK
            return self.progress() > BOUND_SHARE

        if self.bounds is not None and not self.done():
            self.bounds = tightened(self.problem, self.bounds, is_over)

    def done(self) -> bool:
        """Nothing more can be placed, or the budget is spent."""
        return self.proved or self._reaches_bound(self.best) or self.is_over()

    def is_over(self) -> bool:
        """The budget is spent."""
        return self.spent >= self.budget or self.seconds_left() <= 0.0

    def moves_more_than_one(self) -> bool:
        """More leave their nodes than the one without whom nothing would have come in."""
        prices = [price for each in self.problem.prices.values() for price in each]
        return bool(prices) and disruption(self.problem, self.best) > min(prices)

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
        self, around: Neighbourhood, goal: Goal, work: float = ROUND_WORK, share: float = 1.0
    ) -> Attempt:
        """One CP-SAT call.

        Args:
            around: What may be rearranged.
            goal: What the call is after.
            work: The most that it may spend of the budget.
            share: The same, of what is left of budget and time.
        """
        # OR-Tools brings pandas with it: a process that lets a child search starts without them.
        from scheduler_plugin.solver.cpsat import SolverLimits, improve

        limits = SolverLimits(
            min(work, (self.budget - self.spent) * share),
            max(0.01, self.seconds_left() * share),
            self.seed + self.rounds,
            self.settings.workers,
        )
        classes = [c for c in around.classes if c not in self.kept]
        result = improve(self.packing, classes, around.nodes, limits, goal)
        self.solver_work += max(result.deterministic_time, 1e-3)
        self.wall += result.wall_seconds
        self.rounds += 1
        return Attempt(self._take(result.assignment), result.proved)

    def reorder(self, until: float = 1.0) -> bool:
        """Other places for jobs that CP-SAT leaves alone, till then; whether any was better."""
        fruitless, improving = 0, self.improving
        while self.kept and fruitless < PATIENCE and not self.done():
            if self.progress() + self.reordering.work / self.budget > until:
                break
            self.solver_work += self.reordering.work
            found = self.reordering.another(self.best)
            fruitless = 0 if found is not None and self._take(found) else fruitless + 1
        return self.improving > improving

    def _take(self, assignment: Assignment) -> bool:
        """Make it the best if with what then still fits it is better."""
        if assignment == self.packing.assignment:
            return False
        mark = self.packing.mark()
        self.packing.become(assignment)
        fill(self.packing, self.jobs)
        let_stay(self.packing)
        reached = objective(self.packing)
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
                    if not self._lets_in(c):
                        break
                    placed[c] += 1
                    came_in = True
        self.best_objective = objective(self.packing)

    def take_moves_back(self) -> None:
        """Who left its node stays there, where others can make room for less than that wins."""
        mark = self.packing.mark()
        for (c, source), count in self.problem.start.items():
            while self.packing.assignment.get((c, source), 0) < count and not self.is_over():
                self.solver_work += CHAIN_WORK
                if not goes_home(self.packing, c, source):
                    break
        reached = objective(self.packing)
        if reached < self.best_objective or self.packing.states.is_overbooked():
            self.packing.undo_to(mark)
        else:
            self.best_objective = reached

    def change_contents(self, around: Neighbourhood) -> Attempt:
        """Fewer moves by other contents of whole nodes; proved where no content was missed."""
        plain = plain_classes(self.problem)
        classes = [c for c in around.classes if c in plain]
        contents = NodeContents(self.packing, classes, around.nodes) if classes else None
        if contents is None or not contents.is_comparable:
            return Attempt(better=False, proved=False)
        until = self.progress() + CONTENTS_SHARE * (1.0 - self.progress())

        def is_over() -> bool:
            self.solver_work += CONTENTS_WORK
            return self.progress() > until

        complete = contents.generate(is_over)
        left = self.budget - self.spent
        picked = contents.pick(min(PICK_WORK, left), self.seconds_left(), self.seed)
        self.solver_work += max(picked.work, 1e-3)
        self.rounds += 1
        better = picked.assignment is not None and self._take(picked.assignment)
        is_all = len(classes) == len(self.problem.classes)
        return Attempt(better, complete and picked.proved and is_all)

    def _lets_in(self, class_index: int) -> bool:
        self.solver_work += CHAIN_WORK
        if let_in(self.packing, class_index):
            return True
        # Pairs are many where clusters are large: neighbourhoods need their time, too.
        return self.progress() < PLACING_SHARES[0] and swap_in(self.packing, class_index)

    @property
    def best(self) -> Assignment:
        """The best assignment so far."""
        return self.packing.assignment


def cumulative(values: tuple[int, ...]) -> tuple[int, ...]:
    """Sums from the first on."""
    total, result = 0, []
    for value in values:
        total += value
        result.append(total)
    return tuple(result)
