"""A snapshot as arrays: identical pods become one class with a count, nodes become rows.

Axes: ``n`` nodes in name order, ``c`` pod classes, ``d`` power domains plus one without limit.
Resources are the columns ``r``: whole boards, milliCPU, bytes, pods, and then whatever else a
waiting pod asks for, by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.mig_geometry import GEOMETRIES, MigGeometry
from scheduler_plugin.documents.objective_order import ObjectiveStage
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Pod, Snapshot
from scheduler_plugin.packing.cap_levels import chosen_caps
from scheduler_plugin.packing.capped_watts import watts_added
from scheduler_plugin.packing.fragmentation import Ask, expected_demand
from scheduler_plugin.packing.node_scores import NodeScores
from scheduler_plugin.packing.placement_costs import NodePreferences, placement_costs
from scheduler_plugin.packing.pod_classes import Blocked, Job, PodClass, classes_of, is_movable
from scheduler_plugin.packing.power_rows import PowerRows
from scheduler_plugin.packing.problem_arrays import (
    capacities,
    eligibility,
    headrooms,
    rows,
    spared,
    worths,
)
from scheduler_plugin.packing.quota_rooms import QuotaRooms, quota_rooms
from scheduler_plugin.room.board_neighbours import SHARES, Neighbours, Sharer, neighbours_of
from scheduler_plugin.room.board_states import Boards
from scheduler_plugin.room.node_states import NodeStates
from scheduler_plugin.room.pod_demand import Demand
from scheduler_plugin.room.resource_columns import (
    GPUS,
    columns_of,
    gpu_value_milli,
    mig_profiles,
    pod_amounts,
    share_milli,
)
from scheduler_plugin.room.running_boards import (
    has_its_places,
    overfull_nodes,
    places_of_running,
    states_beside,
)
from scheduler_plugin.rules.gang_domains import GangDomain, gang_domains
from scheduler_plugin.rules.peer_counts import Peers, peers_of
from scheduler_plugin.rules.peer_wishes import PeerWishes, peer_wishes_of
from scheduler_plugin.rules.uplinks import LinkedGangs, linked_gangs

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: How many pods of a class go to a node: {(class, node): count}.
Assignment = dict[tuple[int, int], int]


@dataclass(frozen=True)
class Problem(PowerRows):
    """One cycle's problem; what power domains bear stands in ``PowerRows``.

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
        caps: Of its boards there, that ``watts`` counts on, shape (c, n); 0 for none, None for all.
        worth: What one pod's placement is worth beside others that place as much, shape (c, n);
            None where no pod says that GPU models differ to it.
        tiers: Priorities, most important first.
        neighbours: Which sharers of boards bear one another; None where no pair was measured.
        sharers: What neighbours feel of a pod of each class, shape (c,); None without the rule.
        demands: What a pod of each class takes of a node, shape (c,).
        peers: What pods want of one another; None where nobody wants anything.
        wishes: The same of what they would rather have.
        domains_of_gangs: Of gangs that should be in one domain, by gang.
        quotas: What groups of pods may hold together.
        linked: Gangs for which links between nodes matter; None without any.
        unheld: The same without the room that is held for overdue work; None where none is held.
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
    caps: IntArray | None
    worth: IntArray | None
    tiers: tuple[int, ...]
    blocked: tuple[Blocked, ...]
    neighbours: Neighbours | None
    sharers: tuple[Sharer | None, ...]
    demands: tuple[Demand, ...]
    peers: Peers | None
    wishes: PeerWishes | None
    domains_of_gangs: Mapping[str, GangDomain]
    quotas: QuotaRooms
    linked: LinkedGangs | None
    unheld: Problem | None = None

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
        linked = () if self.linked is None else self.linked.number
        elsewhere = {*self.domains_of_gangs, *linked}
        return frozenset(
            c
            for job in self.jobs
            if held & set(job.classes) or job.gang in elsewhere
            for c in job.classes
        )

    @cached_property
    def placement_costs(self) -> Mapping[ObjectiveStage, IntArray]:
        """By stages of the objective that are sums over placed pods, shape (c, n) each."""
        return placement_costs(self)

    @cached_property
    def preferences(self) -> NodePreferences:
        """Which nodes are better by such stages."""
        return NodePreferences(self)

    @property
    def share_columns(self) -> tuple[int, ...]:
        """Columns of shares of boards, which measured pairs may replace."""
        return tuple(r for r, name in enumerate(self.columns) if name in SHARES)


