"""The smallest set of changes that lets a waiting pod in, and the one that asks least of others.

In this order: changes of the pod's own request, of nodes, of power limits, moves of running pods,
evictions, capacity that is free once something ends, more nodes (``plan_changes.RANKS``). Of two
sets the one whose worst change asks less is told; of those with moves the one of fewer GPU seconds.
With all that is told the pod has a place, without any one part it has none: moves, evictions, room
and whatever a gang needs are tried; one pod's node that asks least leaves nothing to leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from scheduler_plugin.documents.plan_changes import (
    RANKS,
    Change,
    FreeOnNode,
    LowerGuarantees,
    RaiseLimit,
    RaiseQuota,
)
from scheduler_plugin.explain.room_by_moves import Leavers
from scheduler_plugin.explain.slower_neighbours import slower
from scheduler_plugin.explain.static_needs import of_the_node
from scheduler_plugin.explain.trial import Costs, Part, Trial
from scheduler_plugin.packing.problem import Assignment, IntArray
from scheduler_plugin.room.resource_columns import GPUS, MEMORY, MILLI_CPU, PODS

__all__ = ["OutOfTime", "Remedies", "merged"]

Wanted = Sequence[tuple[int, int]]
"""Pods that shall all have a place: class and count."""

OutOfTime = Callable[[], bool]

_AMOUNTS: Final = ("gpus", "milli_cpu", "memory_bytes", "pods")


class Remedies:
    """Looks for sets of changes on one trial.

    Args:
        trial: As the plan leaves it.
        out_of_time: Whether to stop: then no set is told.
    """

    def __init__(self, trial: Trial, out_of_time: OutOfTime) -> None:
        self._trial = trial
        self._leavers = Leavers(trial)
        self._out_of_time = out_of_time
        self._gone: frozenset[str] = frozenset()
        self._wanted: Wanted = ()
        self._before: Assignment = {}

    def smallest(self, wanted: Wanted) -> list[Part] | None:
        """A set without which, or without any part of which, not all of the pods have a place.

        Returns:
            None where nothing that we know lets them in; [] where they have a place as it is.

        Raises:
            TimeoutError: when time was over before it was found.
        """
        trial, mark = self._trial, self._trial.mark()
        try:
            parts = self._enough(wanted)
            rules = [] if trial.requests_stay else trial.peer_rules([c for c, _ in wanted])
            if parts is None and rules:
                # Who was placed first may keep the others out: without rules nobody does.
                trial.undo_to(mark)
                trial.make_all(rules)
                rest = self._enough(wanted)
                parts = None if rest is None else rules + rest
        finally:
            trial.undo_to(mark)
        return None if parts is None else self._needed(wanted, merged(parts))

    def _enough(self, wanted: Wanted) -> list[Part] | None:
        """Step by step, each letting in at least one more pod; the trial is left as it becomes."""
        trial, parts = self._trial, list[Part]()
        self._gone, self._wanted = frozenset(), wanted
        self._before = {} if _is_one_pod(wanted) else dict(trial.packing.assignment)
        if _is_one_pod(wanted):
            return self._step(wanted[0][0], 1)
        left = {c: count - trial.place(c, count) for c, count in wanted}
        while waiting := [c for c, count in left.items() if count]:
            if self._out_of_time():
                raise TimeoutError
            step = self._step(waiting[0], left[waiting[0]])
            if not step:
                return None
            trial.make_all(step)
            parts += step
            self._gone |= {
                uid for part in step if (uid := getattr(part.change, "uid", None)) is not None
            }
            before = sum(left.values())
            for c in waiting:
                left[c] -= trial.place(c, left[c])
            if sum(left.values()) == before:
                return None
        return parts

    def _step(self, class_index: int, count: int) -> list[Part] | None:
        """What lets at least one more pod of a class in, at most a count; None if nothing does."""
        trial = self._trial
        costs = trial.costs(class_index)
        fits = trial.fits(class_index, count, ~costs.closed)
        roomy = np.flatnonzero(fits)
        if len(roomy):
            node = self._least(costs, roomy, fits[roomy])
            return self._beside_room(class_index, node, int(fits[node]))
        if self._leavers:
            moves = self._leavers.room_for(class_index, costs, self._gone)
            if moves:
                # Who is evicted gives back what a quota counted.
                mark = trial.mark()
                trial.make_all(moves)
                beside = self._beside_room(class_index, moves[0].node, 1)
                trial.undo_to(mark)
                return [*moves, *beside]
        borne = slower(trial, class_index, costs)
        if borne is not None:
            return [borne, *self._beside_room(class_index, borne.node, 1)]
        return self._freed(class_index, count, costs) or None

    def _least(self, costs: Costs, nodes: np.ndarray, fits: np.ndarray) -> int:
        """The node that asks least; of equals the one whose request opens most room."""
        watts, node, request = costs.watts[nodes], costs.node[nodes], costs.request[nodes]
        return int(nodes[np.lexsort((-fits, request, node, watts))[0]])

    def _beside_room(self, class_index: int, node: int, count: int) -> list[Part]:
        """Everything but room that a node asks for before it takes pods."""
        trial, problem = self._trial, self._trial.problem
        found: list[Change] = [*trial.missing(class_index, node)]
        if trial.asks_of_node(class_index, node):
            found += of_the_node(problem.snapshot.nodes[node])
        found += trial.raised_quotas([(class_index, count)])
        watts = int(problem.watts[class_index, node])
        headroom = problem.headroom_for(class_index, trial.headroom)
        for d in trial.above(node):
            name = problem.snapshot.domains[d].name
            if watts > max(0, int(headroom[d])):
                found.append(RaiseLimit(domain=name, watts=watts * count - int(headroom[d])))
            if (margin := trial.margin(d)) < 0:
                found.append(LowerGuarantees(domain=name, watts=-margin))
        return [Part(change, class_index) for change in found]

    def _freed(self, class_index: int, count: int, costs: Costs) -> list[Part]:
        """Room on the node that lacks least, for as many pods as begin to lack everything there."""
        trial, problem = self._trial, self._trial.problem
        room_when_free = self._could_be_free(class_index, count, costs)
        able = np.flatnonzero(room_when_free)
        if not len(able):
            return []
        request = problem.requests[class_index]
        lacking = np.maximum(request - np.maximum(trial.packing.free[able], 0), 0)
        parts = (lacking / np.maximum(request, 1)).sum(axis=1)
        beside = (costs.request[able], costs.node[able], costs.watts[able])
        best = int(np.lexsort((*beside, parts, lacking[:, GPUS]))[0])
        node = int(able[best])
        most = int(room_when_free[node])
        pods = most if (lacking[best] == request).all() else 1
        change = self._free_on_node(class_index, node, pods)
        return [
            Part(change, class_index, node, count=pods),
            *self._beside_room(class_index, node, pods),
        ]

    def _free_on_node(self, class_index: int, node: int, pods: int) -> FreeOnNode:
        """What the node lacks so that it has room for so many pods."""
        trial, problem = self._trial, self._trial.problem
        request, demand = problem.requests[class_index], problem.demands[class_index]
        lacking = np.maximum(request * pods - np.maximum(trial.packing.free[node], 0), 0)
        names = enumerate(problem.columns)
        resources = {name: int(lacking[r]) for r, name in names if r > PODS and lacking[r]}
        return FreeOnNode(
            node=problem.node_names[node],
            gpus=trial.packing.states.boards_lacking(demand, node, pods),
            milli_cpu=int(lacking[MILLI_CPU]),
            memory_bytes=int(lacking[MEMORY]),
            pods=int(lacking[PODS]),
            resources=resources,
        )

    def _could_be_free(self, class_index: int, count: int, costs: Costs) -> IntArray:
        """How many pods each node would take if only who this set lets in ran there, (n,)."""
        problem = self._trial.problem
        room = self._trial.empty_room(class_index, count, self._let_in())
        room[costs.closed] = 0
        rule = problem.neighbours
        if rule is not None and problem.sharers[class_index] is not None:
            # What neighbours bear is no amount that could be free.
            room[[n for n in range(len(room)) if rule.is_limited(n)]] = 0
        return room

    def _let_in(self) -> dict[tuple[int, int], int]:
        """Pods that the set so far has let in, by class and node."""
        if _is_one_pod(self._wanted):
            return {}
        now, before = self._trial.packing.assignment, self._before
        classes = {c for c, _ in self._wanted}
        there = {key: k - before.get(key, 0) for key, k in now.items() if key[0] in classes}
        return {key: more for key, more in there.items() if more > 0}

    def _needed(self, wanted: Wanted, parts: list[Part]) -> list[Part] | None:
        """Without every part that is of no use beside the others; None if even all do not do."""
        if _is_one_pod(wanted) and all(
            RANKS[part.change.kind] < RANKS["move_pod"] for part in parts
        ):
            # Of one pod's nodes the one that asks least was chosen: less than that is not enough.
            return parts
        if not self._trial.admits(wanted, parts):
            return None
        for part in sorted(parts, key=_asks_most_first):
            if self._out_of_time():
                raise TimeoutError
            others = [other for other in parts if other is not part]
            if self._trial.admits(wanted, others):
                parts = others
        return parts


def _is_one_pod(wanted: Wanted) -> bool:
    return len(wanted) == 1 and wanted[0][1] == 1


def _asks_most_first(part: Part) -> tuple[int, int]:
    return (-RANKS[part.change.kind], -getattr(part.change, "gpu_seconds", 0))


def merged(parts: Iterable[Part]) -> list[Part]:
    """Raises of one domain or quota as one raise, room for one class on one node as one room."""
    found: dict[object, Part] = {}
    for part in parts:
        change, key = part.change, object()
        if isinstance(change, RaiseLimit):
            key = ("raise", change.domain)
        elif isinstance(change, RaiseQuota):
            key = ("quota", change.quota, change.resource)
        elif isinstance(change, FreeOnNode):
            key = ("free", part.class_index, part.node)
        found[key] = _added(found[key], part) if key in found else part
    return list(found.values())


def _added(one: Part, other: Part) -> Part:
    if isinstance(one.change, RaiseLimit) and isinstance(other.change, RaiseLimit):
        watts = one.change.watts + other.change.watts
        return Part(one.change.model_copy(update={"watts": watts}))
    if isinstance(one.change, RaiseQuota) and isinstance(other.change, RaiseQuota):
        amount = one.change.amount + other.change.amount
        return Part(one.change.model_copy(update={"amount": amount}))
    assert isinstance(one.change, FreeOnNode)
    assert isinstance(other.change, FreeOnNode)
    a, b = one.change, other.change
    names = sorted({*a.resources, *b.resources})
    resources = {n: a.resources.get(n, 0) + b.resources.get(n, 0) for n in names}
    sums = {f: getattr(a, f) + getattr(b, f) for f in _AMOUNTS}
    change = a.model_copy(update=sums | {"resources": resources})
    return Part(change, one.class_index, one.node, count=one.count + other.count)
