"""Rows of CP-SAT for boards: every share on one board, whole boards, shares and MIG side by side.

On each node where parts of boards may go, per board: how many of each size of share are on it,
whether a pod has it whole, and which MIG instances begin at which slice. Classes with parts of one
kind are one integer a board. Running pods keep their own boards: the first pods of a class that has
any there are those, in the order in which they stay.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ortools.sat.python import cp_model

from scheduler_plugin.documents.mig_geometry import MigProfile, free_starts
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.room.board_states import (
    Boards,
    Part,
    board_of,
    place_of,
    room_at,
    start_of,
    taken_slices,
)
from scheduler_plugin.room.pod_demand import Demand

__all__ = ["BoardRows", "boards_held"]

_OnNode = Mapping[Demand, tuple[Boards, ...]]
_Count = tuple[int, Any]


def boards_held(packing: Packing, nodes: Sequence[int]) -> dict[int, _OnNode]:
    """Who of the movable and planned pods has which places on these nodes now."""
    return {node: packing.states.held_on(node) for node in nodes}


class BoardRows:
    """The rows, and the hint that belongs to the arrangement from which the part began.

    Args:
        model: Gets the rows.
        packing: Without the pods of the part.
        counts: Of pods of each class on each node.
        before: Who had which places while the pods of the part were still there.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        packing: Packing,
        counts: Mapping[tuple[int, int], Any],
        before: Mapping[int, _OnNode],
    ) -> None:
        self._model = model
        self._values: list[tuple[Any, int]] = []
        demands, on_node = packing.problem.demands, defaultdict(list)
        for (c, n), x in counts.items():
            if demands[c].asks_for_boards:
                on_node[n].append((c, x))
        if packing.problem.boards is None:
            return
        for n, here in on_node.items():
            if any(demands[c].asks_for_part for c, _ in here):
                rows = _NodeRows(model, packing, n, before.get(n, {}))
                for c, x in here:
                    rows.add(demands[c], x, int(packing.problem.counts[c]))
                rows.close()
                self._values += rows.values

    def hint(self) -> None:
        """Give each variable its value: of the start, or of the last solution read."""
        for variable, value in self._values:
            self._model.add_hint(variable, value)

    def prepare(self, solver: cp_model.CpSolver) -> None:
        """Keep the presolve of OR-Tools 9.15 from aborting, which some of these rows bring about.

        Its check ``VarToConstraints(var).empty()`` fails while it looks for symmetries.
        """
        if self._values:
            solver.parameters.symmetry_level = 0

    def read(self, solver: cp_model.CpSolver) -> None:
        """Keep the values of a solution for the next hint."""
        self._values = [(variable, solver.value(variable)) for variable, _ in self._values]


