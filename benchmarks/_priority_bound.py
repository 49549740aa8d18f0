"""A lower bound on the running pods that leave, for clusters that an exact model is too slow for.

Prices for pods and classes, from a linear program over contents of nodes, let each node choose its
cheapest content by itself; the sum is a bound whatever the prices are (Lagrange; Geoffrion,
"Lagrangean Relaxation for Integer Programming", Mathematical Programming Study 2, 1974). Contents
that a node would rather have join the linear program until there are none.

The choice is exact: all sets of pods that no other set beats in room and worth.
"""

from __future__ import annotations

import itertools
import math
import time
from bisect import bisect_right
from collections import Counter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

from benchmarks._priority_instances import Case

__all__ = ["leaving_bound"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Content = tuple[int, ...]
"""ReplicaSets of the pods of a node, in ascending order."""

TOLERANCE: Final = 1e-6
BEST_OF_A_NODE: Final = 3
DEAR: Final = 100.0
"""Leaving pods that one too few costs in the linear program, which so always has an answer."""


class _Sets(NamedTuple):
    """Sets of pods: room (m, 2), worth (m,), and of each its pods."""

    room: IntArray
    worth: FloatArray
    pods: list[Content]


def leaving_bound(case: Case, counts: tuple[int, ...], seconds: float) -> int:
    """At least so many running pods leave their node where so many of each priority are placed.

    Args:
        case: With where pods run.
        counts: Placed pods of each priority, the most important first.
        seconds: Of CPU time, after which no further round begins.
    """
    began, best = time.process_time(), 0.0
    master = _Master(case, counts)
    while True:
        prices = master.solved()
        value, is_new = master.chosen(*prices)
        best = max(best, value)
        if not is_new or time.process_time() - began > seconds:
            return math.ceil(best - TOLERANCE)


class _Master:
    """The linear program over the contents so far; at first everything stays as it is."""

    def __init__(self, case: Case, counts: tuple[int, ...]) -> None:
        instance = case.instance
        self._room = np.array([instance.node_milli_cpu, instance.node_memory_bytes])
        sizes = Counter(pod.replica_set for pod in instance.pods)
        self._sizes = np.array([sizes[r] for r in range(len(sizes))])
        asks = {pod.replica_set: pod for pod in instance.pods}
        self._asks = np.array([[asks[r].milli_cpu, asks[r].memory_bytes] for r in sorted(asks)])
        self._tiers = np.array([instance.priorities.index(asks[r].priority) for r in sorted(asks)])
        self._counts = np.array(counts)
        runs: list[list[int]] = [[] for _ in range(instance.nodes)]
        for pod, node in case.start.items():
            runs[node].append(instance.pods[pod].replica_set)
        self._runs = [Counter(pods) for pods in runs]
        self._stay = [self._all_that_may_stay(Counter(pods)) for pods in runs]
        self._columns: list[tuple[int, Content]] = [
            (n, tuple(sorted(pods))) for n, pods in enumerate(runs)
        ]
        self._known = set(self._columns)

    def _all_that_may_stay(self, runs: Counter[int]) -> _Sets:
        """Of a node, with the room that is left beside them."""
        some = [range(count + 1) for count in runs.values()]
        pods = [
            tuple(sorted(Counter(dict(zip(runs, kept, strict=True))).elements()))
            for kept in itertools.product(*some)
        ]
        taken = np.array([self._asks[list(kept)].sum(axis=0) for kept in pods])
        return _Sets(self._room - taken, np.array([len(kept) for kept in pods], dtype=float), pods)

    def solved(self) -> tuple[FloatArray, FloatArray]:
        """Prices of a pod too few by priority, at least 0, and of a pod too many by ReplicaSet."""
        k, r, t = len(self._columns), len(self._sizes), len(self._counts)
        held = np.zeros((k, r))
        cost = np.zeros(k + t)
        for row, (n, content) in enumerate(self._columns):
            np.add.at(held[row], list(content), 1)
            cost[row] = (self._runs[n] - Counter(content)).total()
        cost[k:] = DEAR
        of_tier = np.array([held[:, self._tiers == tier].sum(axis=1) for tier in range(t)])
        upper = vstack(
            [
                csr_matrix(np.hstack([held.T, np.zeros((r, t))])),
                csr_matrix(np.hstack([-of_tier, -np.eye(t)])),
            ]
        )
        nodes = [n for n, _ in self._columns]
        one_each = csr_matrix((np.ones(k), (nodes, range(k))), shape=(len(self._runs), k + t))
        answer = linprog(
            cost,
            A_ub=upper,
            b_ub=np.concatenate([self._sizes, -self._counts]),
            A_eq=one_each,
            b_eq=np.ones(len(self._runs)),
            method="highs",
        )
        duals = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
        self._prices = -np.asarray(answer.eqlin.marginals)
        return duals[r:], duals[:r]

    def chosen(self, few: FloatArray, many: FloatArray) -> tuple[float, bool]:
        """The bound at these prices, and whether a node would rather have a content not known."""
        worth = few[self._tiers] - many
        come = _unbeaten_sets(self._asks, self._sizes, worth, self._room)
        total, is_new = float(few @ self._counts - many @ self._sizes), False
        for n, stay in enumerate(self._stay):
            fits = (come.room[:, 0] <= stay.room[:, :1]) & (come.room[:, 1] <= stay.room[:, 1:])
            gain = np.where(fits, come.worth, -np.inf)
            best = gain.argmax(axis=1)
            stays = stay.worth + [worth[list(pods)].sum() for pods in stay.pods]
            gains = gain[np.arange(len(best)), best] + stays
            total += self._runs[n].total() - float(gains.max())
            for k in np.argsort(-gains)[:BEST_OF_A_NODE].tolist():
                if self._runs[n].total() - gains[k] + self._prices[n] < -TOLERANCE:
                    column = n, tuple(sorted(stay.pods[k] + come.pods[best[k]]))
                    is_new |= column not in self._known
                    self._columns += [column] if column not in self._known else []
                    self._known.add(column)
        return total, is_new


def _unbeaten_sets(asks: IntArray, sizes: IntArray, worth: FloatArray, most: IntArray) -> _Sets:
    """Of all sets of pods that are worth something those that no other beats."""
    sets: list[tuple[float, int, int, Content]] = [(0.0, 0, 0, ())]
    for r in np.flatnonzero(worth > TOLERANCE / 100).tolist():
        cpu, memory = asks[r].tolist()
        more = [
            (
                value + count * float(worth[r]),
                c + count * cpu,
                m + count * memory,
                (*pods, *[r] * count),
            )
            for value, c, m, pods in sets
            for count in range(1, int(sizes[r]) + 1)
            if c + count * cpu <= most[0] and m + count * memory <= most[1]
        ]
        sets = _unbeaten(sets + more)
    room = np.array([(c, m) for _, c, m, _ in sets])
    return _Sets(room, np.array([value for value, *_ in sets]), [pods for *_, pods in sets])


def _unbeaten(sets: list[tuple[float, int, int, Content]]) -> list[tuple[float, int, int, Content]]:
    """The dearest first; a later one stays if it asks for less of something than each before."""
    kept: list[tuple[float, int, int, Content]] = []
    lefts: list[int] = []
    heights: list[int] = []
    for one in sorted(sets, key=lambda each: (-each[0], each[1], each[2])):
        _, cpu, memory, _ = one
        at = bisect_right(lefts, cpu)
        if at and heights[at - 1] <= memory:
            continue
        kept.append(one)
        end = at
        while end < len(lefts) and heights[end] >= memory:
            end += 1
        lefts[at:end], heights[at:end] = [cpu], [memory]
    return kept
