"""What nodes would hold if nothing ran there; what neighbours bear is left aside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.packing.problem import IntArray, Problem
from scheduler_plugin.room.board_states import NO_BOARD
from scheduler_plugin.room.node_states import NodeStates
from scheduler_plugin.room.pod_demand import Demand

__all__ = ["EmptyNodes"]


class EmptyNodes:
    """All nodes of a problem, empty.

    Args:
        problem: With the nodes.
        copies: Instead of all nodes one of them, so many times: number of the node, and how often.
    """

    def __init__(self, problem: Problem, copies: tuple[int, int] | None = None) -> None:
        self._problem = problem
        rows = np.arange(len(problem.total)) if copies is None else np.repeat(*copies)
        boards = None
        if problem.boards is not None:
            there = problem.boards[rows] != NO_BOARD
            boards = np.where(there, MILLI_PER_GPU, NO_BOARD)
        geometries = [problem.geometries[node] for node in rows.tolist()]
        self._states = NodeStates(problem.total[rows], boards, geometries=geometries)
        self._rows = len(rows)

    def room(self, class_index: int, at_most: int) -> IntArray:
        """How many pods of a class each node holds, shape (n,)."""
        return self._states.fits(self._demand(class_index), np.full(self._rows, at_most))

    def board_room(self, class_index: int, nodes: IntArray) -> IntArray:
        """How many pods of a class the boards of some nodes hold, whatever else they ask for."""
        return self._states.board_rooms(self._demand(class_index), nodes)

    def put(self, pods: Mapping[tuple[int, int], int]) -> None:
        """Let pods run there, by class and node."""
        for (class_index, node), count in pods.items():
            self._states.put(self._demand(class_index), node, count)

    def _demand(self, class_index: int) -> Demand:
        problem = self._problem
        demand = replace(problem.demands[class_index], sharer=None, runs_as=-1)
        if problem.neighbours is None:
            return demand
        judged = problem.share_columns
        kept = (0 if r in judged else amount for r, amount in enumerate(demand.amounts))
        return replace(demand, amounts=tuple(kept))
