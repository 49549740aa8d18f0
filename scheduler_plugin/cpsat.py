"""CP-SAT over a part of the problem: integer counts of each pod class on each node.

Three habits make it useful within a second (measurements: docs/placement.md): identical pods are
one integer, the incumbent goes in as a complete hint, and capacities are divided by the greatest
common divisor of the requests, which loses nothing and keeps the numbers small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from scheduler_plugin.greedy import Packing
from scheduler_plugin.objective import OPENED_NODE_COST_WATTS, is_idle_gpu_node
from scheduler_plugin.problem import Assignment, Problem
from scheduler_plugin.resource_columns import GPUS

#: Share of the work that the last stage may take, which only makes the same placements cheaper.
COST_STAGE_SHARE = 0.25
#: Tiers share one objective while the product of their totals stays below this.
MAX_STAGE_WEIGHT = 2**40
_USEFUL = (cp_model.OPTIMAL, cp_model.FEASIBLE)


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """What one call may spend. With one worker only ``deterministic_time`` decides.

    Attributes:
        deterministic_time: CP-SAT's own measure of work; one unit took 1 to 3 s here.
        wall_seconds: Guard for a slow machine; where it ends a search, plans may differ by run.
    """

    deterministic_time: float
    wall_seconds: float
    seed: int = 0
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Improvement:
    """An assignment, whether its placed values are proved best for the part, and the work spent."""

    assignment: Assignment
    proved: bool
    deterministic_time: float
    wall_seconds: float


class _Part:
    """The model of the chosen classes on the chosen nodes; all else in the assignment stays."""

    def __init__(
        self, problem: Problem, assignment: Assignment, classes: Sequence[int], nodes: Sequence[int]
    ) -> None:
        self.problem = problem
        inside = {(c, n) for c in classes for n in nodes}
        self.outside = {key: k for key, k in assignment.items() if key not in inside}
        self.start = {key: k for key, k in assignment.items() if key in inside}
        self.packing = Packing(problem, self.outside)
        self.model = cp_model.CpModel()
        self.counts: dict[tuple[int, int], Any] = {}
        self.whole: dict[str, Any] = {}
        self.opened: dict[int, Any] = {}
        self._place_outside(classes)
        self._variables(classes, nodes)
        self._demands(classes)
        self._capacities(nodes)
        self._power()
        self._open_nodes(nodes)

    def _place_outside(self, classes: Sequence[int]) -> None:
        self.left = {c: int(self.problem.counts[c]) for c in classes}
        for (c, _), count in self.outside.items():
            if c in self.left:
                self.left[c] -= count

    def _variables(self, classes: Sequence[int], nodes: Sequence[int]) -> None:
        for c in classes:
            fits = self.packing.capacity(c)
            for n in nodes:
                most = min(self.left[c], int(fits[n]))
                if most > 0:
                    self.counts[c, n] = self.model.new_int_var(0, most, f"x{c}_{n}")

    def _demands(self, classes: Sequence[int]) -> None:
        """Singles up to their count; a gang's classes all or nothing together."""
        placed_outside = {self.problem.classes[c].pod.gang for c, _ in self.outside}
        for c in classes:
            total = sum(x for (k, _), x in self.counts.items() if k == c)
            gang = self.problem.classes[c].pod.gang
            if not gang:
                self.model.add(total <= self.left[c])
            elif gang in placed_outside:
                self.model.add(total == self.left[c])
            else:
                if gang not in self.whole:
                    self.whole[gang] = self.model.new_bool_var(f"gang_{gang}")
                self.model.add(total == self.left[c] * self.whole[gang])

    def _capacities(self, nodes: Sequence[int]) -> None:
        for resource in range(self.problem.requests.shape[1]):
            for n in nodes:
                terms = [
                    (int(self.problem.requests[c, resource]), x)
                    for (c, k), x in self.counts.items()
                    if k == n and self.problem.requests[c, resource]
                ]
                self._at_most(terms, int(self.packing.free[n, resource]))

    def _power(self) -> None:
        for domain, headroom in enumerate(self.packing.headroom[:-1]):
            below = (self.problem.path == domain).any(axis=1)
            terms = [
                (int(self.problem.watts[c, n]), x)
                for (c, n), x in self.counts.items()
                if below[n] and self.problem.watts[c, n]
            ]
            self._at_most(terms, int(headroom))

    def _at_most(self, terms: list[tuple[int, Any]], limit: int) -> None:
        if terms:
            step = math.gcd(*(amount for amount, _ in terms))
            self.model.add(sum(amount // step * x for amount, x in terms) <= limit // step)

    def _open_nodes(self, nodes: Sequence[int]) -> None:
        used_outside = {n for c, n in self.outside if self.problem.requests[c, GPUS]}
        for n in nodes:
            if n in used_outside or not is_idle_gpu_node(self.problem, n):
                continue
            self.opened[n] = self.model.new_bool_var(f"open{n}")
            for (c, k), x in self.counts.items():
                if k == n and self.problem.requests[c, GPUS]:
                    self.model.add(x <= int(self.left[c]) * self.opened[n])

    def stages(self) -> list[Any]:
        """Expressions to maximise one after the other: tiers by weight, then the negated cost."""
        stages: list[Any] = []
        weight, expression = 1, 0
        for priority in reversed(self.problem.tiers):
            members = [(c, x) for (c, _), x in self.counts.items() if self._tier(c) == priority]
            value = sum(self.problem.classes[c].value * x for c, x in members)
            total = sum(
                self.problem.classes[c].value * count
                for c, count in self.left.items()
                if self._tier(c) == priority
            )
            if weight * (total + 1) > MAX_STAGE_WEIGHT:
                stages.append(expression)
                weight, expression = 1, 0
            expression = expression + weight * value
            weight *= total + 1
        stages.append(expression)
        cost = sum(int(self.problem.watts[key]) * x for key, x in self.counts.items())
        cost = cost + OPENED_NODE_COST_WATTS * sum(self.opened.values())
        return [*reversed(stages), -cost]

    def _tier(self, class_index: int) -> int:
        return self.problem.classes[class_index].priority

    def hint(self, solution: Assignment) -> None:
        """Give a value for every variable."""
        self.model.clear_hints()
        for key, x in self.counts.items():
            self.model.add_hint(x, solution.get(key, 0))
        gangs = {self.problem.classes[c].pod.gang for c, _ in solution}
        for gang, flag in self.whole.items():
            self.model.add_hint(flag, gang in gangs)
        used = {n for c, n in solution if self.problem.requests[c, GPUS]}
        for n, flag in self.opened.items():
            self.model.add_hint(flag, n in used)


def improve(
    problem: Problem,
    assignment: Assignment,
    classes: Sequence[int],
    nodes: Sequence[int],
    limits: SolverLimits,
) -> Improvement:
    """The best assignment found when these classes may be rearranged on these nodes.

    The caller compares: within the limits the result may also be no better than the start.
    """
    part = _Part(problem, assignment, classes, nodes)
    solution, spent, wall = part.start, 0.0, 0.0
    stages = part.stages()
    proved = True
    for stage in stages:
        if isinstance(stage, int):
            continue
        part.hint(solution)
        part.model.maximize(stage)
        share = COST_STAGE_SHARE if stage is stages[-1] else 1.0
        solver = _solver(limits, share, spent, wall)
        status = solver.solve(part.model)
        spent += float(solver.response_proto.deterministic_time)
        wall += solver.wall_time
        if status not in _USEFUL:
            proved = proved and stage is stages[-1]
            break
        solution = {key: v for key, x in part.counts.items() if (v := solver.value(x))}
        reached = solver.value(stage)
        if stage is not stages[-1]:
            proved = proved and status == cp_model.OPTIMAL
            part.model.add(stage >= reached)
        if spent >= limits.deterministic_time or wall >= limits.wall_seconds:
            proved = proved and stage is stages[-1]
            break
    return Improvement(part.outside | solution, proved, spent, wall)


def _solver(limits: SolverLimits, share: float, spent: float, wall: float) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = limits.seed
    work = min(limits.deterministic_time * share, limits.deterministic_time - spent)
    solver.parameters.max_deterministic_time = max(1e-3, work)
    solver.parameters.max_time_in_seconds = max(1e-2, limits.wall_seconds - wall)
    return solver
