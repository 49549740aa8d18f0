"""How each arm of ``power_packing`` counts a task's watts; all place by the planner's own greedy.

| arm | counts a board at | caps |
|---|---|---|
| ``tdp`` | its limit | none |
| ``peak`` | the 95th percentile of its kind of work, the highest that profiles hold | none |
| ``blind`` | nothing | the highest that hold every budget, alike below a domain |
| ``ours`` | the 95th percentile at the planned cap, by what coincides | by price of a watt |

Caps of ``ours`` are the product's own (``placement.capLevels``): offered by profiles, chosen and
counted by the planner, for tasks with boards of their own. A capped board counts 1.05 of its cap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from benchmarks._openb_planner import BYTES_PER_MIB
from benchmarks._openb_trace import MILLI_PER_GPU, MOST_BOARDS, FloatArray, IntArray
from benchmarks._power_cluster import SERVES, TRAINS, TYPES, Cluster, Task, gpus, profile_of
from capacity.catalogue.pod_works import PodWorks
from scheduler_plugin.documents.snapshot import Node, Pod, PowerDomain, Snapshot
from scheduler_plugin.kube_objects.cap_offers import caps_on_offer
from scheduler_plugin.kube_objects.peak_coincidence import BoardDraw, DrawSum, coincidence
from scheduler_plugin.kube_objects.power_view import ModelWatts
from scheduler_plugin.kube_objects.work_draw import WorkDraws
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import compile_problem

ARMS: Final = ("blind", "tdp", "peak", "ours")
OVERSHOOT: Final = 1.05
"""What a board draws over its cap at most: promise I1."""


class Placed(NamedTuple):
    """A task on a node, with the cap of its boards."""

    task: Task
    node: int
    cap_watts: float


class Asked(NamedTuple):
    """Of one kind of work: its part of all GPUs asked for, and boards of a board's task."""

    share: float
    boards: float


Kinds = Mapping[tuple[str, bool], Asked]
"""By work, and whether tasks have boards of their own: only those are capped."""


def placed_by(
    arm: str, made: Cluster, limits: Mapping[str, IntArray], tasks: Sequence[Task]
) -> list[Placed]:
    """Tasks in the order in which they come, each where the planner puts it or dropped."""
    snapshot = _snapshot(arm, made, limits, tasks)
    problem = compile_problem(snapshot, caps=True)
    class_of = {int(uid): c for c, group in enumerate(problem.classes) for uid in group.uids}
    packing = Packing(problem)
    sums = _Sums(snapshot, packing) if arm == "ours" else None
    found: list[Placed] = []
    for number, task in enumerate(tasks):
        mark = packing.mark()
        packing.place(class_of[number], 1)
        for class_index, node, _ in packing.booked_since(mark):
            cap = 0 if problem.caps is None else int(problem.caps[class_index, node])
            placed = Placed(task, node, float(cap or TYPES[made.nodes[node].model][1]))
            found.append(placed)
            if sums is not None:
                sums.add(made, placed)
    return found


class _Sums:
    """What runs below racks and rows counts by the 99th percentile of its sum, from task to task.

    As ``placement.peaks: p99`` counts it from cycle to cycle; who comes counts by a 95th.
    """

    def __init__(self, snapshot: Snapshot, packing: Packing) -> None:
        self._packing = packing
        self._sums = [DrawSum() for _ in snapshot.domains]
        self._rooms = [d.limit_watts - d.used_watts for d in snapshot.domains]
        self._is_node = [d.name.startswith("node-") for d in snapshot.domains]

    def add(self, made: Cluster, placed: Placed) -> None:
        """Tell the packing what a task left."""
        draw = _draw(made.nodes[placed.node].model, placed.task.work, placed.cap_watts)
        size = gpus(placed.task)
        if not placed.task.kind.boards:
            return
        for domain in self._packing.problem.path[placed.node].tolist():
            if domain == len(self._rooms) or self._is_node[domain]:
                continue
            self._sums[domain].add(size * draw.p95_watts, size * draw.spread_watts)
            room = self._rooms[domain] - math.ceil(self._sums[domain].p99_watts())
            self._packing.headroom[domain] = max(0, room)


