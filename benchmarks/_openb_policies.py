"""What a placement policy of ``openb`` is told and answers, and the two simplest of them.

    policy = make(Told(nodes, kinds, mix, node_rank, seed))
    for arrivals in batches:                # one task each, or all of them at once
        bindings = policy.arrive(arrivals)  # what is not bound is dropped, or waits

Arrivals are numbered from 0 in the order in which they come. A binding of a task that is bound
already is a move, and one of an earlier arrival is late: the judge counts both, and refuses them
from policies that were not asked to do so. Each binding has to leave a state that holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks._openb_trace import MILLI_PER_GPU, MOST_BOARDS, IntArray, Kind, Node

BoolArray = npt.NDArray[np.bool_]

#: One node of the cluster counts as these in best fit: the largest of openb (ATC'23 artefact).
LARGEST_MILLI_CPU: Final = 128_000
LARGEST_GPU_MILLI: Final = 8_000


class Told(NamedTuple):
    """What a policy knows before the first task comes.

    Attributes:
        mix: Tasks of each kind in the whole list, (n_kinds,): history, not the sample to come.
        node_rank: A random order of nodes by which equal scores are settled, (n_nodes,).
    """

    nodes: tuple[Node, ...]
    kinds: tuple[Kind, ...]
    mix: IntArray
    node_rank: IntArray
    seed: int


class Binding(NamedTuple):
    """A task gets boards of a node (none for a task without GPUs)."""

    arrival: int
    node: int
    boards: tuple[int, ...]


class Policy(Protocol):
    """Places tasks as they come."""

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """Bindings in the order in which they are made."""


class Rooms:
    """What is free on each node, and which nodes a kind fits."""

    def __init__(self, told: Told) -> None:
        self.kinds = told.kinds
        self.milli_cpu = np.array([node.milli_cpu for node in told.nodes])
        self.memory_mib = np.array([node.memory_mib for node in told.nodes])
        boards = np.array([node.boards for node in told.nodes])
        there = np.arange(MOST_BOARDS) < boards[:, None]
        self.board_milli: IntArray = np.where(there, MILLI_PER_GPU, 0)
        self._allowed = [
            np.array([not kind.models or node.model in kind.models for node in told.nodes])
            for kind in told.kinds
        ]

    def fits(self, number: int) -> BoolArray:
        """Nodes that a task of a kind fits, (n_nodes,)."""
        kind = self.kinds[number]
        fits = (self.milli_cpu >= kind.milli_cpu) & (self.memory_mib >= kind.memory_mib)
        if kind.boards:
            fits &= self._allowed[number]
            fits &= (self.board_milli >= kind.board_milli).sum(axis=1) >= kind.boards
        return np.asarray(fits)

    def take(self, number: int, node: int, boards: Sequence[int]) -> None:
        """Book a task."""
        kind = self.kinds[number]
        self.milli_cpu[node] -= kind.milli_cpu
        self.memory_mib[node] -= kind.memory_mib
        self.board_milli[node, list(boards)] -= kind.board_milli

    def tightest(self, number: int, node: int) -> tuple[int, ...]:
        """The fullest boards of a node that suffice, the first of equal ones."""
        kind, free = self.kinds[number], self.board_milli[node]
        order = np.argsort(free, kind="stable")
        return tuple(order[free[order] >= kind.board_milli][: kind.boards].tolist())


class RandomFit:
    """A random node of those that fit, and random boards of it."""

    def __init__(self, told: Told) -> None:
        self._rooms = Rooms(told)
        self._random = np.random.default_rng(told.seed)
        self._next = 0

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """One task after another."""
        for number in kinds:
            arrival, self._next = self._next, self._next + 1
            fits = np.flatnonzero(self._rooms.fits(number))
            if not len(fits):
                continue
            node = int(self._random.choice(fits))
            kind = self._rooms.kinds[number]
            enough = np.flatnonzero(self._rooms.board_milli[node] >= kind.board_milli)
            boards = tuple(self._random.permutation(enough)[: kind.boards].tolist())
            self._rooms.take(number, node, boards)
            yield Binding(arrival, node, boards)


class BestFit:
    """The node that has least left, CPU and GPU weighed alike, in whole percent of the range."""

    def __init__(self, told: Told) -> None:
        self._rooms = Rooms(told)
        self._rank = told.node_rank
        self._next = 0

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """One task after another."""
        for number in kinds:
            arrival, self._next = self._next, self._next + 1
            node = self._node(number)
            if node is None:
                continue
            boards = self._rooms.tightest(number, node)
            self._rooms.take(number, node, boards)
            yield Binding(arrival, node, boards)

    def _node(self, number: int) -> int | None:
        rooms, kind = self._rooms, self._rooms.kinds[number]
        fits = np.flatnonzero(rooms.fits(number))
        if not len(fits):
            return None
        cpu = (rooms.milli_cpu[fits] - kind.milli_cpu) / LARGEST_MILLI_CPU
        gpu = (rooms.board_milli[fits].sum(axis=1) - kind.gpu_milli) / LARGEST_GPU_MILLI
        score = np.floor(100.0 * (1.0 - (cpu + gpu) / 2.0))
        # The artefact stretches whole scores over 0 to 100 again, which joins none and parts none.
        best = fits[score == score.max()]
        return int(best[self._rank[best].argmin()])
