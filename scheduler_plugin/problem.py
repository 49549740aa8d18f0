"""A snapshot as arrays: identical pods become one class with a count, nodes become rows.

Axes: ``n`` nodes in name order, ``c`` pod classes, ``d`` power domains plus one without limit.
Resources are the columns ``r``: whole boards, milliCPU, bytes, pods, and then whatever else a
waiting pod asks for, by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from scheduler_plugin.board_neighbours import SHARES, Neighbours, Sharer, neighbours_of
from scheduler_plugin.domain_rooms import ancestors, counted_watts
from scheduler_plugin.node_states import Demand
from scheduler_plugin.pod_classes import Blocked, Job, PodClass, classes_of, is_movable
from scheduler_plugin.resource_columns import columns_of, node_amounts, pod_amounts, row
from scheduler_plugin.snapshot import MILLI_PER_GPU, Snapshot
from scheduler_plugin.static_rules import static_key, static_mask

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Stands for "no limit" and still adds up without overflow.
UNLIMITED_WATTS = 2**50
#: How many pods of a class go to a node: {(class, node): count}.
Assignment = dict[tuple[int, int], int]


@dataclass(frozen=True)
class Problem:
    """One cycle's problem.

    Attributes:
        columns: Names of the resources, shape (r,).
        total: Allocatable, shape (n, r).
        free: What is left beside all that stays as it is, shape (n, r), never negative.
        start: Where running pods are that the plan may move.
        margin_ok: I1 holds all along the path above the node, shape (n,).
        requests: Shape (c, r).
        counts: Pods in each class, shape (c,).
        eligible: Shape (c, n).
        watts: What one pod adds, shape (c, n).
        headroom: Watts that each domain may still take, shape (d + 1,), the last unlimited.
        path: Domains above each node, padded with the unlimited one, shape (n, depth).
        tiers: Priorities, most important first.
        neighbours: Which sharers of boards bear one another; None where no pair was measured.
        sharers: What neighbours feel of a pod of each class, shape (c,); None without the rule.
        demands: What a pod of each class takes of a node, shape (c,).
    """

    snapshot: Snapshot
    node_names: tuple[str, ...]
    columns: tuple[str, ...]
    total: IntArray
    free: IntArray
    start: Assignment
    margin_ok: BoolArray
    classes: tuple[PodClass, ...]
    jobs: tuple[Job, ...]
    requests: IntArray
    counts: IntArray
    eligible: BoolArray
    watts: IntArray
    headroom: IntArray
    path: IntArray
    tiers: tuple[int, ...]
    blocked: tuple[Blocked, ...]
    neighbours: Neighbours | None
    sharers: tuple[Sharer | None, ...]
    demands: tuple[Demand, ...]

    @cached_property
    def runs_on(self) -> tuple[dict[int, int], ...]:
        """Of each class, how many run on which node and may be moved."""
        found: tuple[dict[int, int], ...] = tuple({} for _ in self.classes)
        for (c, node), count in self.start.items():
            found[c][node] = count
        return found

    @cached_property
    def prices(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """GPU seconds of each pod that may leave a node, by class and node, the cheapest first."""
        found: dict[tuple[int, int], list[int]] = {}
        for c, pod_class in enumerate(self.classes):
            for pod in pod_class.running:
                found.setdefault((c, pod.node), []).append(pod.price)
        return {key: tuple(prices) for key, prices in found.items()}

    @property
    def kept_in_place(self) -> frozenset[int]:
        """Classes whose places CP-SAT leaves as they are: what neighbours bear is not linear."""
        if self.neighbours is None:
            return frozenset()
        jobs = (job.classes for job in self.jobs)
        return frozenset(c for j in jobs if any(self.sharers[m] for m in j) for c in j)

    @property
    def share_columns(self) -> tuple[int, ...]:
        """Columns of shares of boards, which measured pairs may replace."""
        return tuple(r for r, name in enumerate(self.columns) if name in SHARES)


def compile_problem(snapshot: Snapshot, *, moves: bool = False) -> Problem:
    """The arrays of a snapshot.

    Args:
        snapshot: What is known.
        moves: Whether running pods that can be moved may be.
    """
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    headroom, path, margin_ok = _power(snapshot, index)
    classes, jobs, blocked = classes_of(snapshot, index, moves=moves)
    columns = columns_of(k.pod for k in classes)
    total, free = _capacity(snapshot, index, columns, moves=moves)
    requests = _rows([pod_amounts(k.pod) for k in classes], columns)
    rule = neighbours_of(snapshot)
    sharers = tuple(None if rule is None else rule.sharer_of(k.pod) for k in classes)
    amounts = (tuple(each) for each in requests.tolist())
    return Problem(
        snapshot=snapshot,
        node_names=tuple(index),
        columns=columns,
        total=total,
        free=free,
        start=_start(classes),
        margin_ok=margin_ok,
        classes=classes,
        jobs=jobs,
        requests=requests,
        counts=np.array([k.count for k in classes], dtype=np.int64),
        eligible=_eligible(snapshot, classes) & margin_ok,
        watts=_watts(snapshot, classes),
        headroom=headroom,
        path=path,
        tiers=tuple(sorted({job.priority for job in jobs}, reverse=True)),
        blocked=blocked,
        neighbours=rule,
        sharers=sharers,
        demands=tuple(Demand(a, sharer=s) for a, s in zip(amounts, sharers, strict=True)),
    )


def _power(snapshot: Snapshot, index: dict[str, int]) -> tuple[IntArray, IntArray, BoolArray]:
    """Headroom after promises, the path above each node, and whether I1 holds all along it."""
    domains = {domain.name: domain for domain in snapshot.domains}
    number = {name: i for i, name in enumerate(domains)}
    paths = {name: ancestors(domains, name) for name in domains}
    depth = max((len(p) for p in paths.values()), default=0) + 1
    path = np.full((len(index), depth), len(domains), dtype=np.int64)
    margin_ok = np.ones(len(index), dtype=bool)
    for i, node in enumerate(snapshot.nodes):
        above = paths.get(node.domain, [])
        path[i, : len(above)] = [number[name] for name in above]
        margin_ok[i] = all(domains[name].guaranteed_margin_watts >= 0 for name in above)
    counted = counted_watts(snapshot)
    headroom = np.array(
        [d.limit_watts - counted[name] for name, d in domains.items()] + [UNLIMITED_WATTS],
        dtype=np.int64,
    )
    return np.maximum(headroom, 0), path, margin_ok


def _capacity(
    snapshot: Snapshot, index: dict[str, int], columns: tuple[str, ...], *, moves: bool
) -> tuple[IntArray, IntArray]:
    total = _rows([node_amounts(node) for node in snapshot.nodes], columns)
    used = np.zeros_like(total)
    for pod in snapshot.pods:
        at = index.get(pod.node)
        if at is not None and not (moves and is_movable(pod, index)):
            used[at] += row(pod_amounts(pod), columns)
    return total, np.maximum(total - used, 0)


def placed_counts(problem: Problem, assignment: Assignment) -> list[int]:
    """How many pods of each class have a place."""
    placed = [0] * len(problem.classes)
    for (class_index, _), count in assignment.items():
        placed[class_index] += count
    return placed


def _start(classes: tuple[PodClass, ...]) -> Assignment:
    start: Assignment = {}
    for c, pod_class in enumerate(classes):
        for pod in pod_class.running:
            start[c, pod.node] = start.get((c, pod.node), 0) + 1
    return start


def _rows(amounts: list[dict[str, int]], columns: tuple[str, ...]) -> IntArray:
    found = np.array([row(each, columns) for each in amounts], dtype=np.int64)
    return found.reshape(-1, len(columns))


def _eligible(snapshot: Snapshot, classes: tuple[PodClass, ...]) -> BoolArray:
    """Static rules only; pods that they treat alike are evaluated once over all nodes."""
    masks: dict[str, BoolArray] = {}
    result = np.zeros((len(classes), len(snapshot.nodes)), dtype=bool)
    for i, pod_class in enumerate(classes):
        key = static_key(pod_class.pod)
        if key not in masks:
            masks[key] = static_mask(snapshot, pod_class.pod)
        result[i] = masks[key]
    return result


def _watts(snapshot: Snapshot, classes: tuple[PodClass, ...]) -> IntArray:
    rows: dict[str, IntArray] = {}
    result = np.zeros((len(classes), len(snapshot.nodes)), dtype=np.int64)
    for i, pod_class in enumerate(classes):
        pod = pod_class.pod
        gpus = pod.gpu_milli // MILLI_PER_GPU
        if pod.expected_watts_per_gpu is not None:
            result[i] = gpus * pod.expected_watts_per_gpu
            continue
        if pod.kernel_class not in rows:
            rows[pod.kernel_class] = np.array(
                [
                    n.class_watts_per_gpu.get(pod.kernel_class, n.watts_per_gpu)
                    for n in snapshot.nodes
                ],
                dtype=np.int64,
            )
        result[i] = gpus * rows[pod.kernel_class]
    return result
