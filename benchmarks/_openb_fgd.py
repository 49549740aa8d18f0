"""Fragmentation gradient descent, written anew from its definition.

A node's fragmentation is the GPU, in milli, that a random task of the workload cannot use there
(Weng et al., USENIX ATC 2023, section 4): everything that is free if the task does not fit or wants
no GPU, else what lies on boards too full for it. A task goes where that grows least.

As in the published artefact, the random task is of the kinds that make up 95 % of the list, the
score is a sigmoid of the gradient in whole percent, and equal scores go to the first node of the
seed's random order. Equal nodes are scored once. What differs: of the boards of one node the exact
gradient chooses, not the first of an equal percentage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks._openb_policies import Binding, BoolArray, Rooms, Told
from benchmarks._openb_trace import MILLI_PER_GPU, MOST_BOARDS, FloatArray, IntArray, Kind

TYPICAL_SHARE: Final = 0.95
PERCENT: Final = 100.0


@dataclass(frozen=True, slots=True)
class RandomTask:
    """Tasks with GPUs of the workload; CPU-only ones are what their chances lack to 1.

    Attributes:
        chance: (m,)
        allowed: Whether a GPU model serves them, (n_models, m).
        levels: What they ask of one board, each once, ascending, (d,).
        level_of: (m,)
    """

    chance: FloatArray
    milli_cpu: IntArray
    boards: IntArray
    allowed: BoolArray
    levels: IntArray
    level_of: IntArray

    @classmethod
    def of(cls, kinds: Sequence[Kind], mix: Sequence[int], models: Sequence[str]) -> RandomTask:
        """The most frequent kinds, memory aside, until they make up 95 % of all tasks."""
        counts: Counter[tuple[int, int, int, tuple[str, ...]]] = Counter()
        for kind, count in zip(kinds, mix, strict=True):
            counts[kind.milli_cpu, kind.board_milli, kind.boards, kind.models] += int(count)
        enough = TYPICAL_SHARE * sum(counts.values())
        typical, reached = [], 0
        for count, task in sorted(((n, task) for task, n in counts.items()), reverse=True):
            if reached >= enough:
                break
            typical.append((count, task))
            reached += count
        with_gpus = [(count / reached, task) for count, task in typical if task[2]]
        levels, level_of = np.unique([task[1] for _, task in with_gpus], return_inverse=True)
        allowed = [[not t[3] or model in t[3] for _, t in with_gpus] for model in models]
        return cls(
            np.array([chance for chance, _ in with_gpus]),
            np.array([task[0] for _, task in with_gpus]),
            np.array([task[2] for _, task in with_gpus]),
            np.array(allowed, dtype=np.bool_).reshape(len(models), len(with_gpus)),
            levels,
            level_of,
        )

    def fragmented_milli(
        self, model: IntArray, milli_cpu: IntArray, board_milli: IntArray
    ) -> FloatArray:
        """Expected GPU that it cannot use on each node, (n,).

        Args:
            model: Index of each node's GPU model, (n,).
            milli_cpu: Free, (n,).
            board_milli: Free on each board, 0 where there is none, (n, boards).
        """
        suffices = board_milli[:, :, None] >= self.levels
        count = suffices.sum(axis=1)[:, self.level_of]
        usable = np.einsum("nb,nbd->nd", board_milli, suffices)[:, self.level_of]
        fits = (count >= self.boards) & (milli_cpu[:, None] >= self.milli_cpu)
        fits &= self.allowed[model]
        expected = (fits * usable) @ self.chance
        return np.asarray(board_milli.sum(axis=1) - expected)


class Fgd:
    """One task after another to the node and board of the steepest descent."""

    def __init__(self, told: Told) -> None:
        self._rooms = Rooms(told)
        self._rank = told.node_rank
        self._next = 0
        models = sorted({node.model for node in told.nodes})
        self._model = np.array([models.index(node.model) for node in told.nodes])
        self._allowed = np.array(
            [[not kind.models or m in kind.models for m in models] for kind in told.kinds]
        )
        self._task = RandomTask.of(told.kinds, told.mix.tolist(), models)
        self._states = _States(self._task)
        self._state = np.array([self._state_of(node) for node in range(len(told.nodes))])
        self._scores = [_Scores() for _ in told.kinds]

    def arrive(self, kinds: Sequence[int]) -> Iterable[Binding]:
        """One task after another."""
        for number in kinds:
            arrival, self._next = self._next, self._next + 1
            node = self._node(number)
            if node is None:
                continue
            boards = self._boards(number, node)
            self._rooms.take(number, node, boards)
            self._state[node] = self._state_of(node)
            yield Binding(arrival, node, boards)

    def _node(self, number: int) -> int | None:
        scores, kind = self._scores[number], self._rooms.kinds[number]
        known, count = len(scores.percent), self._states.count
        if known < count:
            scores.extend(*self._score(kind, self._allowed[number], slice(known, count)))
        score = scores.percent[self._state]
        score = np.where(self._rooms.memory_mib >= kind.memory_mib, score, -np.inf)
        highest = score.max()
        if highest == -np.inf:
            return None
        best = np.flatnonzero(score == highest)
        return int(best[self._rank[best].argmin()])

    def _boards(self, number: int, node: int) -> tuple[int, ...]:
        kind, free = self._rooms.kinds[number], self._rooms.board_milli[node]
        level = self._scores[number].level[self._state[node]]
        return tuple(np.flatnonzero(free == level)[: kind.boards].tolist())

    def _state_of(self, node: int) -> int:
        free = sorted(self._rooms.board_milli[node].tolist(), reverse=True)
        return self._states.number(
            int(self._model[node]), int(self._rooms.milli_cpu[node]), tuple(free)
        )

    def _score(self, kind: Kind, allowed: BoolArray, new: slice) -> tuple[FloatArray, IntArray]:
        """Percent of each state, -inf where the kind does not fit, and the board's level."""
        model, cpu, free = (
            column[new]
            for column in (self._states.model, self._states.milli_cpu, self._states.board_milli)
        )
        fits = cpu >= kind.milli_cpu
        if kind.boards:
            fits = fits & allowed[model]
        gradient = np.full((len(fits), MOST_BOARDS), -np.inf)
        if 0 < kind.board_milli < MILLI_PER_GPU:
            suits = (free >= kind.board_milli) & fits[:, None]
            suits[:, :-1] &= free[:, :-1] != free[:, 1:]
            at, board = np.nonzero(suits)
            left = free[at]
            left[np.arange(len(at)), board] -= kind.board_milli
        else:
            fits = fits & ((free == MILLI_PER_GPU).sum(axis=1) >= kind.boards)
            at = np.flatnonzero(fits)
            board = np.zeros(len(at), dtype=np.int64)
            left = free[at]
            left[:, : kind.boards] = 0  # whole boards come first in a state
        after = self._task.fragmented_milli(model[at], cpu[at] - kind.milli_cpu, left)
        gradient[at, board] = self._states.fragmented_milli[new][at] - after
        chosen = gradient.argmax(axis=1)
        rows = np.arange(len(fits))
        steepest = gradient[rows, chosen]
        percent = np.full(len(fits), -np.inf)
        fine = np.isfinite(steepest)
        percent[fine] = np.floor(PERCENT / (1.0 + np.exp(-steepest[fine] / MILLI_PER_GPU)))
        return percent, free[rows, chosen]


