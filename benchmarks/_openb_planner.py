"""wattpack's planner as a policy of ``openb``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks._openb_policies import Binding, Told
from benchmarks._openb_trace import MILLI_PER_GPU, Kind
from benchmarks._openb_trace import Node as TraceNode
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import Problem, compile_problem
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.chains import let_in

BYTES_PER_MIB: Final = 2**20
#: Of the search, in CP-SAT's deterministic work; also the product's default.
DEADLINE_SECONDS: Final = 1.0
#: Of the tasks placed so far, those that were moved.
MOST_MOVED_SHARE: Final = 0.04
MOVES_OF_A_CHAIN: Final = 2
#: Places taken or left before a class that nobody could let in asks again: assumed.
ASKS_AGAIN_AFTER: Final = 20


class PlannerOneByOne:
    """The planner's greedy placement, one task after another on one compiled cluster.

    What it expects to come is the mix of the whole list, as FGD does.
    """

    def __init__(self, told: Told) -> None:
        problem, self._class_of = _problem(told)
        self._packing = Packing(problem)
        self._next = 0

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """One task after another."""
        for number in kinds:
            arrival, self._next = self._next, self._next + 1
            mark = self._packing.mark()
            self._packing.place(self._class_of[number], 1)
            for class_index, node, _ in self._packing.booked_since(mark):
                yield Binding(arrival, node, _boards(self._packing, class_index, node))


class PlannerWithMoves:
    """One task after another; who finds no place is let in by one or two moves, within a budget."""

    def __init__(self, told: Told) -> None:
        problem, self._class_of = _problem(told)
        # Of classes that ask for the same, whoever leaves is told apart.
        demands = tuple(replace(demand, runs_as=c) for c, demand in enumerate(problem.demands))
        self._packing = Packing(replace(problem, demands=demands))
        self._there: dict[tuple[int, int], list[int]] = {}
        self._in_vain: dict[int, int] = {}
        self._moved: set[int] = set()
        self._placed = self._next = 0

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """One task after another."""
        for number in kinds:
            arrival, self._next = self._next, self._next + 1
            class_index, mark = self._class_of[number], self._packing.mark()
            if self._packing.place(class_index, 1) or self._is_let_in(class_index):
                yield from self._bindings(arrival, mark)

    def _is_let_in(self, class_index: int) -> bool:
        """By moves of others; a class that was refused asks again when enough has changed."""
        now = self._packing.mark()
        left = MOST_MOVED_SHARE * self._placed - len(self._moved)
        if left < MOVES_OF_A_CHAIN or now < self._in_vain.get(class_index, 0):
            return False
        if let_in(self._packing, class_index):
            return True
        self._in_vain[class_index] = now + ASKS_AGAIN_AFTER
        return False

    def _bindings(self, arrival: int, mark: int) -> Iterable[Binding]:
        """Who left comes last to its new place; the new task is nowhere yet."""
        leaving = arrival
        for class_index, node, count in self._packing.booked_since(mark):
            there = self._there.setdefault((class_index, node), [])
            if count < 0:
                leaving = there.pop()
                self._moved.add(leaving)
                continue
            there.append(leaving)
            boards = _boards(self._packing, class_index, node, len(there) - 1)
            yield Binding(leaving, node, boards)
            leaving = arrival
        self._placed += 1


class PlannerAtOnce:
    """A whole plan for each batch, search included; made for one batch."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """What one plan places."""
        pods = (_pod(f"{i:06d}", self._told.kinds[number]) for i, number in enumerate(kinds))
        snapshot = Snapshot(nodes=_nodes(self._told.nodes), pods=tuple(pods))
        made = plan(snapshot, deadline_seconds=DEADLINE_SECONDS, seed=self._told.seed)
        number_of = {node.name: i for i, node in enumerate(self._told.nodes)}
        for placement in made.placements:
            yield Binding(int(placement.uid), number_of[placement.node], placement.boards)


def _boards(packing: Packing, class_index: int, node: int, number: int = -1) -> tuple[int, ...]:
    """Of one of the pods of a class on a node, in the order in which they came."""
    held = packing.states.boards(packing.problem.demands[class_index], node)
    return held[number] if held else ()


def _problem(told: Told) -> tuple[Problem, dict[int, int]]:
    """The cluster with one pod of each kind, counted as often as the list has it."""
    pods = (_pod(f"{number:05d}", kind) for number, kind in enumerate(told.kinds))
    problem = compile_problem(Snapshot(nodes=_nodes(told.nodes), pods=tuple(pods)))
    class_of = {int(uid): i for i, group in enumerate(problem.classes) for uid in group.uids}
    counts = np.zeros(len(problem.classes), dtype=np.int64)
    for number, class_index in class_of.items():
        counts[class_index] += told.mix[number]
    return replace(problem, counts=counts), class_of


def _nodes(nodes: Sequence[TraceNode]) -> tuple[Node, ...]:
    return tuple(
        Node(
            name=node.name,
            gpu_model=node.model,
            gpu_milli=node.boards * MILLI_PER_GPU,
            milli_cpu=node.milli_cpu,
            memory_bytes=node.memory_mib * BYTES_PER_MIB,
            pods=1001,  # as in the artefact's node list
        )
        for node in nodes
    )


def _pod(uid: str, kind: Kind) -> Pod:
    return Pod(
        uid=uid,
        gpu_milli=kind.gpu_milli,
        milli_cpu=kind.milli_cpu,
        memory_bytes=kind.memory_mib * BYTES_PER_MIB,
        gpu_models=kind.models,
    )
