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

from scheduler_plugin.board_shares import Boards
from scheduler_plugin.greedy import Packing
from scheduler_plugin.plan_changes import EvictPod, MovePod
from scheduler_plugin.problem import BoolArray, IntArray
from scheduler_plugin.resource_columns import GPUS
from scheduler_plugin.trial import Costs, Part, Trial

__all__ = ["Leavers"]

PRICED_NODES: Final = 12
"""Nodes whose cheapest set is looked for, those first where a freed GPU costs least."""

TRIED_NODES: Final = 6
"""Of them those for whose pods places are looked for, the cheapest set first."""

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


class Leavers:
    """Running pods that may leave their nodes.

    Args:
        trial: As the plan leaves it: who has moved in the plan stays.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        problem = trial.problem
        now = trial.packing.assignment
        self._on: dict[int, list[_Leaver]] = defaultdict(list)
        seen: dict[tuple[int, int], int] = defaultdict(int)
        for c, pod_class in enumerate(problem.classes):
            gpus = max(1, -(-pod_class.pod.gpu_milli // 1000))
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
        self._tiers: dict[int, tuple[Packing, IntArray]] = {}

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
        cleared, rate = self._tier(priority)
        demand = trial.problem.demands[class_index]
        able = cleared.states.fits(demand, np.where(costs.closed, 0, 1)) > 0
        able &= rate < NO_RATE
        candidates = np.flatnonzero(able)
        if not len(candidates):
            return []
        lacking = self._lacking(class_index, candidates)
        beside = (costs.request, costs.node, costs.watts)
        keys = [each[candidates] for each in beside]
        order = np.lexsort((*keys, lacking * rate[candidates]))[:PRICED_NODES]
        priced: list[tuple[int, int, list[_Leaver]]] = []
        for node in candidates[order].tolist():
            chosen = self._enough(class_index, node, priority, gone)
            if chosen:
                priced.append((sum(one.price for one in chosen), node, chosen))
        priced.sort(key=lambda each: each[:2])
        best: tuple[tuple[int, int], list[Part]] | None = None
        for price, node, chosen in priced[:TRIED_NODES]:
            parts = self._elsewhere(class_index, node, chosen)
            if parts is None:
                continue
            evicted = sum(isinstance(part.change, EvictPod) for part in parts)
            if best is None or (evicted, price) < best[0]:
                best = ((evicted, price), parts)
            if not evicted:
                break
        return [] if best is None else best[1]

    def _tier(self, priority: int) -> tuple[Packing, IntArray]:
        """Room once everybody has left who may for this priority, and the cheapest rate a node."""
        if priority not in self._tiers:
            trial = self._trial
            stays = dict(trial.packing.assignment)
            rate = np.full(len(trial.problem.node_names), NO_RATE, dtype=np.int64)
            for node, there in self._on.items():
                for one in there:
                    if self._priority[one.class_index] <= priority:
                        stays[one.class_index, node] -= 1
                        rate[node] = min(int(rate[node]), one.rate)
            kept = {key: count for key, count in stays.items() if count > 0}
            self._tiers[priority] = (Packing(trial.problem, kept), rate)
        return self._tiers[priority]

    def _lacking(self, class_index: int, nodes: np.ndarray) -> IntArray:
        """GPUs that each node has too few, one where only something else is missing."""
        wanted = self._trial.problem.requests[class_index, GPUS]
        lacking: IntArray = np.maximum(wanted - self._trial.packing.free[nodes, GPUS], 1)
        return lacking

    def _enough(
        self, class_index: int, node: int, priority: int, gone: frozenset[str]
    ) -> list[_Leaver]:
        """The cheapest first until there is room, then without those that were not needed."""
        trial, only = self._trial, self._only(node)
        mark, chosen = trial.mark(), list[_Leaver]()
        try:
            fits = False
            for one in self._on[node]:
                if self._priority[one.class_index] > priority or one.uid in gone:
                    continue
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
        """Where it could go, the tightest place; -1 for nowhere."""
        trial, c = self._trial, one.class_index
        among = trial.problem.eligible[c].copy()
        among[one.node] = False
        fits = trial.fits(c, 1, among) > 0
        watts = trial.problem.watts[c]
        if watts.any():
            fits &= (watts == 0) | (trial.headroom[trial.problem.path].min(axis=1) >= watts)
        return trial.packing.tightest(c, np.flatnonzero(fits))

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
