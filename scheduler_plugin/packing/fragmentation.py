"""How much free GPU the pods that are expected to come cannot use.

A node's fragmentation is the GPU that a random pod of the expected demand cannot use there (Weng et
al., "Beware of Fragmentation", USENIX ATC 2023, section 4): everything that is free if the pod does
not fit or wants no GPU, else what lies on boards too full for it.

What is expected to come is what the snapshot shows: pods that run and pods that wait, and a few
pods of whole boards besides, so that a cluster that nobody has used yet has an opinion too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.room.pod_demand import Demand
from scheduler_plugin.room.resource_columns import GPUS, MEMORY, MILLI_CPU

if TYPE_CHECKING:
    from scheduler_plugin.packing.problem import Problem

__all__ = ["Ask", "ExpectedDemand", "expected_demand"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TYPICAL_SHARE: Final = 0.98
"""Of all pods, the most frequent kinds that count; 0.95 in FGD, where openb loses up to 0.3 points
of allocation beside 0.98."""

MOST_KINDS: Final = 128
"""That count at most; scoring a node takes time in proportion."""

PRIOR_BOARDS: Final = (1, 2, 4, 8)
"""One pod of each is always expected, with an average node's CPU and memory by board: assumed."""


class Ask(NamedTuple):
    """What a pod asks of a node; ``share_milli`` is of one board."""

    whole_boards: int
    share_milli: int
    milli_cpu: int
    memory_bytes: int

    @classmethod
    def of(cls, demand: Demand) -> Ask:
        """What a demand asks for; beyond this only room decides."""
        amounts = demand.amounts
        return cls(amounts[GPUS], demand.share_milli, amounts[MILLI_CPU], amounts[MEMORY])

    @property
    def gpu_milli(self) -> int:
        """Of all its boards."""
        return self.whole_boards * MILLI_PER_GPU + self.share_milli

    @property
    def board_milli(self) -> int:
        """Of each board that it is on; 0 for a pod without GPUs."""
        return MILLI_PER_GPU if self.whole_boards else self.share_milli


@dataclass(frozen=True, slots=True)
class ExpectedDemand:
    """A random pod of what is expected to come.

    Pods without GPUs are what the chances lack to 1.

    Attributes:
        chance: Of each kind with GPUs, (m,).
        milli_cpu: (m,)
        memory_bytes: (m,)
        boards: On how many it is, (m,).
        levels: What kinds ask of one board, thousandths, each once, rising, (d,).
        level_of: (m,)
        allowed: Whether nodes of a group may be used, (groups, m).
        group_of: Of each node, (n,): nodes of a group are open to the same kinds.
        scarcity: Of each node, (n,): GPUs that are asked for on each of its boards if every kind
            spreads evenly over what is open to it, against the average board; 0 is average, 1
            twice as much.
        shares: How many pods ask for each share of a board.
    """

    chance: FloatArray
    milli_cpu: IntArray
    memory_bytes: IntArray
    boards: IntArray
    levels: IntArray
    level_of: IntArray
    allowed: BoolArray
    group_of: IntArray
    scarcity: FloatArray
    shares: Mapping[int, int]

    def unusable_milli(
        self, group: IntArray, milli_cpu: IntArray, memory_bytes: IntArray, board_milli: IntArray
    ) -> FloatArray:
        """Expected free GPU that the random pod cannot use, thousandths of boards, (s,).

        Args:
            group: Of each node state, (s,).
            milli_cpu: Free, (s,).
            memory_bytes: Free, (s,).
            board_milli: Free on each board, 0 where there is none, (s, b).
        """
        suffices = board_milli[:, :, None] >= self.levels
        enough = suffices.sum(axis=1)[:, self.level_of] >= self.boards
        enough &= milli_cpu[:, None] >= self.milli_cpu
        enough &= memory_bytes[:, None] >= self.memory_bytes
        enough &= self.allowed[group]
        usable = np.einsum("sb,sbd->sd", board_milli, suffices)[:, self.level_of]
        unusable: FloatArray = board_milli.sum(axis=1) - (enough * usable) @ self.chance
        return unusable