class _States:
    """Nodes by what decides their fragmentation; equal ones share a number."""

    def __init__(self, task: RandomTask) -> None:
        self._task = task
        self._numbers: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self.count = 0
        self.model: IntArray = np.zeros(0, dtype=np.int64)
        self.milli_cpu: IntArray = np.zeros(0, dtype=np.int64)
        self.board_milli: IntArray = np.zeros((0, MOST_BOARDS), dtype=np.int64)
        self.fragmented_milli: FloatArray = np.zeros(0)

    def number(self, model: int, milli_cpu: int, board_milli: tuple[int, ...]) -> int:
        """Of a state, which is kept when it is new; boards with most left come first."""
        key = (model, milli_cpu, board_milli)
        found = self._numbers.get(key)
        if found is not None:
            return found
        at = self._numbers[key] = self.count
        if at == len(self.model):
            self._grow(max(1024, 2 * at))
        self.model[at], self.milli_cpu[at], self.board_milli[at] = key
        one = slice(at, at + 1)
        self.fragmented_milli[one] = self._task.fragmented_milli(
            self.model[one], self.milli_cpu[one], self.board_milli[one]
        )
        self.count += 1
        return at

    def _grow(self, length: int) -> None:
        more = length - len(self.model)
        self.model = np.pad(self.model, (0, more))
        self.milli_cpu = np.pad(self.milli_cpu, (0, more))
        self.board_milli = np.pad(self.board_milli, ((0, more), (0, 0)))
        self.fragmented_milli = np.pad(self.fragmented_milli, (0, more))


class _Scores:
    """Of one kind on each state so far: percent, and the free milli of the board that it takes."""

    def __init__(self) -> None:
        self._count = 0
        self._percent: FloatArray = np.zeros(0)
        self._level: IntArray = np.zeros(0, dtype=np.int64)

    @property
    def percent(self) -> FloatArray:
        """Of each state, (n_states,)."""
        return self._percent[: self._count]

    @property
    def level(self) -> IntArray:
        """Of each state, (n_states,)."""
        return self._level[: self._count]

    def extend(self, percent: FloatArray, level: IntArray) -> None:
        """Scores of the states that are new."""
        count = self._count + len(percent)
        if count > len(self._percent):
            more = 2 * count - len(self._percent)
            self._percent = np.pad(self._percent, (0, more))
            self._level = np.pad(self._level, (0, more))
        self._percent[self._count : count] = percent
        self._level[self._count : count] = level
        self._count = count
