"""Fewer moves for as much placed: each node gets one of many contents, all nodes together.

A *content* says how many pods of each class a node holds. A linear program mixes contents so that
every stage of placed value holds and no class has more pods than there are; its duals say what a
pod on a node is worth and ask for better contents until none is missed: column generation, as for
cutting stock (Gilmore and Gomory, Operations Research 9(6), 1961; Dantzig and Wolfe, Operations
Research 8(1), 1960). CP-SAT then picks one content a node. In 58 plans the least of the linear
program was within one move of the best pick in nearly all: it knows what rests of a node, which the
relaxation of counts by class and node does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import Assignment, Problem
from scheduler_plugin.solver.newcomers import Sets, best_sets

__all__ = ["NodeContents", "plain_classes"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

RESOURCES: Final = 2
"""That nodes may lack: sets of pods are compared by room in so many directions."""
MOST_LEAVING: Final = 3
"""Running pods of one node that leave it together, in contents made here."""
MOST_STAYING: Final = 400
"""Sets of them; of nodes with more pods fewer leave together."""
CELLS: Final = (64, 49, 81, 57)
"""Of grids of room, in turn: what one takes for the same room the next one tells apart."""
BEST_OF_A_NODE: Final = 4
"""New contents of a node in a round."""
TOLERANCE: Final = 1e-6
"""Of the linear program, of a usual move's price."""


def plain_classes(problem: Problem) -> frozenset[int]:
    """Classes of which room says all: no gangs, rules, power, quotas or boards told apart."""
    limited = problem.domain != len(problem.headroom) - 1
    quotas = problem.quotas
    return frozenset(
        c
        for c, one in enumerate(problem.classes)
        if c not in problem.kept_in_place
        and not one.pod.gang
        and not problem.watts[c, limited].any()
        and not (quotas.rows and quotas.asked[c])
        and not (problem.boards is not None and problem.demands[c].asks_for_boards)
    )


class _Staying(NamedTuple):
    """What may stay of the pods that run on a node.

    Attributes:
        classes: That run there, shape (k,).
        counts: Of each that stay, shape (m, k).
        cost: Of those that leave, shape (m,).
        room: For those that come, shape (m, 2).
    """

    classes: IntArray
    counts: IntArray
    cost: FloatArray
    room: IntArray


class Picked(NamedTuple):
    """What came of a pick.

    Attributes:
        assignment: With all that stays elsewhere; None where none cheaper was found.
        proved: None of these contents cost less together.
        work: CP-SAT's deterministic work.
    """

    assignment: Assignment | None
    proved: bool
    work: float