class _NodeRows:
    """Of one node: first classes are added, then the rows are closed."""

    def __init__(
        self, model: cp_model.CpModel, packing: Packing, node: int, before: _OnNode
    ) -> None:
        self.values: list[tuple[Any, int]] = []
        self._model, self._before = model, before
        self._after = packing.states.held_on(node)
        self._homes = {d: h for (n, d), h in packing.problem.homes.items() if n == node}
        self._states = packing.states.board_states(node)
        self._geometry = packing.problem.geometries[node]
        self._load: list[list[Any]] = [[] for _ in self._states]
        self._slices: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._cutting: dict[int, list[Any]] = defaultdict(list)
        self._asked: dict[Part, list[Any]] = defaultdict(list)
        self._came: dict[Part, list[int]] = defaultdict(list)
        self._seen: set[Demand] = set()
        self._used: Counter[int] = Counter()
        self._at_home: set[int] = set()

    def add(self, demand: Demand, x: cp_model.IntVar, most: int) -> None:
        """Pods of a class, ``x`` of them, of ``most`` that there are."""
        homes = self._homes.get(demand, ())
        stays = self._stays(x, homes, len(self._before.get(demand, ())), most)
        for stay, places in stays:
            for part, place in zip(demand.parts, places, strict=False):
                self._at_home.add(board_of(part, place))
                self._take(part, place, stay)
        new = x - sum(stay for stay, _ in stays)
        for part, each in Counter(demand.parts).items():
            self._asked[part].append(each * new)
        if demand not in self._seen:
            self._seen.add(demand)
            kept = max(len(homes), len(self._after.get(demand, ())))
            for places in self._before.get(demand, ())[kept:]:
                for part, place in zip(demand.parts, places, strict=False):
                    self._came[part].append(place)

    def _stays(
        self, x: cp_model.IntVar, homes: Sequence[Boards], start: int, most: int
    ) -> list[tuple[cp_model.IntVar, Boards]]:
        """Whether each running pod stays; nobody new comes before all of them have."""
        stays = [(self._variable(1, int(i < start)), places) for i, places in enumerate(homes)]
        for (one, _), (later, _) in itertools.pairwise(stays):
            self._model.add(later <= one)
        if stays:
            together = sum(stay for stay, _ in stays)
            self._model.add(x >= together)
            self._model.add(x - together <= most * stays[-1][0])
        return stays

    def _take(self, part: Part, place: int, variable: cp_model.IntVar) -> None:
        """What a variable takes of a board."""
        board = board_of(part, place)
        if isinstance(part, int):
            self._load[board].append(part * variable)
            return
        if not room_at(part, self._states[board], place, self._geometry):
            self._model.add(variable == 0)
        bits = self._profile(part).slices(start_of(place))
        for bit in range(bits.bit_length()):
            if bits >> bit & 1:
                self._slices[board, bit].append(variable)
        self._cutting[board].append(variable)

    def close(self) -> None:
        """All that was asked for is somewhere, and nothing is taken twice."""
        for part, asked in self._asked.items():
            found = list(self._places(part))
            self._model.add(sum(asked) == sum(found))
        for variables in self._slices.values():
            self._model.add(sum(variables) <= 1)
        for board, cutting in self._cutting.items():
            if self._states[board] == MILLI_PER_GPU and self._load[board]:
                begun = any(board_of(p, at) == board for p in self._came for at in self._came[p]
                            if isinstance(p, str))  # fmt: skip
                cut = self._variable(1, int(begun or board in self._at_home))
                for variable in cutting:
                    self._model.add(variable <= cut)
                self._load[board].append(MILLI_PER_GPU * cut)
        for load, state in zip(self._load, self._states, strict=True):
            if load:
                self._model.add(sum(load) <= max(0, state))
        self._order_alike()

    def _places(self, part: Part) -> Iterator[cp_model.IntVar]:
        came = Counter(self._came[part])
        for board, state in enumerate(self._states):
            if isinstance(part, int):
                if state >= part:
                    there = self._variable(state // part, came[board])
                    self._used[board] += part * came[board]
                    self._take(part, board, there)
                    yield there
                continue
            taken = taken_slices(state)
            known = self._geometry is not None and part in self._geometry.profiles
            for start in free_starts(self._profile(part), taken or 0) if known else ():
                if taken is None:
                    break
                place = place_of(board, start)
                there = self._variable(1, came[place])
                self._take(part, place, there)
                yield there

    def _order_alike(self) -> None:
        """Of uncut boards that are alike the fuller come first."""
        alike = [b for b in range(len(self._states)) if self._load[b] and b not in self._at_home]
        alike = [board for board in alike if not self._cutting[board]]
        alike.sort(key=lambda board: (self._states[board], -self._used[board]))
        for one, other in itertools.pairwise(alike):
            if self._states[one] == self._states[other]:
                self._model.add(sum(self._load[one]) >= sum(self._load[other]))

    def _profile(self, part: str) -> MigProfile:
        assert self._geometry is not None
        return self._geometry.profiles[part]

    def _variable(self, most: int, hint: int) -> cp_model.IntVar:
        model = self._model
        variable = model.new_int_var(0, most, "") if most > 1 else model.new_bool_var("")
        self.values.append((variable, hint))
        return variable
