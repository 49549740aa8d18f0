"""wattpack's planner as a policy of ``openb``, as far as it can be driven.

It knows whole boards only. A task that wants a share of one is planned as a whole board and counts
with its share, as if an operator rounded requests up; the rest of that board stays empty. It moves
nothing and keeps nothing waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from benchmarks._openb_policies import Binding, Told
from benchmarks._openb_trace import MILLI_PER_GPU, Kind
from benchmarks._openb_trace import Node as TraceNode
from scheduler_plugin.greedy import Packing
from scheduler_plugin.problem import compile_problem
from scheduler_plugin.snapshot import Node, Pod, Snapshot
from scheduler_plugin.solve import plan

BYTES_PER_MIB: Final = 2**20
#: Of the search, in CP-SAT's deterministic work; also the product's default.
DEADLINE_SECONDS: Final = 1.0


class PlannerOneByOne:
    """The planner's greedy placement, one task after another on one compiled cluster."""

    def __init__(self, told: Told) -> None:
        pods = (_pod(f"{number:05d}", kind) for number, kind in enumerate(told.kinds))
        problem = compile_problem(Snapshot(nodes=_nodes(told.nodes), pods=tuple(pods)))
        # Kinds that differ by shares alone are one class here.
        self._class_of = {
            int(uid): i for i, group in enumerate(problem.classes) for uid in group.uids
        }
        self._packing = Packing(problem)
        self._boards = _WholeBoards(told)
        self._next = 0

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """One task after another."""
        for number in kinds:
            arrival, self._next = self._next, self._next + 1
            before = self._packing.free.copy()
            if not self._packing.place(self._class_of[number], 1):
                continue
            node = int(np.flatnonzero((self._packing.free != before).any(axis=1))[0])
            yield Binding(arrival, node, self._boards.take(node, number))


class PlannerAtOnce:
    """A whole plan for each batch, search included; made for one batch."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._boards = _WholeBoards(told)

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """What one plan places."""
        pods = (_pod(f"{i:06d}", self._told.kinds[number]) for i, number in enumerate(kinds))
        snapshot = Snapshot(nodes=_nodes(self._told.nodes), pods=tuple(pods))
        made = plan(snapshot, deadline_seconds=DEADLINE_SECONDS, seed=self._told.seed)
        number_of = {node.name: i for i, node in enumerate(self._told.nodes)}
        for placement in made.placements:
            arrival, node = int(placement.uid), number_of[placement.node]
            yield Binding(arrival, node, self._boards.take(node, kinds[arrival]))


class _WholeBoards:
    """Numbers of boards, which the planner leaves to the device plugin."""

    def __init__(self, told: Told) -> None:
        self._kinds = told.kinds
        self._next = [0] * len(told.nodes)

    def take(self, node: int, number: int) -> tuple[int, ...]:
        first = self._next[node]
        self._next[node] = first + self._kinds[number].boards
        return tuple(range(first, self._next[node]))


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
        gpu_milli=kind.boards * MILLI_PER_GPU,
        milli_cpu=kind.milli_cpu,
        memory_bytes=kind.memory_mib * BYTES_PER_MIB,
        gpu_models=kind.models,
    )
