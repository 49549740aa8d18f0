"""Rows of CP-SAT for boards: every share on one board, whole boards and shares side by side.

On each node where shares may go, per board: how many of each size of share are on it, and whether a
pod has it whole. Classes with shares of one size are one integer a board. Running pods keep their
own boards: the first pods of a class that has any there are those, in the order in which they stay.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ortools.sat.python import cp_model

from scheduler_plugin.board_shares import Boards
from scheduler_plugin.greedy import Packing
from scheduler_plugin.pod_demand import Demand
from scheduler_plugin.snapshot import MILLI_PER_GPU

__all__ = ["BoardRows", "boards_held"]

_OnNode = Mapping[Demand, tuple[Boards, ...]]
_Count = tuple[int, Any]


def boards_held(packing: Packing, nodes: Sequence[int]) -> dict[int, _OnNode]:
    """Who of the movable and planned pods has which boards of these nodes now."""
    return {node: packing.states.held_on(node) for node in nodes}


class BoardRows:
    """The rows, and the hint that belongs to the arrangement from which the part began.

    Args:
        model: Gets the rows.
        packing: Without the pods of the part.
        counts: Of pods of each class on each node.
        before: Who had which boards while the pods of the part were still there.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        packing: Packing,
        counts: Mapping[tuple[int, int], Any],
        before: Mapping[int, _OnNode],
    ) -> None:
        self._model, self._packing = model, packing
        self._values: list[tuple[Any, int]] = []
        demands, on_node = packing.problem.demands, defaultdict(list)
        for (c, n), x in counts.items():
            if demands[c].asks_for_boards:
                on_node[n].append((c, x))
        if packing.problem.board_milli is None:
            return
        for n, here in on_node.items():
            if any(demands[c].share_milli for c, _ in here):
                self._node(n, here, before.get(n, {}))

    def hint(self) -> None:
        """Give each variable its value: of the start, or of the last solution read."""
        for variable, value in self._values:
            self._model.add_hint(variable, value)

    def read(self, solver: cp_model.CpSolver) -> None:
        """Keep the values of a solution for the next hint."""
        self._values = [(variable, solver.value(variable)) for variable, _ in self._values]

    def _node(self, node: int, here: Sequence[_Count], before: _OnNode) -> None:
        problem, states = self._packing.problem, self._packing.states
        after, left = states.held_on(node), states.board_milli(node)
        load: list[list[Any]] = [[] for _ in left]
        new: dict[int, list[Any]] = defaultdict(list)
        came: dict[int, list[int]] = defaultdict(list)
        for demand in {problem.demands[c] for c, _ in here}:
            came[_each(demand)] += self._came(node, demand, before, after)
        at_home: set[int] = set()
        for c, x in here:
            demand = problem.demands[c]
            homes = problem.homes.get((node, demand), ())
            stays = self._stays(x, homes, len(before.get(demand, ())))
            for stay, boards in stays:
                at_home |= set(boards)
                for board in boards:
                    load[board].append(_each(demand) * stay)
            rest = x - sum(stay for stay, _ in stays)
            new[_each(demand)].append(rest * max(1, demand.whole_boards))
        used = [0] * len(left)
        for each, rests in new.items():
            placed = []
            for board, milli in enumerate(left):
                if milli >= each:
                    count = came[each].count(board)
                    placed.append(self._variable(milli // each, count))
                    used[board] += each * count
                    load[board].append(each * placed[-1])
            self._model.add(sum(rests) == sum(placed))
        for board, milli in enumerate(left):
            if load[board]:
                self._model.add(sum(load[board]) <= milli)
        alike = [board for board in range(len(left)) if load[board] and board not in at_home]
        alike.sort(key=lambda board: (left[board], -used[board]))
        for one, other in itertools.pairwise(alike):
            if left[one] == left[other]:
                self._model.add(sum(load[one]) >= sum(load[other]))

    def _came(self, node: int, demand: Demand, before: _OnNode, after: _OnNode) -> list[int]:
        """Boards of the part's pods of a demand that are not at home."""
        homes = len(self._packing.problem.homes.get((node, demand), ()))
        kept = max(homes, len(after.get(demand, ())))
        return [board for boards in before.get(demand, ())[kept:] for board in boards]

    def _stays(
        self, x: cp_model.IntVar, homes: Sequence[Boards], start: int
    ) -> list[tuple[cp_model.IntVar, Boards]]:
        """Whether each running pod stays; nobody new comes before all of them have."""
        stays = [(self._variable(1, int(i < start)), boards) for i, boards in enumerate(homes)]
        for (one, _), (later, _) in itertools.pairwise(stays):
            self._model.add(later <= one)
        if stays:
            together = sum(stay for stay, _ in stays)
            self._model.add(x >= together)
            self._model.add(x == together).only_enforce_if(~stays[-1][0])
        return stays

    def _variable(self, most: int, hint: int) -> cp_model.IntVar:
        model = self._model
        variable = model.new_int_var(0, most, "") if most > 1 else model.new_bool_var("")
        self._values.append((variable, hint))
        return variable


def _each(demand: Demand) -> int:
    return demand.share_milli or MILLI_PER_GPU
