"""A snapshot as arrays: identical pods become one class with a count, nodes become rows.

Axes: ``n`` nodes in name order, ``c`` pod classes, ``d`` power domains plus one without limit.
Resources are the columns ``r``: whole boards, milliCPU, bytes, pods, and then whatever else a
waiting pod asks for, by name.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.board_neighbours import SHARES, Neighbours, Sharer, neighbours_of
from scheduler_plugin.domain_rooms import ancestors, counted_watts
from scheduler_plugin.node_states import Demand
from scheduler_plugin.plan_document import PendingReason
from scheduler_plugin.resource_columns import columns_of, node_amounts, pod_amounts, row
from scheduler_plugin.snapshot import MILLI_PER_GPU, Pod, PodState, Snapshot
from scheduler_plugin.static_rules import static_key, static_mask

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Stands for "no limit" and still adds up without overflow.
UNLIMITED_WATTS = 2**50
#: How many pods of a class go to a node: {(class, node): count}.
Assignment = dict[tuple[int, int], int]

_WAITING = (PodState.PENDING, PodState.ABSENT)


class Blocked(NamedTuple):
    """A pod that cannot be planned at all."""

    uid: str
    gang: str
    reason: PendingReason
    message: str


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that differ only in their names. ``value`` is what placing one is worth."""

    pod: Pod
    uids: tuple[str, ...]
    priority: int
    value: int


@dataclass(frozen=True, slots=True)
class Job:
    """What is placed together: one class of single pods, or all classes of a gang."""

    classes: tuple[int, ...]
    priority: int
    gang: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One cycle's problem.

    Attributes:
        columns: Names of the resources, shape (r,).
        total: Allocatable, shape (n, r).
        free: What is not bound or promised, shape (n, r), never negative.
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


def compile_problem(snapshot: Snapshot) -> Problem:
    """The arrays of a snapshot."""
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    headroom, path, margin_ok = _power(snapshot, index)
    classes, jobs, blocked = _classes(snapshot)
    columns = columns_of(k.pod for k in classes)
    total, free = _capacity(snapshot, index, columns)
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
        margin_ok=margin_ok,
        classes=classes,
        jobs=jobs,
        requests=requests,
        counts=np.array([len(k.uids) for k in classes], dtype=np.int64),
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
    snapshot: Snapshot, index: dict[str, int], columns: tuple[str, ...]
) -> tuple[IntArray, IntArray]:
    total = _rows([node_amounts(node) for node in snapshot.nodes], columns)
    used = np.zeros_like(total)
    for pod in snapshot.pods:
        at = index.get(pod.node)
        if at is not None:
            used[at] += row(pod_amounts(pod), columns)
    return total, np.maximum(total - used, 0)


def _rows(amounts: list[dict[str, int]], columns: tuple[str, ...]) -> IntArray:
    found = np.array([row(each, columns) for each in amounts], dtype=np.int64)
    return found.reshape(-1, len(columns))


def _classes(
    snapshot: Snapshot,
) -> tuple[tuple[PodClass, ...], tuple[Job, ...], tuple[Blocked, ...]]:
    described: dict[str, int] = defaultdict(int)
    priority: dict[str, int] = {}
    for pod in snapshot.pods:
        if pod.gang:
            described[pod.gang] += 1
            if pod.state in _WAITING:
                priority[pod.gang] = max(pod.priority, priority.get(pod.gang, pod.priority))
    size = {gang.id: gang.size for gang in snapshot.gangs}
    groups: dict[tuple[int, str, str], list[Pod]] = defaultdict(list)
    blocked: list[Blocked] = []
    for pod in snapshot.pods:
        if pod.state not in _WAITING:
            continue
        if pod.gang and described[pod.gang] < size[pod.gang]:
            text = f"{described[pod.gang]} of {size[pod.gang]} members of {pod.gang} are described"
            blocked.append(Blocked(pod.uid, pod.gang, PendingReason.GANG_INCOMPLETE, text))
            continue
        template = pod.model_dump_json(exclude={"uid", "namespace", "name", "state", "priority"})
        tier = priority[pod.gang] if pod.gang else pod.priority
        groups[(-tier, pod.gang, template)].append(pod)
    classes = tuple(
        PodClass(
            pods[0],
            tuple(pod.uid for pod in pods),
            -key[0],
            max(1, pods[0].gpu_milli // MILLI_PER_GPU),
        )
        for key, pods in sorted(groups.items())
    )
    gangs: dict[str, list[int]] = defaultdict(list)
    jobs: list[Job] = []
    for i, pod_class in enumerate(classes):
        if pod_class.pod.gang:
            gangs[pod_class.pod.gang].append(i)
        else:
            jobs.append(Job((i,), pod_class.priority))
    jobs += [Job(tuple(m), classes[m[0]].priority, gang) for gang, m in gangs.items()]
    return classes, tuple(jobs), tuple(blocked)


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
