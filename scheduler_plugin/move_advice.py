"""Which running pods would have to move so that a waiting one starts, and what that costs.

Nothing here is carried out: placement moves no running pods. A move costs each GPU of the moved pod
the mean start of its kind of work and what the stop loses (``Pod.move_seconds``); the waiting pod
gains a GPU second a GPU for each second that it starts sooner. So moves pay where it would wait
for longer than their price over its own GPUs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler_plugin.domain_rooms import pod_watts
from scheduler_plugin.greedy import Packing
from scheduler_plugin.plan_document import Move, Pending
from scheduler_plugin.problem import Assignment, IntArray, Problem
from scheduler_plugin.resource_columns import GPUS, pod_amounts, row
from scheduler_plugin.snapshot import MILLI_PER_GPU, Pod, PodState
from scheduler_plugin.static_rules import STATIC_RULES

ADVISED: Final = 8
"""Kinds of waiting pods that get advice in one plan, the most important first."""

PRICED_NODES: Final = 64
"""Nodes whose cheapest set is looked for, those first where a freed GPU costs least."""

TRIED_NODES: Final = 8
"""Of them those for whose pods places are looked for, the cheapest set first."""

TRIED_TARGETS: Final = 64
"""Nodes tried for each pod that would move, the fullest first."""


class _Movable(NamedTuple):
    pod: Pod
    node: int
    amounts: IntArray
    price: int


def with_moves(
    problem: Problem,
    assignment: Assignment,
    pending: tuple[Pending, ...],
    late: Callable[[], bool] = lambda: False,
) -> tuple[Pending, ...]:
    """The same entries; the first pod of each kind that moves would serve names them.

    Args:
        problem: What was planned.
        assignment: The plan.
        pending: Its entries.
        late: Whether the time is over.
    """
    if not pending or late():
        return pending
    movable = _movable(problem)
    if not movable:
        return pending
    packing = Packing(problem, assignment)
    entries = {entry.uid: entry for entry in pending}
    classes = [
        (c, uid)
        for job in sorted(problem.jobs, key=lambda job: -job.priority)
        if not job.gang
        for c in job.classes
        if (uid := next((u for u in problem.classes[c].uids if u in entries), ""))
        and problem.requests[c, GPUS]
    ]
    for c, uid in classes[:ADVISED]:
        if late():
            break
        moves = _cheapest(packing, c, movable)
        if moves:
            price = sum(move.gpu_seconds for move in moves)
            after = math.ceil(price / int(problem.requests[c, GPUS]))
            changes = {"moves": moves, "pays_after_seconds": after}
            entries[uid] = entries[uid].model_copy(update=changes)
    return tuple(entries[entry.uid] for entry in pending)


def _movable(problem: Problem) -> dict[int, list[_Movable]]:
    """Pods that could go elsewhere, by node, the cheapest first."""
    index = {name: i for i, name in enumerate(problem.node_names)}
    columns = set(problem.columns)
    found: dict[int, list[_Movable]] = defaultdict(list)
    for pod in problem.snapshot.pods:
        if pod.state is not PodState.BOUND or pod.move_seconds is None or pod.gang:
            continue
        node, gpus = index.get(pod.node), pod.gpu_milli // MILLI_PER_GPU
        # What no waiting pod asks for has no column: nobody knows here where it is free.
        known = pod.resources.keys() <= columns
        if node is not None and gpus and known:
            amounts = np.array(row(pod_amounts(pod), problem.columns), dtype=np.int64)
            found[node].append(_Movable(pod, node, amounts, gpus * pod.move_seconds))
    for pods in found.values():
        pods.sort(key=lambda m: (m.pod.move_seconds, m.price, m.pod.uid))
    return found


def _cheapest(
    packing: Packing, class_index: int, movable: dict[int, list[_Movable]]
) -> tuple[Move, ...]:
    """Of the nodes with the cheapest prices, the cheapest set of moves that works; () if none."""
    problem = packing.problem
    request, priority = problem.requests[class_index], problem.classes[class_index].priority
    # What moves away may have drawn nothing yet: its watts are no room.
    fed = problem.watts[class_index] <= packing.headroom[problem.path].min(axis=1)
    usable = problem.eligible[class_index] & fed
    lacking = request[GPUS] - packing.free[:, GPUS]
    # No set on a node is cheaper than all that it lacks at its cheapest rate.
    floors = sorted(
        (int(lacking[node]) * (there[0].pod.move_seconds or 0), node)
        for node, there in movable.items()
        if usable[node]
    )
    candidates: list[tuple[int, int, list[_Movable]]] = []
    for _, node in floors[:PRICED_NODES]:
        chosen = _enough(packing.free[node], request, movable[node], priority)
        if chosen:
            candidates.append((sum(m.price for m in chosen), node, chosen))
    candidates.sort(key=lambda each: each[:2])
    for _, node, chosen in candidates[:TRIED_NODES]:
        moves = _elsewhere(packing, class_index, node, chosen)
        if moves:
            return moves
    return ()


def _enough(
    free: IntArray, request: IntArray, there: Sequence[_Movable], priority: int
) -> list[_Movable]:
    """The cheapest first until there is room, then without those that were not needed."""
    chosen: list[_Movable] = []
    room = free.copy()
    for each in there:
        if (room >= request).all():
            break
        if each.pod.priority <= priority:
            chosen.append(each)
            room = room + each.amounts
    if not (room >= request).all():
        return []
    for each in sorted(chosen, key=lambda m: -m.price):
        if (room - each.amounts >= request).all():
            chosen.remove(each)
            room = room - each.amounts
    return chosen


def _elsewhere(
    packing: Packing, class_index: int, node: int, chosen: Sequence[_Movable]
) -> tuple[Move, ...]:
    """A place for each of them beside the waiting pod; () if one finds none."""
    problem = packing.problem
    free, headroom = packing.free.copy(), packing.headroom.copy()
    _draw(problem, headroom, node, int(problem.watts[class_index, node]))
    moves: list[Move] = []
    for each in sorted(chosen, key=lambda m: (-int(m.amounts[GPUS]), m.pod.uid)):
        fits = (free >= each.amounts).all(axis=1) & problem.margin_ok
        fits[node] = False
        targets = np.flatnonzero(fits)
        best_first = targets[np.argsort(free[targets, GPUS], kind="stable")][:TRIED_TARGETS]
        target = next(
            (t for t in best_first.tolist() if _takes(problem, headroom, each.pod, t)), -1
        )
        if target < 0:
            return ()
        free[target] -= each.amounts
        _draw(problem, headroom, target, _watts(problem, each.pod, target))
        moves.append(
            Move(
                uid=each.pod.uid,
                source=problem.node_names[node],
                target=problem.node_names[target],
                gpu_seconds=each.price,
            )
        )
    return tuple(moves)


def _takes(problem: Problem, headroom: IntArray, pod: Pod, node: int) -> bool:
    at = problem.snapshot.nodes[node]
    fed = _watts(problem, pod, node) <= int(headroom[problem.path[node]].min())
    return fed and all(rule.holds(pod, at) for rule in STATIC_RULES)


def _watts(problem: Problem, pod: Pod, node: int) -> int:
    return pod_watts(pod, problem.snapshot.nodes[node])


def _draw(problem: Problem, headroom: IntArray, node: int, watts: int) -> None:
    above = problem.path[node]
    headroom[above[above < len(headroom) - 1]] -= watts


def advice_text(entry: Pending, names: dict[str, str]) -> str:
    """What would let the pod start, for people; empty without moves.

    Args:
        names: What pods are called, by uid.
    """
    if not entry.moves:
        return ""
    moved = ", ".join(f"{names.get(m.uid, m.uid)} to {m.target}" for m in entry.moves)
    price = sum(move.gpu_seconds for move in entry.moves)
    return (
        f"would start on {entry.moves[0].source} if these moved: {moved}; that costs {price:,} GPU "
        f"seconds and pays where it waits for more than {entry.pays_after_seconds:,} s"
    )