def _snapshot(
    arm: str,
    made: Cluster,
    limits: Mapping[str, IntArray],
    tasks: Sequence[Task],
) -> Snapshot:
    """Nodes below their own budgets, racks and rows; hosts and idle boards are used already."""
    by_class = arm in ("peak", "ours")
    above = [f"node-{i}" if arm != "blind" else "" for i in range(len(made.nodes))]
    models = {model: _model_watts(model) for model in TYPES}
    nodes = tuple(
        Node(
            name=f"{i:05d}",
            gpu_model=node.model,
            gpu_milli=node.boards * MILLI_PER_GPU,
            milli_cpu=node.milli_cpu,
            memory_bytes=node.memory_mib * BYTES_PER_MIB,
            pods=1001,
            domain=above[i],
            watts_per_gpu=0 if arm == "blind" else _limit_above_idle(node.model),
            class_watts_per_gpu=_class_watts(models[node.model]) if by_class else {},
            caps_held=arm == "ours",
        )
        for i, node in enumerate(made.nodes)
    )
    pods = tuple(
        Pod(
            uid=f"{number:05d}",
            gpu_milli=task.kind.gpu_milli,
            milli_cpu=task.kind.milli_cpu,
            memory_bytes=task.kind.memory_mib * BYTES_PER_MIB,
            gpu_models=task.kind.models,
            kernel_class=task.work if task.kind.boards else "",
        )
        for number, task in enumerate(tasks)
    )
    return Snapshot(
        nodes=nodes,
        pods=pods,
        domains=() if arm == "blind" else _domains(arm, made, limits, tasks),
        cap_options=caps_on_offer(nodes, pods, models.values(), WorkDraws(PodWorks(), [])),
    )


def _limit_above_idle(model: str) -> int:
    _, limit, idle = TYPES[model]
    return math.ceil(limit - idle)


def _model_watts(model: str) -> ModelWatts:
    profile, limit = profile_of(model), TYPES[model][1]
    p95 = {work: profile.kernel_classes[work].power_p95_watts for work in (SERVES, TRAINS)}
    return ModelWatts(model, profile.idle_watts, OVERSHOOT * limit, p95, profile)


def _class_watts(model: ModelWatts) -> dict[str, int]:
    return model.added(model.class_watts, efficiency=1.0)


def _domains(
    arm: str,
    made: Cluster,
    limits: Mapping[str, IntArray],
    tasks: Sequence[Task],
) -> tuple[PowerDomain, ...]:
    parents = {
        "node": [f"rack-{rack}" for rack in made.rack],
        "rack": [f"row-{row}" for row in _row_of_rack(made)],
        "row": [""] * len(limits["row"]),
    }
    numbers = {"node": np.arange(len(made.nodes)), "rack": made.rack, "row": made.row}
    demand = _demand(tasks)
    found = []
    for level, watts in limits.items():
        base = np.bincount(numbers[level], made.base_watts).astype(np.int64)
        for number, (limit, used) in enumerate(zip(watts.tolist(), base.tolist(), strict=True)):
            room = max(0, limit - used)
            if arm == "ours" and level == "node":
                draws = _draws(made, number, demand)
                room = int(room / max(coincidence(mix, room) for mix in _alone(draws)))
            found.append(
                PowerDomain(
                    name=f"{level}-{number}",
                    parent=parents[level][number],
                    limit_watts=used + room,
                    used_watts=used,
                )
            )
    return tuple(found)


def _alone(draws: Sequence[BoardDraw]) -> list[list[BoardDraw]]:
    """Of a node anything may fill all boards, also one task: the worst kind alone counts."""
    return [
        [replace(draw, share=1.0, boards=MOST_BOARDS if draw.boards >= 1.0 else 1.0)]
        for draw in draws
        if draw.share
    ]


def _row_of_rack(made: Cluster) -> list[int]:
    racks = dict(zip(made.rack.tolist(), made.row.tolist(), strict=True))
    return [racks[rack] for rack in range(len(racks))]


def _draws(made: Cluster, node: int, demand: Kinds) -> list[BoardDraw]:
    """What may run on a node's boards, without caps: what a cap cuts varies less."""
    model = made.nodes[node].model
    return [
        replace(_draw(model, work, TYPES[model][1]), share=asked.share, boards=asked.boards)
        for (work, _), asked in demand.items()
    ]


