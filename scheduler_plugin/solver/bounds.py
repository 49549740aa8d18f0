"""How much any plan could place: a relaxation per stage that ignores how pods share a node.

Stages are the objective's: of each tier the pods with GPUs, then those without. A bound on both
together would call a plan proved that places pods without GPUs instead of GPUs.

For the pods of a stage and all stages before it: a pod that fits no node alone counts nothing; a
node gives at most the GPUs that its CPU, memory and pod count allow and that whole pods can use;
a power domain passes at most what its headroom pays for with the cheapest watts below it; a quota
lets in at most what it leaves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import IntArray, Problem
from scheduler_plugin.room.resource_columns import GPUS, MILLI_CPU
from scheduler_plugin.solver.pattern_bound import Asked, Room, pattern_bound
from scheduler_plugin.solver.quota_bound import quota_bound


def cumulative_bounds(problem: Problem) -> tuple[int, ...]:
    """Upper bound on the value placed in each stage and those before it together."""
    packing = Packing(problem, peers=False)
    fits = np.zeros((len(problem.classes), len(problem.node_names)), dtype=np.int64)
    for class_index in range(len(problem.classes)):
        fits[class_index] = packing.capacity(class_index)
    # What runs may stay, even where a node holds more than it offers.
    for key, count in problem.start.items():
        fits[key] = max(fits[key], count)
    possible = _possible_counts(packing, fits)
    bounds: list[int] = []
    members: list[int] = []
    for stage in problem.value_stages:
        if bounds and not stage:
            bounds.append(bounds[-1])
            continue
        members += [c for c in stage if possible[c]]
        with_gpus = [c for c in members if problem.gpu_milli[c]]
        without = [c for c in members if not problem.gpu_milli[c]]
        most = _gpu_bound(packing, fits, possible, with_gpus)
        most += _host_bound(problem, fits, possible, without) * MILLI_PER_GPU
        bounds.append(min(most, quota_bound(packing, possible.tolist(), members)))
    return tuple(bounds)


def tightened(
    problem: Problem, bounds: tuple[int, ...], is_over: Callable[[], bool]
) -> tuple[int, ...]:
    """Bounds no higher than what all resources together allow, by a linear program a stage.

    Args:
        problem: What is packed.
        bounds: By stage and those before it together.
        is_over: Stages that have not begun keep their bounds.
    """
    values = np.array([pod_class.value for pod_class in problem.classes], dtype=np.int64)
    others = [r for r in _bounding(problem) if problem.requests[:, r].any()]
    board_milli = _board_milli(problem)
    if board_milli is None or _is_overbooked(problem):
        return bounds
    eligible = problem.eligible.copy()
    for c, node in problem.start:
        eligible[c, node] = True
    found = list(bounds)
    some = np.zeros(len(values), dtype=np.bool_)
    for number, stage in enumerate(problem.value_stages):
        if not stage:
            found[number] = found[number - 1] if number else 0
            continue
        if is_over():
            break
        some[list(stage)] = True
        asked = Asked(
            problem.requests[some][:, others],
            problem.requests[some, GPUS],
            np.array([d.share_milli for d in problem.demands], dtype=np.int64)[some],
            problem.counts[some],
            values[some],
        )
        room = Room(problem.free[:, others], board_milli, eligible[some])
        most = pattern_bound(asked, room, is_over)
        if math.isfinite(most):
            unit = int(np.gcd.reduce(values[some]))
            found[number] = min(found[number], math.floor((most + 1e-6) / unit) * unit)
    return tuple(found)


def _board_milli(problem: Problem) -> IntArray | None:
    """What is left of each board, (n, b); None where pods that may move are on parts of boards."""
    if problem.boards is None:
        most = int(problem.free[:, GPUS].max(initial=0))
        whole: IntArray = (np.arange(most) < problem.free[:, [GPUS]]) * MILLI_PER_GPU
        return whole
    if any(problem.gpu_milli[c] % MILLI_PER_GPU for c, _ in problem.start):
        return None
    # Boards that are cut hold MIG instances only, which have no row in the program.
    left: IntArray = np.clip(problem.boards, 0, MILLI_PER_GPU)
    return left


def _is_overbooked(problem: Problem) -> bool:
    """A node holds more than it offers: what runs there may stay, which no row says."""
    used = np.zeros_like(problem.free)
    for (c, node), count in problem.start.items():
        used[node] += problem.requests[c] * count
    return bool((used > problem.free).any())


def _possible_counts(packing: Packing, fits: IntArray) -> IntArray:
    """How many pods of each class could be placed if the class were alone, gangs whole."""
    problem = packing.problem
    possible: IntArray = np.minimum(problem.counts, fits.sum(axis=1))
    for c in range(len(possible) if problem.quotas.rows else 0):
        possible[c] = packing.within_quotas(c, int(possible[c]))
    for job in problem.jobs:
        members = list(job.classes)
        if job.gang and bool((possible[members] < problem.counts[members]).any()):
            possible[members] = 0
    return possible


def _gpu_bound(packing: Packing, fits: IntArray, possible: IntArray, members: list[int]) -> int:
    """Bound in milliGPU for classes that ask for GPUs or a share of one."""
    if not members:
        return 0
    problem = packing.problem
    usable = np.zeros(len(problem.node_names), dtype=np.int64)
    cheapest = np.full(len(usable), np.inf)
    for pattern, group in _nodes_by_fitting_classes(fits[members] > 0):
        if pattern.any():
            fitting = [members[i] for i in np.flatnonzero(pattern)]
            usable[group] = _node_gpu_milli(packing, fitting, group)
            per_milli = problem.watts[fitting][:, group] / problem.gpu_milli[fitting][:, None]
            cheapest[group] = per_milli.min(axis=0)
    held = np.zeros_like(usable)
    for (c, node), count in problem.start.items():
        held[node] += count * problem.gpu_milli[c] * (c in members)
    np.maximum(usable, held, out=usable)
    by_nodes: dict[bytes, int] = defaultdict(int)
    reach: dict[bytes, int] = {}
    for c in members:
        mask = fits[c] > 0
        key = mask.tobytes()
        by_nodes[key] += int(possible[c] * problem.gpu_milli[c])
        reach[key] = int(usable[mask].sum())
    demand_side = sum(min(demand, reach[key]) for key, demand in by_nodes.items())
    # What runs and stays takes nothing from what the domains have left.
    running = sum(problem.classes[c].value * len(problem.classes[c].running) for c in members)
    headroom = problem.headroom.astype(np.float64)
    if problem.spared is not None:
        headroom[problem.spared[members].any(axis=0)] = np.inf
    return min(demand_side, _power_bound(problem, headroom, usable, cheapest) + running)


def _nodes_by_fitting_classes(fit: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Distinct columns of a (classes, nodes) mask, each with its nodes."""
    columns: dict[bytes, list[int]] = defaultdict(list)
    packed = np.packbits(fit, axis=0)
    for node in range(fit.shape[1]):
        columns[packed[:, node].tobytes()].append(node)
    return [(fit[:, nodes[0]], np.array(nodes)) for nodes in columns.values()]


