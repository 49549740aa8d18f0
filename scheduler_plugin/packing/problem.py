"""A snapshot as arrays: identical pods become one class with a count, nodes become rows.

Axes: ``n`` nodes in name order, ``c`` pod classes, ``d`` power domains plus one without limit.
Resources are the columns ``r``: whole boards, milliCPU, bytes, pods, and then whatever else a
waiting pod asks for, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.mig_geometry import GEOMETRIES, MigGeometry
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Pod, Snapshot
from scheduler_plugin.packing.domain_rooms import ancestors, counted_watts
from scheduler_plugin.packing.fragmentation import Ask, expected_demand
from scheduler_plugin.packing.node_scores import NodeScores
from scheduler_plugin.packing.pod_classes import Blocked, Job, PodClass, classes_of, is_movable
from scheduler_plugin.room.board_neighbours import SHARES, Neighbours, Sharer, neighbours_of
from scheduler_plugin.room.board_states import Boards
from scheduler_plugin.room.node_states import NodeStates
from scheduler_plugin.room.pod_demand import Demand
from scheduler_plugin.room.resource_columns import (
    GPUS,
    MEMORY,
    MILLI_CPU,
    PODS,
    columns_of,
    gpu_value_milli,
    gpu_watts,
    mig_profiles,
    node_amounts,
    pod_amounts,
    row,
    share_milli,
    whole_boards,
)
from scheduler_plugin.room.running_boards import (
    has_its_places,
    overfull_nodes,
    places_of_running,
    states_beside,
)
from scheduler_plugin.rules.gang_domains import GangDomain, gang_domains
from scheduler_plugin.rules.node_kinds import node_kinds
from scheduler_plugin.rules.peer_counts import Peers, peers_of
from scheduler_plugin.rules.static_rules import static_key, static_mask

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
        boards: The state of each board, shape (n, b); None where nobody asks for a part of one.
        homes: Places of the running pods that may be moved, by node and demand, the dearest first.
        geometries: How each node's boards may be cut into MIG instances, (n,).
        requests: Shape (c, r).
        gpu_milli: What one pod asks for, of whole boards or parts, shape (c,).
        counts: Pods in each class, shape (c,).
        eligible: Shape (c, n).
        watts: What one pod adds, shape (c, n).
        worth: What one pod's placement is worth beside others that place as much, shape (c, n);
            None where no pod says that GPU models differ to it.
        headroom: Watts that each domain may still take, shape (d + 1,), the last unlimited.
        domain: Directly above each node, the unlimited one for none, shape (n,).
        above: Each domain and those above it, padded with the unlimited one, shape (d + 1, depth).
        tiers: Priorities, most important first.
        neighbours: Which sharers of boards bear one another; None where no pair was measured.
        sharers: What neighbours feel of a pod of each class, shape (c,); None without the rule.
        demands: What a pod of each class takes of a node, shape (c,).
        peers: What pods want of one another; None where nobody wants anything.
        domains_of_gangs: Of gangs that should be in one domain, by gang.
    """

    snapshot: Snapshot
    node_names: tuple[str, ...]
    columns: tuple[str, ...]
    total: IntArray
    free: IntArray
    boards: IntArray | None
    homes: Mapping[tuple[int, Demand], tuple[Boards, ...]]
    geometries: tuple[MigGeometry | None, ...]
    start: Assignment
    margin_ok: BoolArray
    classes: tuple[PodClass, ...]
    jobs: tuple[Job, ...]
    requests: IntArray
    gpu_milli: IntArray
    counts: IntArray
    eligible: BoolArray
    watts: IntArray
    worth: IntArray | None
    headroom: IntArray
    domain: IntArray
    above: IntArray
    tiers: tuple[int, ...]
    blocked: tuple[Blocked, ...]
    neighbours: Neighbours | None
    sharers: tuple[Sharer | None, ...]
    demands: tuple[Demand, ...]
    peers: Peers | None
    domains_of_gangs: Mapping[str, GangDomain]

    @cached_property
    def path(self) -> IntArray:
        """Domains above each node, padded with the unlimited one, shape (n, depth)."""
        return self.above[self.domain]

    def least_above(self, headroom: IntArray) -> IntArray:
        """Of watts by domain, shape (d + 1,), the least above each node, shape (n,)."""
        least: IntArray = headroom[self.above].min(axis=1)
        return least[self.domain]

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

    @cached_property
    def requests_and_shares(self) -> IntArray:
        """Requests, and as a last column shares of one board in thousandths, shape (c, r + 1)."""
        shares = np.array([[d.share_milli] for d in self.demands], dtype=np.int64)
        return np.hstack([self.requests, shares.reshape(-1, 1)])

    @cached_property
    def value_stages(self) -> tuple[dict[int, int], ...]:
        """What a pod of each class is worth: of each tier those with GPUs, then those without.

        Within a tier no number of pods without GPUs outweighs a GPU.
        """
        return tuple(
            {
                c: one.value
                for c, one in enumerate(self.classes)
                if one.priority == priority and bool(self.gpu_milli[c]) == with_gpus
            }
            for priority in self.tiers
            for with_gpus in (True, False)
        )

    def states(self) -> NodeStates:
        """Room beside all that stays as it is."""
        return NodeStates(
            self.free,
            self.boards,
            self.neighbours,
            self.share_columns,
            self.homes,
            self.geometries,
        )

    @cached_property
    def start_states(self) -> NodeStates:
        """The same with the pods that run and may be moved where they are; for copies."""
        states = self.states()
        for (c, node), count in self.start.items():
            states.put(self.demands[c], node, count)
        return states

    @cached_property
    def asks(self) -> tuple[Ask, ...]:
        """What a pod of each class asks for that decides how well it suits a node, shape (c,)."""
        return tuple(Ask.of(demand) for demand in self.demands)

    @cached_property
    def node_scores(self) -> NodeScores:
        """How well a pod suits a node by what is left there."""
        return NodeScores(self.total, expected_demand(self))

    @cached_property
    def kept_in_place(self) -> frozenset[int]:
        """Classes whose places CP-SAT leaves as they are: what others bear is not linear."""
        held = frozenset[int]() if self.peers is None else self.peers.concerned()
        held |= {c for c, sharer in enumerate(self.sharers) if sharer}
        return frozenset(
            c
            for job in self.jobs
            if held & set(job.classes) or job.gang in self.domains_of_gangs
            for c in job.classes
        )

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
    headroom, domain, above = _power(snapshot)
    margins = np.array([d.guaranteed_margin_watts for d in snapshot.domains] + [0])
    margin_ok = np.asarray((margins[above] >= 0).all(axis=1))[domain]
    running = places_of_running(snapshot)
    crowded = frozenset[str]() if running is None else overfull_nodes(snapshot, running)
    movable = {
        pod.uid
        for pod in (snapshot.pods if moves else ())
        if is_movable(pod, index)
        and pod.node not in crowded
        and (running is None or has_its_places(pod, running))
    }
    classes, jobs, blocked = classes_of(snapshot, index, movable)
    columns = columns_of(k.pod for k in classes)
    fixed = [pod for pod in snapshot.pods if pod.node in index and pod.uid not in movable]
    total, free = _capacity(snapshot, columns, fixed, index)
    boards = None
    if running is not None:
        there = {pod.uid: index[pod.node] for pod in fixed}
        boards = states_beside(snapshot, running, there, crowded)
        free[:, GPUS] = (boards == MILLI_PER_GPU).sum(axis=1)
    requests = _rows([pod_amounts(k.pod) for k in classes], columns)
    leaving = {running.uid for k in classes for running in k.running}
    rule = neighbours_of(snapshot, leaving)
    sharers = tuple(None if rule is None else rule.sharer_of(k.pod) for k in classes)
    demands = tuple(
        Demand(
            tuple(amounts),
            share_milli=share_milli(k.pod),
            mig_profiles=mig_profiles(k.pod),
            sharer=sharer,
            runs_as=c if running and k.running else -1,
        )
        for c, (k, amounts, sharer) in enumerate(
            zip(classes, requests.tolist(), sharers, strict=True)
        )
    )
    return Problem(
        snapshot=snapshot,
        node_names=tuple(index),
        columns=columns,
        total=total,
        free=free,
        boards=boards,
        homes={} if running is None else _homes(classes, demands, running),
        geometries=tuple(GEOMETRIES.get(node.mig_geometry) for node in snapshot.nodes),
        start=_start(classes),
        margin_ok=margin_ok,
        classes=classes,
        jobs=jobs,
        requests=requests,
        gpu_milli=np.array([gpu_value_milli(k.pod) for k in classes], dtype=np.int64),
        counts=np.array([k.count for k in classes], dtype=np.int64),
        eligible=_eligible(snapshot, classes) & margin_ok,
        watts=_watts(snapshot, classes),
        worth=_worth(snapshot, classes),
        headroom=headroom,
        domain=domain,
        above=above,
        tiers=tuple(sorted({job.priority for job in jobs}, reverse=True)),
        blocked=blocked,
        neighbours=rule,
        sharers=sharers,
        demands=demands,
        peers=peers_of(snapshot, [k.pod for k in classes]),
        domains_of_gangs=gang_domains(snapshot),
    )