def _draw(model: str, work: str, cap_watts: float) -> BoardDraw:
    """Of a board above idle."""
    kernel, idle = profile_of(model).kernel_classes[work], TYPES[model][2]
    p95 = min(kernel.power_p95_watts, OVERSHOOT * cap_watts) - idle
    return BoardDraw(min(kernel.power_p50_watts - idle, p95), p95)


def _demand(tasks: Sequence[Task]) -> Kinds:
    total = sum(gpus(task) for task in tasks)
    found = {}
    for work in (SERVES, TRAINS):
        for own_boards in (True, False):
            sizes = [
                gpus(task)
                for task in tasks
                if task.work == work and own_boards == (gpus(task) >= 1.0)
            ]
            asked = max(1e-9, sum(sizes))
            boards = max(1e-9, sum(size**2 for size in sizes) / asked)
            found[work, own_boards] = Asked(sum(sizes) / total, boards)
    return found


# -- caps for a placement that knew no watts -------------------------------------------------------

FRACTIONS: Final = np.arange(1.0, 0.49, -0.05)
"""Caps tried, over the default limit; none is below the knee, the floor that the product has."""


def capped_blindly(
    made: Cluster, limits: Mapping[str, IntArray], placed: Sequence[Placed]
) -> list[Placed]:
    """Each domain lowers all caps below it alike until its 99th percentile holds.

    By the same rule for sums as ours, with the draws of each task; where even the lowest cap does
    not suffice it stays, and the judge tells.
    """
    node = np.array([p.node for p in placed], dtype=np.int64)
    numbers = {"node": node, "rack": made.rack[node], "row": made.row[node]}
    base = {"node": np.arange(len(made.nodes)), "rack": made.rack, "row": made.row}
    best = np.zeros(len(placed), dtype=np.int64)
    means, spreads, alone = _tables(made, placed)
    for level, number in numbers.items():
        used = np.bincount(base[level], made.base_watts)
        count = len(limits[level])
        fits = np.zeros((len(FRACTIONS), count), dtype=bool)
        for f in range(len(FRACTIONS)):
            mean = np.bincount(number, means[f], count)
            spread = np.bincount(number, spreads[f], count)
            own = np.bincount(number, alone[f], count)
            fits[f] = used + mean + 2.3263 * np.sqrt(0.6 * own + 0.4 * spread**2) <= limits[level]
        first = np.where(fits.any(axis=0), fits.argmax(axis=0), len(FRACTIONS) - 1)
        best = np.maximum(best, first[number])
    return [
        p._replace(cap_watts=float(_caps(made.nodes[p.node].model)[f]))
        for p, f in zip(placed, best.tolist(), strict=True)
    ]


def _caps(model: str) -> FloatArray:
    """Watts of a board at each fraction."""
    profile = profile_of(model)
    caps: FloatArray = np.maximum(FRACTIONS * profile.default_limit_watts, profile.knee_watts)
    return caps


def _tables(made: Cluster, placed: Sequence[Placed]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, spread and variance of each task at each cap, (fractions, tasks)."""
    of_kind: dict[tuple[str, str], FloatArray] = {}
    for model in TYPES:
        profile = profile_of(model)
        for work in (SERVES, TRAINS):
            kernel = profile.kernel_classes[work]
            caps = _caps(model)
            p95 = np.minimum(kernel.power_p95_watts, OVERSHOOT * caps)
            draw = np.interp(caps / profile.default_limit_watts, kernel.cap_fractions, kernel.draw)
            mean = np.minimum(kernel.power_p50_watts * draw, p95)
            spread = (p95 - mean) / 1.6449
            of_kind[model, work] = np.array([np.maximum(0.0, mean - profile.idle_watts), spread])
    keys = [(made.nodes[p.node].model, p.task.work) for p in placed]
    sizes = np.array([gpus(p.task) for p in placed])
    both = np.array([of_kind[key] for key in keys]) * sizes[:, None, None]
    means, spreads = both[:, 0].T, both[:, 1].T
    return means, spreads, spreads**2