def _node_gpu_milli(packing: Packing, fitting: list[int], nodes: np.ndarray) -> IntArray:
    """MilliGPU that these classes can use on each node, by the kindest ratio of each resource."""
    problem = packing.problem
    requests, asked = problem.requests[fitting], problem.gpu_milli[fitting]
    free = problem.free[nodes]
    step = math.gcd(*(int(milli) for milli in asked))
    shared = bool((asked < MILLI_PER_GPU).any())
    left = packing.states.gpu_milli(nodes) if shared else packing.free[nodes, GPUS] * MILLI_PER_GPU
    usable: IntArray = left
    for resource in _bounding(problem):
        least = int(np.argmin(requests[:, resource] / asked))
        amount, per = int(requests[least, resource]), int(asked[least])
        if amount:
            # Bytes times milliGPU leave 64 bits; rounding may only raise a bound.
            most = np.floor(free[:, resource] * (per / amount) * (1 + 1e-12))
            usable = np.minimum(usable, most.astype(np.int64))
    rounded: IntArray = usable // step * step
    return rounded


def _bounding(problem: Problem) -> list[int]:
    """Columns that every plan keeps; shares of boards give way where pairs were measured."""
    given_way = problem.share_columns if problem.neighbours is not None else ()
    return [r for r in range(MILLI_CPU, len(problem.columns)) if r not in given_way]


def _power_bound(problem: Problem, left: np.ndarray, usable: IntArray, cheapest: np.ndarray) -> int:
    """MilliGPU that the power tree can feed, cheapest first (exact for the relaxation)."""
    fed = 0.0
    unlimited = len(left) - 1
    for node in np.argsort(cheapest, kind="stable"):
        gpus, watts = float(usable[node]), float(cheapest[node])
        if not gpus:
            continue
        above = problem.path[node]
        above = above[above < unlimited]
        if watts > 0 and len(above):
            gpus = min(gpus, max(0.0, float(left[above].min())) / watts)
            left[above] -= gpus * watts
        fed += gpus
    return math.floor(fed + 1e-6)


def _host_bound(problem: Problem, fits: IntArray, possible: IntArray, members: list[int]) -> int:
    """Bound in pods for classes without GPUs: a knapsack over all nodes for each resource."""
    if not members:
        return 0
    reachable = (fits[members] > 0).any(axis=0)
    best = int(possible[members].sum())
    for resource in _bounding(problem):
        left = int(problem.free[reachable, resource].sum())
        packed = 0
        for c in sorted(members, key=lambda c: int(problem.requests[c, resource])):
            amount = int(problem.requests[c, resource])
            count = int(possible[c]) if not amount else min(int(possible[c]), left // amount)
            packed += count
            left -= count * amount
        best = min(best, packed)
    return best