def _power(snapshot: Snapshot) -> tuple[IntArray, IntArray, IntArray]:
    """Headroom after promises, the domain of each node, and which domains are above which."""
    domains = {domain.name: domain for domain in snapshot.domains}
    number = {name: i for i, name in enumerate(domains)} | {"": len(domains)}
    paths = [ancestors(domains, name) for name in number]
    above = np.full((len(number), max(map(len, paths)) + 1), len(domains), dtype=np.int64)
    for i, names in enumerate(paths):
        above[i, : len(names)] = [number[name] for name in names]
    counted = counted_watts(snapshot)
    headroom = [d.limit_watts - counted[name] for name, d in domains.items()]
    return (
        np.maximum(np.array([*headroom, UNLIMITED_WATTS], dtype=np.int64), 0),
        np.array([number[node.domain] for node in snapshot.nodes], dtype=np.int64),
        above,
    )


def _capacity(
    snapshot: Snapshot, columns: tuple[str, ...], fixed: Sequence[Pod], index: Mapping[str, int]
) -> tuple[IntArray, IntArray]:
    """Allocatable, and what is left beside pods that stay as they are, both (n, r)."""
    total = _rows([node_amounts(node) for node in snapshot.nodes], columns)
    used = np.zeros_like(total)
    # One list a column: a dictionary and a row a pod take five times as long for 35,000 pods.
    at = np.array([index[pod.node] for pod in fixed], dtype=np.intp)
    amounts = {
        GPUS: [whole_boards(pod) for pod in fixed],
        MILLI_CPU: [pod.milli_cpu for pod in fixed],
        MEMORY: [pod.memory_bytes for pod in fixed],
        PODS: [1] * len(fixed),
    }
    for column, name in enumerate(columns):
        taken = amounts.get(column) or [pod.resources.get(name, 0) for pod in fixed]
        np.add.at(used[:, column], at, taken)
    return total, np.maximum(total - used, 0)


