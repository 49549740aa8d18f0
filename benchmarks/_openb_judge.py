"""Recounts a run of ``openb`` from its list of bindings: no code of the policies.

Every binding is checked where it stands in the list, so each prefix of the list has to hold. What
breaks a rule is told and not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks._openb_policies import Binding
from benchmarks._openb_trace import Kind, Node

WHOLE_BOARD = 1000


class Batch(NamedTuple):
    """What a policy answered when so many tasks had come."""

    arrived: int
    bindings: Sequence[Binding]


@dataclass(slots=True)
class Verdict:
    """What a run came to.

    Attributes:
        gpu_milli: Allocated after each batch.
        placed: Tasks that have a node at the end.
        moves: Bindings of tasks that were bound already; ``moved`` are the tasks.
        faults: A line for each binding that breaks a rule.
    """

    gpu_milli: list[int] = field(default_factory=list)
    placed: int = 0
    moves: int = 0
    moved: int = 0
    late: int = 0
    faults: list[str] = field(default_factory=list)


def judge(
    nodes: Sequence[Node],
    arrivals: Sequence[Kind],
    batches: Sequence[Batch],
    *,
    may_move: bool = False,
) -> Verdict:
    """Count a run.

    Args:
        nodes: As they are without any task.
        arrivals: Every task in the order in which they come.
        batches: Answers in order.
        may_move: Whether tasks may move and earlier arrivals be bound late.
    """
    verdict, cluster = Verdict(), _Cluster(nodes)
    moved: set[int] = set()
    came = 0
    for batch in batches:
        for binding in batch.bindings:
            number = binding.arrival
            if not 0 <= number < batch.arrived:
                verdict.faults.append(f"task {number} has not come")
                continue
            again, late = number in cluster.bound, number < came
            if (again or late) and not may_move:
                verdict.faults.append(f"task {number} is bound {'twice' if again else 'late'}")
                continue
            fault = cluster.bind(binding, arrivals[number])
            if fault:
                verdict.faults.append(f"task {number}: {fault}")
                continue
            verdict.moves += again
            verdict.late += late and not again
            if again:
                moved.add(number)
        came = batch.arrived
        verdict.gpu_milli.append(cluster.gpu_milli)
    verdict.placed, verdict.moved = len(cluster.bound), len(moved)
    return verdict


class _Cluster:
    """What is taken of each node and board."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.bound: dict[int, tuple[Binding, Kind]] = {}
        self.gpu_milli = 0
        self._milli_cpu = [0] * len(nodes)
        self._memory_mib = [0] * len(nodes)
        self._boards = [[0] * node.boards for node in nodes]

    def bind(self, binding: Binding, kind: Kind) -> str:
        """Book it, or say what is wrong with it; a move leaves its old place first."""
        before = self.bound.pop(binding.arrival, None)
        if before is not None:
            self._count(*before, -1)
        fault = self._fault(binding, kind)
        kept = before if fault else (binding, kind)
        if kept is not None:
            self._count(*kept, 1)
            self.bound[binding.arrival] = kept
        return fault

    def _count(self, binding: Binding, kind: Kind, sign: int) -> None:
        self._milli_cpu[binding.node] += sign * kind.milli_cpu
        self._memory_mib[binding.node] += sign * kind.memory_mib
        for board in binding.boards:
            self._boards[binding.node][board] += sign * kind.board_milli
            self.gpu_milli += sign * kind.board_milli

    def _fault(self, binding: Binding, kind: Kind) -> str:
        if not 0 <= binding.node < len(self.nodes):
            return f"no node {binding.node}"
        node, used = self.nodes[binding.node], self._boards[binding.node]
        if kind.models and node.model not in kind.models:
            return f"{node.name} has {node.model}, allowed is {' or '.join(kind.models)}"
        if len(set(binding.boards)) != len(binding.boards) or len(binding.boards) != kind.boards:
            return f"asks for {kind.boards} boards, got {binding.boards}"
        for board in binding.boards:
            if not 0 <= board < len(used):
                return f"{node.name} has no board {board}"
            if used[board] + kind.board_milli > WHOLE_BOARD:
                return f"board {board} of {node.name} would hold more than a whole board"
        if self._milli_cpu[binding.node] + kind.milli_cpu > node.milli_cpu:
            return f"{node.name} has not enough CPU"
        if self._memory_mib[binding.node] + kind.memory_mib > node.memory_mib:
            return f"{node.name} has not enough memory"
        return ""