def compile_problem(snapshot: Snapshot, *, moves: bool = False, caps: bool = False) -> Problem:
    """The arrays of a snapshot.

    Args:
        snapshot: What is known.
        moves: Whether running pods that can be moved may be.
        caps: Whether waiting pods count at chosen caps. Who runs and is moved counts without, as
            it did where it was.
    """
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    headroom, domain, above = headrooms(snapshot)
    margin_ok = _with_margin(snapshot, above)[domain]
    running = places_of_running(snapshot)
    crowded = frozenset[str]() if running is None else overfull_nodes(snapshot, running)
    movable = _movable(snapshot, index, running, crowded) if moves else frozenset[str]()
    chosen = chosen_caps(snapshot) if caps else {}
    classes, jobs, blocked = classes_of(snapshot, index, movable, {name for _, name in chosen})
    columns = columns_of(k.pod for k in classes)
    fixed = [pod for pod in snapshot.pods if pod.node in index and pod.uid not in movable]
    boards = _boards_left(snapshot, running, fixed, index, crowded)
    total, free = capacities(snapshot, columns, fixed, index)
    free = free if boards is None else _with_whole_boards(free, boards)
    requests = rows([pod_amounts(k.pod) for k in classes], columns)
    rule = neighbours_of(snapshot, {pod.uid for k in classes for pod in k.running})
    sharers = tuple(None if rule is None else rule.sharer_of(k.pod) for k in classes)
    demands = _demands(classes, requests, sharers, own_boards=bool(running))
    watts, cap_watts = watts_added(snapshot, classes, chosen)
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
        eligible=eligibility(snapshot, classes) & margin_ok,
        watts=watts,
        caps=cap_watts,
        worth=worths(snapshot, classes),
        headroom=headroom,
        spared=spared(snapshot, classes),
        domain=domain,
        above=above,
        tiers=tuple(sorted({job.priority for job in jobs}, reverse=True)),
        blocked=blocked,
        neighbours=rule,
        sharers=sharers,
        demands=demands,
        peers=peers_of(snapshot, [k.pod for k in classes]),
        wishes=peer_wishes_of(snapshot, [k.pod for k in classes], movable),
        domains_of_gangs=gang_domains(snapshot),
        quotas=quota_rooms(snapshot, classes),
        linked=linked_gangs(snapshot, [k.pod for k in classes]),
    )


def _boards_left(
    snapshot: Snapshot,
    running: Mapping[str, Boards] | None,
    fixed: Sequence[Pod],
    index: Mapping[str, int],
    crowded: frozenset[str],
) -> IntArray | None:
    """What is left of each board beside pods that stay; None where boards are not told apart."""
    if running is None:
        return None
    return states_beside(snapshot, running, {p.uid: index[p.node] for p in fixed}, crowded)


def _with_whole_boards(free: IntArray, boards: IntArray) -> IntArray:
    """Of GPUs only boards of which nobody has a part are free, shape (n, r)."""
    counted = free.copy()
    counted[:, GPUS] = (boards == MILLI_PER_GPU).sum(axis=1)
    return counted


def _with_margin(snapshot: Snapshot, above: IntArray) -> BoolArray:
    """Domains above which guaranteed caps fit everywhere (I1), shape (d + 1,)."""
    margins = np.array([d.guaranteed_margin_watts for d in snapshot.domains] + [0])
    return np.asarray((margins[above] >= 0).all(axis=1))


def _movable(
    snapshot: Snapshot,
    index: Mapping[str, int],
    boards: Mapping[str, Boards] | None,
    crowded: Collection[str],
) -> frozenset[str]:
    """Running pods that a plan may move, by uid.

    Args:
        snapshot: With the pods.
        index: Of nodes by name.
        boards: Of running pods by uid; None where boards are not told apart.
        crowded: Nodes that nothing leaves, since their boards do not hold what runs there.
    """
    return frozenset(
        pod.uid
        for pod in snapshot.pods
        if is_movable(pod, index)
        and pod.node not in crowded
        and (boards is None or has_its_places(pod, boards))
    )


def _demands(
    classes: tuple[PodClass, ...],
    requests: IntArray,
    sharers: Sequence[Sharer | None],
    *,
    own_boards: bool,
) -> tuple[Demand, ...]:
    """What a pod of each class takes of a node; those that run on boards of their own differ."""
    return tuple(
        Demand(
            tuple(amounts),
            share_milli=share_milli(one.pod),
            mig_profiles=mig_profiles(one.pod),
            sharer=sharer,
            runs_as=c if own_boards and one.running else -1,
        )
        for c, (one, amounts, sharer) in enumerate(
            zip(classes, requests.tolist(), sharers, strict=True)
        )
    )


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
