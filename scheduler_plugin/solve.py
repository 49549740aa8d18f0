"""Snapshot in, plan out: incumbent, bound, CP-SAT where it can help, judge, explain.

Pure: no clock, no I/O, no threads. With one worker the same snapshot, budget and seed give the
same plan; the hard deadline is the business of ``scheduler_plugin.app.solver_process``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scheduler_plugin.bounds import cumulative_bounds
from scheduler_plugin.chains import let_in
from scheduler_plugin.checker import complaints
from scheduler_plugin.greedy import Packing, fill, incumbent
from scheduler_plugin.move_advice import with_moves
from scheduler_plugin.neighbourhoods import Neighbourhoods
from scheduler_plugin.objective import demanded_values, objective, placed_values
from scheduler_plugin.pending_causes import explain_pending
from scheduler_plugin.plan_document import Pending, PendingReason, Placement, Plan, Statistics, Tier
from scheduler_plugin.pod_classes import Job
from scheduler_plugin.problem import Assignment, Problem, compile_problem
from scheduler_plugin.snapshot import Pod, PodState, Snapshot
from scheduler_plugin.steps import changes, in_order

#: Up to this many integers CP-SAT takes the whole problem (it stops helping above about 64 nodes).
WHOLE_PROBLEM_COUNTS = 3000
#: With running pods that may move, far fewer can be proved in the time that there is.
WHOLE_WITH_MOVES_COUNTS = 250
#: What such a proof may take of what is left.
PROOF_SHARE = 0.3
#: Every so many rounds fewer moves are looked for, among so many nodes.
MOVES_EVERY, MOVES_NODES = 3, 8
#: Rounds without improvement before the search gives up.
PATIENCE = 60
#: CP-SAT's deterministic work for one neighbourhood.
ROUND_WORK = 0.05
#: CP-SAT's deterministic work for a second of deadline; a unit took 1 to 3 s where we measured.
WORK_PER_SECOND = 0.3
#: Looks of ``board_neighbours`` for a second of deadline: assumed.
LOOKS_PER_SECOND = 3e6
#: Without a wall limit only deterministic work ends a search.
NO_WALL_LIMIT = 1e9

OnPlan = Callable[[Plan], None]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search goes, besides its budget and seed.

    Attributes:
        workers: Of CP-SAT; one makes the plan deterministic.
        wall_seconds: Also end the search after this much real time, which gives up determinism.
        moves: Whether running pods that can be moved may be, and may lose their places to more
            important ones.
    """

    workers: int = 1
    wall_seconds: float | None = None
    moves: bool = False


