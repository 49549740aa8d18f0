"""CP-SAT over a part of the problem: integer counts of each pod class on each node.

Three habits make it useful within a second (measurements: docs/placement-planner.md): identical
pods are one integer, the incumbent goes in as a complete hint, and capacities are divided by the
greatest common divisor of the requests, which loses nothing and keeps the numbers small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from scheduler_plugin.documents.objective_order import ObjectiveStage
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.objective import OPENED_NODE_COST_WATTS, is_idle_gpu_node
from scheduler_plugin.packing.problem import Assignment, IntArray
from scheduler_plugin.solver.board_rows import BoardRows, boards_held
from scheduler_plugin.solver.neighbourhoods import Goal

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
    """An assignment, whether what the goal asks for is proved best for the part, and the work."""

    assignment: Assignment
    proved: bool
    deterministic_time: float
    wall_seconds: float


class _Stage(NamedTuple):
    """What is maximised in one go, and whether the call is after it."""

    expression: Any
    is_asked: bool


class _Part:
    """The model of the chosen classes on the chosen nodes; all else in the assignment stays."""

    def __init__(self, packing: Packing, classes: Sequence[int], nodes: Sequence[int]) -> None:
        self.problem, self.packing = packing.problem, packing
        inside, there = set(classes), set(nodes)
        self.start = {
            (c, n): k for (c, n), k in packing.assignment.items() if c in inside and n in there
        }
        before = boards_held(packing, nodes)
        for (c, n), k in self.start.items():
            packing.put(c, n, -k)
        self.outside = dict(packing.assignment)
        self.model = cp_model.CpModel()
        self.counts: dict[tuple[int, int], Any] = {}
        self.whole: dict[str, Any] = {}
        self.opened: dict[int, Any] = {}
        self.added: dict[tuple[int, int], Any] = {}
        self.left_behind: dict[tuple[int, int], Any] = {}
        self._place_outside(classes)
        self._variables(classes, nodes)
        self._moves()
        self._demands(classes)
        self._capacities(nodes)
        self.boards = BoardRows(self.model, packing, self.counts, before)
        self._power()
        self._quotas()
        self._open_nodes(nodes)

    def _place_outside(self, classes: Sequence[int]) -> None:
        self.left = {c: int(self.problem.counts[c]) for c in classes}
        for (c, _), count in self.outside.items():
            if c in self.left:
                self.left[c] -= count

    def _variables(self, classes: Sequence[int], nodes: Sequence[int]) -> None:
        for c in classes:
            fits = self.packing.capacity(c)[list(nodes)].tolist()
            for n, most in zip(nodes, fits, strict=True):
                if min(self.left[c], most) > 0:
                    self.counts[c, n] = self.model.new_int_var(0, min(self.left[c], most), "")

    def _moves(self) -> None:
        """What each node gets more than runs there, and what leaves it."""
        for key, x in self.counts.items():
            runs = self.problem.start.get(key, 0)
            if not runs:
                self.added[key] = x
                continue
            most = int(self.left[key[0]])
            self.added[key] = self.model.new_int_var(0, most, "")
            self.left_behind[key] = self.model.new_int_var(0, runs, "")
            self.model.add(self.added[key] >= x - runs)
            self.model.add(self.left_behind[key] >= runs - x)

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
        on_node: dict[int, list[tuple[int, Any]]] = {n: [] for n in nodes}
        for (c, n), x in self.counts.items():
            on_node[n].append((c, x))
        requests = self.problem.requests
        for n, here in on_node.items():
            for resource in range(requests.shape[1]):
                terms = [(int(requests[c, resource]), x) for c, x in here if requests[c, resource]]
                self._at_most(terms, int(self.packing.free[n, resource]))

    def _power(self) -> None:
        on_domain: dict[int, list[tuple[int, Any]]] = {}
        for (c, n), x in self.added.items():
            watts = int(self.problem.watts[c, n])
            for domain in self.problem.counting(c, n).tolist() if watts else ():
                on_domain.setdefault(domain, []).append((watts, x))
        on_domain.pop(len(self.packing.headroom) - 1, None)
        for domain, terms in on_domain.items():
            self._at_most(terms, int(self.packing.headroom[domain]))

    def _quotas(self) -> None:
        """Of running pods, too: those that leave for good give theirs back."""
        asked = self.problem.quotas.asked
        of_row: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for (c, _), x in self.counts.items() if asked else ():
            for row, amount in asked[c]:
                of_row[row].append((amount, x))
        for row, terms in of_row.items():
            self._at_most(terms, self.packing.quota_left[row])

    def _at_most(self, terms: list[tuple[int, Any]], limit: int) -> None:
        if terms:
            step = math.gcd(*(amount for amount, _ in terms))
            self.model.add(sum(amount // step * x for amount, x in terms) <= limit // step)

    def _open_nodes(self, nodes: Sequence[int]) -> None:
        used_outside = {n for c, n in self.outside if self.problem.gpu_milli[c]}
        for n in nodes:
            if n in used_outside or not is_idle_gpu_node(self.problem, n):
                continue
            self.opened[n] = self.model.new_bool_var(f"open{n}")
            for (c, k), x in self.counts.items():
                if k == n and self.problem.gpu_milli[c]:
                    self.model.add(x <= int(self.left[c]) * self.opened[n])

    def stages(self, goal: Goal) -> list[_Stage]:
        """Expressions to maximise one after the other, values before costs.

        As many are one expression as ``MAX_STAGE_WEIGHT`` lets: a small part is solved in one go.
        """
        values, costs = self._values(), self._costs()
        if goal is Goal.FEWER_MOVES:
            self._hold_values()
            values = []
        made: list[_Stage] = []
        weight, expression, asked = 1, 0, False
        for number, (term, span) in enumerate(reversed([*values, *costs])):
            is_asked = number >= len(costs) or goal is Goal.FEWER_MOVES
            # A proof of the values in one expression with costs would have to prove the costs, too.
            apart = is_asked and not asked and goal is Goal.PROOF
            if weight > 1 and (apart or weight * (span + 1) > MAX_STAGE_WEIGHT):
                made.append(_Stage(expression, asked))
                weight, expression = 1, 0
            expression = expression + weight * term
            weight *= span + 1
            asked = is_asked
        if weight > 1:
            made.append(_Stage(expression, asked))
        return made[::-1]

    def _hold_values(self) -> None:
        """No stage may lose any."""
        for worth in self._stage_values():
            now = sum(worth.get(c, 0) * count for (c, _), count in self.start.items())
            self.model.add(self._value(worth) >= now)

    def _values(self) -> list[tuple[Any, int]]:
        """Placed value of each stage, most important first, with the most that it can be."""
        return [
            (self._value(worth), sum(each * self.left[c] for c, each in worth.items()))
            for worth in self._stage_values()
        ]

    def _stage_values(self) -> list[dict[int, int]]:
        """By stage what a pod of each class with a variable is worth; none for empty stages."""
        here = {c for c, _ in self.counts}
        found = []
        for stage in self.problem.value_stages:
            worth = {c: value for c, value in stage.items() if c in here}
            unit = math.gcd(*worth.values()) or 1
            if worth:
                found.append({c: value // unit for c, value in worth.items()})
        return found

    def _value(self, worth: dict[int, int]) -> Any:  # noqa: ANN401 - an expression or 0
        return sum(worth[c] * x for (c, _), x in self.counts.items() if c in worth)

    def _costs(self) -> list[tuple[Any, int]]:
        """Stages behind the values in their order, with the most that each can be.

        What the expected demand cannot use is not linear: the caller compares by it.
        """
        # Of several pods of a class on a node any may be the cheapest: each counts as their mean.
        prices = {key: self.problem.prices[key] for key in self.left_behind}
        price = {key: math.ceil(sum(each) / len(each)) for key, each in prices.items()}
        moved = sum(price[key] * x for key, x in self.left_behind.items())
        dearest = sum(price[key] * len(each) for key, each in prices.items())
        watts = {key: int(self.problem.watts[key]) for key in self.added}
        cost = sum(watts[key] * x for key, x in self.added.items() if watts[key])
        cost = cost + OPENED_NODE_COST_WATTS * sum(self.opened.values())
        most = sum(
            max((watts[key] for key in watts if key[0] == c), default=0) * left
            for c, left in self.left.items()
        )
        opened = OPENED_NODE_COST_WATTS * len(self.opened)
        stages = {
            ObjectiveStage.DISRUPTION: (-moved, dearest),
            ObjectiveStage.WORTH: self._worth(),
            ObjectiveStage.WATTS: (-cost, most + opened),
        } | {stage: self._priced(each) for stage, each in self.problem.placement_costs.items()}
        named = [stages[one] for one in self.problem.snapshot.objective if one in stages]
        return [(term, span) for term, span in named if not isinstance(term, int)]

    def _priced(self, each: IntArray) -> tuple[Any, int]:
        """What placed pods cost by shape (c, n), negated, with the most that it can be."""
        cost = {key: int(each[key]) for key in self.counts}
        span = sum(
            max((cost[key] for key in cost if key[0] == c), default=0) * left
            for c, left in self.left.items()
        )
        return -sum(cost[key] * x for key, x in self.counts.items() if cost[key]), span

    def _worth(self) -> tuple[Any, int]:
        """What GPU models are worth to those placed, with the most that it can be."""
        if self.problem.worth is None:
            return 0, 0
        worth = {key: int(self.problem.worth[key]) for key in self.counts}
        span = sum(
            max((worth[key] for key in worth if key[0] == c), default=0) * left
            for c, left in self.left.items()
        )
        return sum(worth[key] * x for key, x in self.counts.items() if worth[key]), span

    def hint(self, solution: Assignment) -> None:
        """Give a value for every variable."""
        self.model.clear_hints()
        self.boards.hint()
        for key, x in self.counts.items():
            self.model.add_hint(x, solution.get(key, 0))
        for key, x in self.left_behind.items():
            runs, count = self.problem.start[key], solution.get(key, 0)
            self.model.add_hint(x, max(0, runs - count))
            self.model.add_hint(self.added[key], max(0, count - runs))
        gangs = {self.problem.classes[c].pod.gang for c, _ in solution}
        for gang, flag in self.whole.items():
            self.model.add_hint(flag, gang in gangs)
        used = {n for c, n in solution if self.problem.gpu_milli[c]}
        for n, flag in self.opened.items():
            self.model.add_hint(flag, n in used)


def improve(
    packing: Packing,
    classes: Sequence[int],
    nodes: Sequence[int],
    limits: SolverLimits,
    goal: Goal = Goal.PROOF,
) -> Improvement:
    """The best assignment found when these classes may be rearranged on these nodes.

    The caller compares: within the limits the result may also be no better than the start. The
    packing is left as it came.
    """
    mark = packing.mark()
    part = _Part(packing, classes, nodes)
    packing.undo_to(mark)
    solution, spent, wall, proved = part.start, 0.0, 0.0, True
    stages = part.stages(goal)
    for number, stage in enumerate(stages):
        part.hint(solution)
        part.model.maximize(stage.expression)
        solver = _solver(limits, goal, 1.0 if stage.is_asked else COST_STAGE_SHARE, spent, wall)
        part.boards.prepare(solver)
        status = solver.solve(part.model)
        spent += float(solver.response_proto.deterministic_time)
        wall += solver.wall_time
        if status not in _USEFUL:
            proved = proved and not stage.is_asked
            break
        solution = {key: v for key, x in part.counts.items() if (v := solver.value(x))}
        part.boards.read(solver)
        if stage.is_asked:
            proved = proved and status == cp_model.OPTIMAL
        if spent >= limits.deterministic_time or wall >= limits.wall_seconds:
            proved = proved and not any(later.is_asked for later in stages[number + 1 :])
            break
        part.model.add(stage.expression >= solver.value(stage.expression))
    return Improvement(part.outside | solution, proved, spent, wall)


def _solver(
    limits: SolverLimits, goal: Goal, share: float, spent: float, wall: float
) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = limits.seed
    if goal is not Goal.PROOF:
        # On parts that are cut off after some 50 ms a full presolve is half of that.
        solver.parameters.max_presolve_iterations = 1
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.symmetry_level = 0
    work = min(limits.deterministic_time * share, limits.deterministic_time - spent)
    solver.parameters.max_deterministic_time = max(1e-3, work)
    solver.parameters.max_time_in_seconds = max(1e-2, limits.wall_seconds - wall)
    return solver