def expected_demand(problem: Problem) -> ExpectedDemand:
    """What runs and what waits, by how often it is there."""
    counts = _waiting(problem) + _running(problem) + _prior(problem)
    everybody = sum(counts.values())
    typical: list[tuple[Ask, bytes, int]] = []
    reached = 0
    for (ask, nodes), count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        if reached >= TYPICAL_SHARE * everybody or len(typical) >= MOST_KINDS:
            break
        reached += count
        if ask.board_milli:
            typical.append((ask, nodes, count))
    open_to = np.array([np.frombuffer(nodes, dtype=np.bool_) for _, nodes, _ in typical])
    allowed, group_of = _groups(open_to.reshape(len(typical), len(problem.node_names)))
    levels, level_of = np.unique([ask.board_milli for ask, _, _ in typical], return_inverse=True)
    shares: Counter[int] = Counter()
    for (ask, _), count in counts.items():
        if ask.share_milli:
            shares[ask.share_milli] += count
    return ExpectedDemand(
        chance=np.array([count for _, _, count in typical]) / max(1, reached),
        milli_cpu=np.array([ask.milli_cpu for ask, _, _ in typical], dtype=np.int64),
        memory_bytes=np.array([ask.memory_bytes for ask, _, _ in typical], dtype=np.int64),
        boards=np.array([max(1, ask.whole_boards) for ask, _, _ in typical], dtype=np.int64),
        levels=levels.astype(np.int64),
        level_of=level_of,
        allowed=allowed,
        group_of=group_of,
        scarcity=_scarcity(counts, problem.total[:, GPUS]),
        shares=shares,
    )


def _scarcity(counts: Counts, boards: IntArray) -> FloatArray:
    """As in ``ExpectedDemand``; of every kind, since those of a scarce model may be rare each."""
    asked: Counter[bytes] = Counter()
    for (ask, nodes), count in counts.items():
        asked[nodes] += count * ask.gpu_milli
    pressure = np.zeros(len(boards))
    for nodes, milli in asked.items():
        open_to = np.frombuffer(nodes, dtype=np.bool_)
        reach = int(boards[open_to].sum())
        if reach:
            pressure[open_to] += milli / reach
    average = float(pressure @ boards) / max(1, int(boards.sum()))
    scarcity: FloatArray = pressure / average - 1.0 if average else pressure
    return scarcity


def _groups(open_to: BoolArray) -> tuple[BoolArray, IntArray]:
    """Nodes that are open to the same kinds: (groups, m) and the group of each node, (n,)."""
    if not open_to.size:
        return np.zeros((1, len(open_to)), dtype=np.bool_), np.zeros(open_to.shape[1], np.int64)
    packed = np.ascontiguousarray(np.packbits(open_to, axis=0).T)
    keys = packed.view([("", packed.dtype)] * packed.shape[1]).ravel()
    _, first, group_of = np.unique(keys, return_index=True, return_inverse=True)
    return np.ascontiguousarray(open_to[:, first].T), group_of.astype(np.int64)


Counts = Counter[tuple[Ask, bytes]]


def _waiting(problem: Problem) -> Counts:
    """Pods of the problem's classes; some of them run and may be moved."""
    found: Counts = Counter()
    for c, ask in enumerate(problem.asks):
        found[ask, problem.eligible[c].tobytes()] += int(problem.counts[c])
    return found


def _running(problem: Problem) -> Counts:
    """Pods that the plan leaves where they are; of their rules only GPU models are looked at."""
    planned = {pod.uid for c in problem.classes for pod in c.running}
    asks: Counter[tuple[int, int, int, tuple[str, ...]]] = Counter(
        (pod.gpu_milli, pod.milli_cpu, pod.memory_bytes, pod.gpu_models)
        for pod in problem.snapshot.pods
        if pod.node and pod.uid not in planned
    )
    models = np.array([node.gpu_model for node in problem.snapshot.nodes], dtype=object)
    nodes: dict[tuple[str, ...], bytes] = {(): np.ones(len(models), dtype=np.bool_).tobytes()}
    found: Counts = Counter()
    for (gpu_milli, milli_cpu, memory, allowed), count in asks.items():
        if allowed not in nodes:
            nodes[allowed] = np.isin(models, allowed).tobytes()
        whole, share = divmod(gpu_milli, MILLI_PER_GPU)
        found[Ask(whole, share, milli_cpu, memory), nodes[allowed]] += count
    return found


def _prior(problem: Problem) -> Counts:
    boards = problem.total[:, GPUS]
    with_gpus = problem.total[boards > 0]
    if not len(with_gpus):
        return Counter()
    by_board = with_gpus[:, [MILLI_CPU, MEMORY]].sum(axis=0) // boards.sum()
    everywhere = np.ones(len(boards), dtype=np.bool_).tobytes()
    largest = int(boards.max())
    return Counter(
        (Ask(k, 0, int(k * by_board[0]), int(k * by_board[1])), everywhere)
        for k in PRIOR_BOARDS
        if k <= largest
    )
