"""Which running pods would leave a node so that a waiting one has room there, and where they go.

A move costs each GPU of the moved pod the mean start of its kind of work and what the stop loses
(``Pod.move_seconds``). Who finds no place elsewhere may lose its own to a more important pod.
Newly placed pods stay, and so do members of gangs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler_plugin.documents.plan_changes import EvictPod, MovePod
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.explain.trial import Costs, Part, Trial
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import Assignment, BoolArray, IntArray
from scheduler_plugin.room.board_states import Boards
from scheduler_plugin.room.node_states import NodeStates
from scheduler_plugin.room.resource_columns import GPUS

__all__ = ["Leavers"]

PRICED_NODES: Final = 8
"""Nodes whose cheapest set is looked for, those first where a freed GPU costs least."""

NO_RATE: Final = 2**40
"""Stands for a node that nobody can leave; times GPUs it still adds up."""


class _Leaver(NamedTuple):
    """One running pod that may leave; sorted, the cheapest comes first."""

    rate: int
    price: int
    uid: str
    class_index: int
    node: int
    boards: Boards


class _Tier(NamedTuple):
    """Who may leave for a pod of some priority.

    Attributes:
        cleared: Room once all of them have left.
        rate: GPU seconds of the cheapest GPU of each node, ``NO_RATE`` without any, shape (n,).
        usable: By node, the cheapest first.
    """

    cleared: NodeStates
    rate: IntArray
    usable: dict[int, list[_Leaver]]


class Leavers:
    """Running pods that may leave their nodes.

    Args:
        trial: As the plan leaves it: who has moved in the plan stays.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._problem = problem = trial.problem
        now = trial.packing.assignment
        self._on: dict[int, list[_Leaver]] = defaultdict(list)
        seen: dict[tuple[int, int], int] = defaultdict(int)
        for c, pod_class in enumerate(problem.classes):
            gpus = max(1, -(-pod_class.pod.gpu_milli // MILLI_PER_GPU))
            for price, uid, node in reversed(pod_class.running):
                # The cheapest of a class have left first.
                number = seen[c, node]
                seen[c, node] += 1
                if number < now.get((c, node), 0):
                    homes = problem.homes.get((node, problem.demands[c]), ())
                    boards = homes[number] if homes else ()
                    self._on[node].append(_Leaver(price // gpus, price, uid, c, node, boards))
        for there in self._on.values():
            there.sort()
        self._priority = [pod_class.priority for pod_class in problem.classes]
        self._base = dict(now)
        self._tiers: dict[int, _Tier] = {}
        self._elsewhere_too: dict[int, BoolArray] = {}

    def __bool__(self) -> bool:
        return bool(self._on)

    def room_for(self, class_index: int, costs: Costs, gone: frozenset[str]) -> list[Part]:
        """The cheapest set found that makes room for one more pod on one node; [] if none is.

        Fewest evictions come first, then GPU seconds, then what the node asks for beside room.

        Args:
            class_index: Of the waiting pod.
            costs: Of it.
            gone: Uids of pods that have left already.
        """
        trial = self._trial
        priority = self._priority[class_index]
        tier = self._tier(priority)
        rate, demand = tier.rate, trial.problem.demands[class_index]
        able = tier.cleared.fits(demand, np.where(costs.closed, 0, 1)) > 0
        able &= rate < NO_RATE
        candidates = np.flatnonzero(able)
        if not len(candidates):
            return []
        lacking = self._lacking(class_index, candidates)
        beside = (costs.request, costs.node, costs.watts)
        keys = [each[candidates] for each in beside]
        floor = lacking * rate[candidates]
        order = np.lexsort((*keys, floor))[:PRICED_NODES]
        best: tuple[tuple[int, int], list[Part]] | None = None
        for at in order.tolist():
            if best is not None and best[0] <= (0, int(floor[at])):
                break  # No set on the nodes that are left is cheaper.
            node = int(candidates[at])
            usable = [one for one in tier.usable[node] if one.uid not in gone]
            chosen = self._enough(class_index, node, usable)
            price = sum(one.price for one in chosen)
            if not chosen or (best is not None and best[0] <= (0, price)):
                continue
            parts = self._elsewhere(class_index, node, chosen)
            if parts is None:
                continue
            evicted = sum(isinstance(part.change, EvictPod) for part in parts)
            if best is None or (evicted, price) < best[0]:
                best = ((evicted, price), parts)
        return [] if best is None else best[1]

    def _tier(self, priority: int) -> _Tier:
        if priority not in self._tiers:
            stays, rate = dict(self._base), np.full(len(self._problem.node_names), NO_RATE)
            usable: dict[int, list[_Leaver]] = {}
            for node, there in self._on.items():
                usable[node] = [one for one in there if self._may_leave(one, priority)]
                for one in usable[node]:
                    stays[one.class_index, node] -= 1
                    rate[node] = min(int(rate[node]), one.rate)
            self._tiers[priority] = _Tier(self._room_beside(stays), rate, usable)
        return self._tiers[priority]

    def _may_leave(self, one: _Leaver, priority: int) -> bool:
        """Whether it is not more important, and has another place or is less important."""
        own = self._priority[one.class_index]
        return own < priority or (own == priority and self._goes_elsewhere(one))

    def _goes_elsewhere(self, one: _Leaver) -> bool:
        if one.class_index not in self._elsewhere_too:
            self._elsewhere_too[one.class_index] = self._places(one.class_index)
        places = self._elsewhere_too[one.class_index]
        return int(places.sum()) > int(places[one.node])

    def _room_beside(self, stays: Assignment) -> NodeStates:
        """What nodes have left beside some of those who run there."""
        problem, now = self._problem, self._trial.packing
        kept = {key: count for key, count in stays.items() if count > 0}
        if problem.boards is not None or problem.neighbours is not None:
            return Packing(problem, kept, peers=False).states
        gone = {key: count - kept.get(key, 0) for key, count in self._base.items()}
        freed = [(c, node, count) for (c, node), count in gone.items() if count]
        columns = np.array(freed, dtype=np.int64).reshape(-1, 3)
        free = now.free.copy()
        np.add.at(free, columns[:, 1], problem.requests[columns[:, 0]] * columns[:, 2:])
        return NodeStates(free)

    def _lacking(self, class_index: int, nodes: np.ndarray) -> IntArray:
        """GPUs that each node has too few, one where only something else is missing."""
        wanted = self._trial.problem.requests[class_index, GPUS]
        lacking: IntArray = np.maximum(wanted - self._trial.packing.free[nodes, GPUS], 1)
        return lacking

    def _enough(self, class_index: int, node: int, usable: Sequence[_Leaver]) -> list[_Leaver]:
        """The cheapest first until there is room, then without those that were not needed."""
        trial, only = self._trial, self._only(node)
        mark, chosen = trial.mark(), list[_Leaver]()
        try:
            fits = False
            for one in usable:
                trial.put(one.class_index, node, -1, one.boards)
                chosen.append(one)
                if fits := bool(trial.fits(class_index, 1, only)[node]):
                    break
            if not fits:
                return []
            for one in sorted(chosen[:-1], key=lambda one: -one.price):
                back = trial.mark()
                trial.put(one.class_index, node, 1, one.boards)
                if trial.fits(class_index, 1, only)[node]:
                    chosen.remove(one)
                else:
                    trial.undo_to(back)
            return chosen
        finally:
            trial.undo_to(mark)

    def _only(self, node: int) -> BoolArray:
        among = np.zeros(len(self._trial.problem.node_names), dtype=np.bool_)
        among[node] = True
        return among

    def _elsewhere(
        self, class_index: int, node: int, chosen: Sequence[_Leaver]
    ) -> list[Part] | None:
        """A place for each of them beside the waiting pod, or an eviction; None if neither is."""
        trial, problem = self._trial, self._trial.problem
        mark, parts = trial.mark(), list[Part]()
        try:
            for one in chosen:
                trial.put(one.class_index, node, -1, one.boards)
            trial.put(class_index, node, 1)
            for one in sorted(
                chosen, key=lambda o: (-problem.requests[o.class_index, GPUS], o.uid)
            ):
                target = self._target(one)
                if target < 0 and self._priority[one.class_index] >= self._priority[class_index]:
                    return None
                if target >= 0:
                    trial.put(one.class_index, target, 1)
                parts.append(self._part(one, target))
            return parts
        finally:
            trial.undo_to(mark)

    def _target(self, one: _Leaver) -> int:
        """Where it could go, with the fewest boards left; -1 for nowhere."""
        places = self._places(one.class_index)
        places[one.node] = False
        nodes = np.flatnonzero(places)
        left = self._trial.packing.free[nodes, GPUS]
        return int(nodes[left.argmin()]) if len(nodes) else -1

    def _places(self, class_index: int) -> BoolArray:
        """Nodes that have room and power for one more pod of a class now, shape (n,)."""
        trial, problem = self._trial, self._problem
        places: BoolArray = trial.fits(class_index, 1, problem.eligible[class_index]) > 0
        watts = problem.watts[class_index]
        if watts.any():
            places &= (watts == 0) | (problem.least_above(class_index, trial.headroom) >= watts)
        return places

    def _part(self, one: _Leaver, target: int) -> Part:
        names = self._trial.problem.node_names
        price = self._trial.problem.classes[one.class_index].pod
        seconds = one.price if price.gpu_milli else 0
        if target < 0:
            evicted = EvictPod(
                uid=one.uid,
                node=names[one.node],
                priority=self._priority[one.class_index],
                gpu_seconds=seconds,
            )
            return Part(evicted, one.class_index, one.node, boards=one.boards)
        moved = MovePod(
            uid=one.uid, source=names[one.node], target=names[target], gpu_seconds=seconds
        )
        return Part(moved, one.class_index, one.node, target, boards=one.boards)