class _Search:
    """The best assignment so far and what finding it has cost."""

    def __init__(
        self, problem: Problem, work: float, wall_seconds: float, seed: int, workers: int
    ) -> None:
        self.problem = problem
        self.kept = problem.kept_in_place
        self.proved = False
        self.bounds: tuple[int, ...] | None = None
        self.budget = work
        self.wall_seconds = wall_seconds
        self.solver_work = self.wall = 0.0
        self.jobs = sorted(problem.jobs, key=lambda job: -job.priority)
        self.packing = Packing(problem, incumbent(problem, self._is_enough))
        self.best_objective = objective(problem, self.best)
        self.start_values = placed_values(problem, self.best)
        self.rounds = self.improving = 0
        self.seed, self.workers = seed, workers
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
        return self.spent > self.budget or self._reaches_bound(assignment)

    def _reaches_bound(self, assignment: Assignment) -> bool:
        values = placed_values(self.problem, assignment)
        if values == demanded_values(self.problem):
            return True
        if self.bounds is None:
            self.bounds = cumulative_bounds(self.problem)
        return _cumulative(values) == self.tier_bounds(values)

    def tier_bounds(self, reached: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Cumulative bounds, at most the demand, tightened by a proof of the whole problem."""
        if self.proved or self.bounds is None:
            return _cumulative(reached or placed_values(self.problem, self.best))
        demand = _cumulative(demanded_values(self.problem))
        return tuple(min(b, d) for b, d in zip(self.bounds, demand, strict=True))

    def done(self) -> bool:
        """Nothing more can be placed, or the budget is spent."""
        return (
            self.proved
            or self._reaches_bound(self.best)
            or self.spent >= self.budget
            or self.wall >= self.wall_seconds
        )

    def attempt(
        self, classes: Sequence[int], nodes: Sequence[int], share: float, *, whole: bool = False
    ) -> bool:
        """One CP-SAT call with a share of what is left; True if the best got better."""
        # OR-Tools brings pandas with it: a process that lets a child search starts without them.
        from scheduler_plugin.cpsat import SolverLimits, improve

        classes = [c for c in classes if c not in self.kept]
        limits = SolverLimits(
            (self.budget - self.spent) * share if whole else ROUND_WORK,
            max(0.01, (self.wall_seconds - self.wall) * share),
            self.seed + self.rounds,
            self.workers,
        )
        result = improve(self.packing, classes, nodes, limits, at_once=not whole)
        self.solver_work += max(result.deterministic_time, 1e-3)
        self.wall += result.wall_seconds
        self.rounds += 1
        self.proved = self.proved or (whole and result.proved)
        mark = self.packing.mark()
        self.packing.become(result.assignment)
        fill(self.packing, self.jobs)
        reached = objective(self.problem, self.packing.assignment)
        if reached <= self.best_objective:
            self.packing.undo_to(mark)
            return False
        self.best_objective = reached
        self.improving += 1
        return True

    def short_chains(self, jobs: Sequence[Job]) -> None:
        """Let waiting pods in by one or two moves each, the most important first."""
        if not self.problem.start:
            return
        placed = Counter[int]()
        for (c, _), count in self.packing.assignment.items():
            placed[c] += count
        came_in = True
        while came_in:
            came_in = False
            for job in jobs:
                c = job.classes[0]
                while not job.gang and placed[c] < self.problem.counts[c] and not self.done():
                    if not let_in(self.packing, c):
                        break
                    placed[c] += 1
                    came_in = True
        self.best_objective = objective(self.problem, self.packing.assignment)

    @property
    def best(self) -> Assignment:
        """The best assignment so far."""
        return self.packing.assignment


def plan(
    snapshot: Snapshot,
    *,
    deadline_seconds: float = 1.0,
    seed: int = 0,
    settings: SearchSettings | None = None,
    on_plan: OnPlan | None = None,
) -> Plan:
    """A plan that the independent checker accepts; never worse than the greedy incumbent.

    Args:
        snapshot: What is known.
        deadline_seconds: About what the search may take, counted in deterministic work; the
            incumbent comes on top.
        seed: Of the search.
        settings: Of the search; None for one worker, as long as it takes, no moves.
        on_plan: Called with the incumbent's plan before CP-SAT starts, and after improvements.
    """
    digest = snapshot.digest()
    settings = settings or SearchSettings()
    problem = compile_problem(snapshot, moves=settings.moves)
    work = deadline_seconds * WORK_PER_SECOND
    wall_seconds = settings.wall_seconds or NO_WALL_LIMIT
    search = _Search(problem, work, wall_seconds, seed, settings.workers)
    greedy_plan = _judged(_assemble(search, digest, "greedy"), snapshot, digest)
    if on_plan is not None:
        on_plan(greedy_plan)
    before = search.best_objective
    if not search.done():
        _improve(search)
    if search.best_objective == before and not search.proved:
        return greedy_plan
    method: Literal["greedy", "cp_sat"] = "cp_sat" if search.improving else "greedy"
    better = _judged(_assemble(search, digest, method), snapshot, digest)
    if better.refusals:
        return greedy_plan.model_copy(update={"refusals": better.refusals + greedy_plan.refusals})
    return better


def _improve(search: _Search) -> None:
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
        if turn % MOVES_EVERY == 0:
            around = neighbourhoods.around_moves(search.packing, MOVES_NODES)
        around = around or neighbourhoods.next_one(search.packing, jobs, turn)
        if around is None:
            return
        better = search.attempt(around.classes, around.nodes, 1.0)
        fruitless = 0 if better else fruitless + 1


def _assemble(search: _Search, digest: str, method: Literal["greedy", "cp_sat"]) -> Plan:
    """The plan of the best assignment."""
    problem = search.problem
    found = changes(problem, search.best)
    placements = (
        Placement(
            uid=one.uid,
            node=problem.node_names[one.node],
            gang=problem.classes[one.class_index].pod.gang,
            watts=int(problem.watts[one.class_index, one.node]),
        )
        for one in found.arrivals
        if one.source < 0
    )
    tiers = _tiers(search)
    return Plan(
        snapshot_digest=digest,
        method=method,
        placements=tuple(sorted(placements, key=lambda p: p.uid)),
        pending=with_moves(problem, search.best, explain_pending(problem, search.best)),
        steps=in_order(problem, found),
        tiers=tiers,
        objective=search.best_objective,
        gap=max(
            (1 - t.cumulative_value / t.bound_value for t in tiers if t.bound_value), default=0.0
        ),
        statistics=Statistics(
            nodes=len(problem.node_names),
            pending_pods=sum(len(c.uids) for c in problem.classes) + len(problem.blocked),
            pod_classes=len(problem.classes),
            rounds=search.rounds,
            improving_rounds=search.improving,
            deterministic_time=round(search.solver_work, 6),
            incumbent_value=search.start_values,
        ),
    )


def _tiers(search: _Search) -> tuple[Tier, ...]:
    problem = search.problem
    placed = placed_values(problem, search.best)
    rows = zip(
        problem.tiers,
        demanded_values(problem),
        placed,
        _cumulative(placed),
        search.tier_bounds(),
        strict=True,
    )
    return tuple(
        Tier(
            priority=priority,
            demanded_value=demanded,
            placed_value=value,
            cumulative_value=cumulative,
            bound_value=bound,
        )
        for priority, demanded, value, cumulative, bound in rows
    )


def _judged(candidate: Plan, snapshot: Snapshot, digest: str) -> Plan:
    """The plan if the checker accepts it, otherwise one that places nothing and says why."""
    refusals = complaints(snapshot, candidate, digest=digest)
    return refused(snapshot, digest, refusals) if refusals else candidate


def refused(snapshot: Snapshot, digest: str, why: tuple[str, ...]) -> Plan:
    """Nothing is placed; every waiting pod says that its plan was refused."""

    def entry(pod: Pod) -> Pending:
        return Pending(
            uid=pod.uid, gang=pod.gang, reason=PendingReason.PLAN_REFUSED, message=why[0][:500]
        )

    waiting = [p for p in snapshot.pods if p.state in (PodState.PENDING, PodState.ABSENT)]
    return Plan(
        snapshot_digest=digest,
        method="none",
        pending=tuple(entry(pod) for pod in waiting),
        gap=1.0 if waiting else 0.0,
        refusals=why,
    )


def _cumulative(values: tuple[int, ...]) -> tuple[int, ...]:
    total, result = 0, []
    for value in values:
        total += value
        result.append(total)
    return tuple(result)