def _homes(
    classes: tuple[PodClass, ...], demands: tuple[Demand, ...], boards: Mapping[str, Boards]
) -> dict[tuple[int, Demand], tuple[Boards, ...]]:
    homes: dict[tuple[int, Demand], tuple[Boards, ...]] = {}
    for pod_class, demand in zip(classes, demands, strict=True):
        # In the order in which a plan lets them stay: the cheapest leave first.
        for pod in reversed(pod_class.running):
            if pod.uid in boards:
                key = (pod.node, demand)
                homes[key] = (*homes.get(key, ()), boards[pod.uid])
    return homes


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
    """Static rules only; pods that they treat alike are asked about once, nodes likewise."""
    kinds = node_kinds(snapshot.nodes, (k.pod for k in classes))
    masks: dict[str, BoolArray] = {}
    result = np.zeros((len(classes), len(snapshot.nodes)), dtype=bool)
    for i, pod_class in enumerate(classes):
        key = static_key(pod_class.pod)
        if key not in masks:
            masks[key] = static_mask(kinds, pod_class.pod)
        result[i] = masks[key]
    return result


def _worth(snapshot: Snapshot, classes: tuple[PodClass, ...]) -> IntArray | None:
    if not any(pod_class.pod.gpu_model_values for pod_class in classes):
        return None
    models = sorted({node.gpu_model for node in snapshot.nodes})
    number = {model: i for i, model in enumerate(models)}
    of_node = np.array([number[node.gpu_model] for node in snapshot.nodes], dtype=np.intp)
    by_model = np.zeros((len(classes), len(models)), dtype=np.int64)
    for worth, pod_class in zip(by_model, classes, strict=True):
        pod = pod_class.pod
        for model, value in pod.gpu_model_values.items():
            if model in number:
                worth[number[model]] = value * pod.gpu_milli // MILLI_PER_GPU
    return by_model[:, of_node]


def _watts(snapshot: Snapshot, classes: tuple[PodClass, ...]) -> IntArray:
    rows: dict[str, IntArray] = {}
    result = np.zeros((len(classes), len(snapshot.nodes)), dtype=np.int64)
    for i, pod_class in enumerate(classes):
        pod = pod_class.pod
        if pod.expected_watts_per_gpu is not None:
            result[i] = gpu_watts(pod, pod.expected_watts_per_gpu)
            continue
        if pod.kernel_class not in rows:
            rows[pod.kernel_class] = np.array(
                [
                    n.class_watts_per_gpu.get(pod.kernel_class, n.watts_per_gpu)
                    for n in snapshot.nodes
                ],
                dtype=np.int64,
            )
        result[i] = gpu_watts(pod, rows[pod.kernel_class])
    return result