class NodeContents:
    """Contents of the nodes of a neighbourhood, more with each round.

    Axes: ``c`` classes and ``n`` nodes of the neighbourhood, ``s`` stages, ``m`` contents.

    Args:
        packing: What is to be had with fewer moves; all else in it stays.
        classes: Of the neighbourhood, plain ones.
        nodes: Of the neighbourhood.
    """

    def __init__(self, packing: Packing, classes: Sequence[int], nodes: Sequence[int]) -> None:
        self._problem, self._classes, self._nodes = packing.problem, list(classes), list(nodes)
        problem = self._problem
        self._best = self._counted(packing.assignment)
        self._runs = self._counted(problem.start)
        requests = problem.requests[self._classes]
        row, there = {c: i for i, c in enumerate(self._classes)}, set(nodes)
        self._outside = {
            key: count
            for key, count in packing.assignment.items()
            if key[0] not in row or key[1] not in there
        }
        self._left = problem.counts[self._classes].copy()
        for (c, _), count in self._outside.items():
            if c in row:
                self._left[row[c]] -= count
        free = packing.free[self._nodes] + self._best @ requests
        lacking = np.flatnonzero((free < self._left @ requests).any(axis=0))
        self.is_comparable = len(lacking) <= RESOURCES
        lacking = lacking[:RESOURCES]
        pads = ((0, 0), (0, RESOURCES - len(lacking)))
        self._asked, self._free = np.pad(requests[:, lacking], pads), np.pad(free[:, lacking], pads)
        everywhere = problem.eligible[np.ix_(self._classes, self._nodes)].all(axis=1)
        self._may_come = np.where(everywhere, self._left, 0)
        self._worth = self._stage_worth(row)
        self._held = self._worth @ self._best.sum(axis=0)
        self._node: list[int] = []
        self._content: list[IntArray] = []
        self._cost: list[int] = []
        self._seen: set[tuple[int, bytes]] = set()
        self._staying = [self._stays(n) for n in range(len(self._nodes))]
        self._most = np.max([one.room.max(axis=0) for one in self._staying], axis=0)
        self._known = [self._add(n, content) for n, content in enumerate(self._best)]
        for n, content in enumerate(self._runs):
            # What is outside, a gang for example, may have taken the room of those that ran.
            if (content @ self._asked <= self._free[n]).all():
                self._add(n, content)
        self._surplus = np.zeros(0)
        self._unit = max(1.0, float(np.median([cost for cost in self._cost if cost] or [1])))

    def _counted(self, assignment: Assignment) -> IntArray:
        """Pods by node and class, shape (n, c)."""
        found = np.zeros((len(self._nodes), len(self._classes)), dtype=np.int64)
        for i, n in enumerate(self._nodes):
            for j, c in enumerate(self._classes):
                found[i, j] = assignment.get((c, n), 0)
        return found

    def _stage_worth(self, row: dict[int, int]) -> IntArray:
        """What a pod of each class is worth in each stage, in small integers, shape (s, c)."""
        stages = [
            {row[c]: value for c, value in stage.items() if c in row}
            for stage in self._problem.value_stages
        ]
        stages = [stage for stage in stages if stage]
        worth = np.zeros((len(stages), len(row)), dtype=np.int64)
        for values, stage in zip(worth, stages, strict=True):
            values[list(stage)] = list(stage.values())
            values //= int(np.gcd.reduce(values)) or 1
        return worth

    def _stays(self, n: int) -> _Staying:
        """All that run there, all but one and so on."""
        classes = np.flatnonzero(self._runs[n])
        pods = np.repeat(np.arange(len(classes)), self._runs[n, classes]).tolist()
        leaving: dict[tuple[int, ...], None] = {}
        for size in range(MOST_LEAVING + 1):
            more = dict.fromkeys(itertools.islice(itertools.combinations(pods, size), MOST_STAYING))
            if len(leaving) + len(more) > MOST_STAYING:
                break
            leaving |= more
        gone = np.zeros((len(leaving), len(classes)), dtype=np.int64)
        for counts, some in zip(gone, leaving, strict=True):
            np.add.at(counts, np.array(some, dtype=np.intp), 1)
        cost = [self._price(n, classes, counts) for counts in gone]
        counts = self._runs[n, classes] - gone
        room = self._free[n] - counts @ self._asked[classes]
        return _Staying(classes, counts, np.array(cost, dtype=np.float64), room)

    def _price(self, n: int, classes: IntArray, gone: IntArray) -> int:
        """GPU seconds where so many of these classes leave a node."""
        prices = self._problem.prices
        return sum(
            sum(prices[self._classes[c], self._nodes[n]][:count])
            for c, count in zip(classes.tolist(), gone.tolist(), strict=True)
            if count > 0
        )

    def _add(self, n: int, content: IntArray) -> int:
        """Its number; -1 for one that is known or holds more pods than there are."""
        key = n, content.tobytes()
        if key in self._seen or (content > self._left).any():
            return -1
        self._seen.add(key)
        self._node.append(n)
        self._content.append(content)
        classes = self._staying[n].classes
        self._cost.append(self._price(n, classes, self._runs[n, classes] - content[classes]))
        return len(self._node) - 1

    def generate(self, is_over: Callable[[], bool]) -> bool:
        """Rounds of new contents until none is found or time is up; whether none was found."""
        for cells in itertools.cycle(CELLS):
            worth, price = self._mixed()
            if is_over():
                return False
            sets = best_sets(self._asked, self._may_come, worth, self._most, cells)
            added = [self._better(n, worth, float(price[n]), sets) for n in range(len(price))]
            if not sum(added):
                break
        return True

    def _mixed(self) -> tuple[FloatArray, FloatArray]:
        """The linear program: what a pod of each class is worth, (c,), and a node's price, (n,)."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix, vstack

        contents, cost = np.array(self._content), np.array(self._cost, dtype=np.float64)
        width = len(cost)
        one_a_node = csr_matrix(
            (np.ones(width), (self._node, np.arange(width))), shape=(len(self._nodes), width)
        )
        answer = linprog(
            cost / self._unit,
            A_ub=vstack([csr_matrix(contents.T), csr_matrix(-self._worth @ contents.T)]),
            b_ub=np.concatenate([self._left, -self._held]),
            A_eq=one_a_node,
            b_eq=np.ones(len(self._nodes)),
            method="highs",
        )
        if answer.status != 0:
            self._surplus = np.zeros(width)
            return np.zeros(len(self._left)), np.zeros(len(self._nodes))
        duals = np.asarray(answer.ineqlin.marginals) * self._unit
        worth = duals[: len(self._left)] - duals[len(self._left) :] @ self._worth
        price = np.asarray(answer.eqlin.marginals) * self._unit
        # What a plan with the content costs at least beyond the cheapest mix.
        self._surplus = cost - contents @ worth - price[self._node] + answer.fun * self._unit
        return worth, price

    def _better(self, n: int, worth: FloatArray, price: float, sets: Sets) -> int:
        """Add those contents of a node that would lower the cost most; how many."""
        stays = self._staying[n]
        fits = (sets.room[:, 0] <= stays.room[:, :1]) & (sets.room[:, 1] <= stays.room[:, 1:])
        gain = np.where(fits, sets.worth, -np.inf)
        come = gain.argmax(axis=1)
        total = gain[np.arange(len(come)), come] - stays.cost
        total += stays.counts @ worth[stays.classes] + price
        added = 0
        for k in np.argsort(-total, kind="stable")[:BEST_OF_A_NODE].tolist():
            if total[k] <= TOLERANCE * self._unit:
                break
            content = np.zeros(len(worth), dtype=np.int64)
            content[stays.classes] = stays.counts[k]
            some = sets.classes[come[k]]
            np.add.at(content, some[some >= 0], 1)
            added += self._add(n, content) >= 0
        return added

    def pick(self, work: float, seconds: float, seed: int) -> Picked:
        """One content a node, so that all of them cost less than now."""
        from ortools.sat.python import cp_model

        now = sum(self._cost[k] for k in self._known)
        slack = TOLERANCE * self._unit
        cheap = set(np.flatnonzero(self._surplus <= now - 1 + slack).tolist()) | set(self._known)
        model = cp_model.CpModel()
        chosen = {k: model.new_bool_var("") for k in sorted(cheap)}
        for k, x in chosen.items():
            model.add_hint(x, k in self._known)
        for n in range(len(self._nodes)):
            model.add_exactly_one(x for k, x in chosen.items() if self._node[k] == n)
        contents = np.array([self._content[k] for k in chosen])
        rows = [(-contents.T, -self._left), (self._worth @ contents.T, self._held)]
        for factors, least in rows:
            for row, limit in zip(factors.tolist(), least.tolist(), strict=True):
                terms = [a * x for a, x in zip(row, chosen.values(), strict=True) if a]
                if terms:
                    model.add(sum(terms) >= limit)
        model.minimize(sum(self._cost[k] * x for k, x in chosen.items() if self._cost[k]))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        # Presolve takes longer than such a model: 0.05 to 0.15 s of CPU without it, twice with it.
        solver.parameters.cp_model_presolve = False
        solver.parameters.symmetry_level = 0
        solver.parameters.max_deterministic_time = max(1e-3, work)
        solver.parameters.max_time_in_seconds = max(1e-2, seconds)
        status = solver.solve(model)
        spent = float(solver.response_proto.deterministic_time)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) or solver.objective_value >= now:
            return Picked(None, status == cp_model.OPTIMAL, spent)
        found = dict(self._outside)
        for k in (k for k, x in chosen.items() if solver.value(x)):
            for c in np.flatnonzero(self._content[k]).tolist():
                found[self._classes[c], self._nodes[self._node[k]]] = int(self._content[k][c])
        return Picked(found, status == cp_model.OPTIMAL, spent)
