"""From where pods are to where a plan wants them: one step at a time, each prefix a good state.

A pod arrives only where there is room for it at that moment, so that the list may be cut anywhere.
A pod that moves leaves and arrives in two steps next to one another. Pods that wait for one
another's places in a circle have no such order: the cheapest of them then leaves first and arrives
when its place is free, and is nowhere meanwhile. The members of a gang arrive together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_plugin.greedy import Packing
from scheduler_plugin.plan_document import Step
from scheduler_plugin.problem import Assignment, Problem

__all__ = ["Changes", "changes", "in_order"]


class Leaver(NamedTuple):
    """A running pod that does not stay."""

    price: int
    class_index: int
    uid: str
    node: int


class Arrival(NamedTuple):
    """A pod that gets a place; ``source`` is -1 for one that waits."""

    class_index: int
    uid: str
    node: int
    source: int
    price: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from now.

    Attributes:
        arrivals: Pods that get a place, those that move among them.
        evicted: Pods that lose theirs.
    """

    arrivals: tuple[Arrival, ...]
    evicted: tuple[Leaver, ...]

    @property
    def moves(self) -> bool:
        """Whether a running pod leaves its node."""
        return bool(self.evicted) or any(one.source >= 0 for one in self.arrivals)


def changes(problem: Problem, assignment: Assignment) -> Changes:
    """Which pod of each class goes where: the cheapest leave, and are placed before who waits."""
    wanted: dict[int, dict[int, int]] = defaultdict(dict)
    for (c, node), count in sorted(assignment.items()):
        wanted[c][node] = count
    arrivals: list[Arrival] = []
    evicted: list[Leaver] = []
    for c, pod_class in enumerate(problem.classes):
        more = dict(wanted[c])
        leavers: list[Leaver] = []
        # The dearest stay, as many as the plan wants there.
        for price, uid, node in reversed(pod_class.running):
            if more.get(node, 0) > 0:
                more[node] -= 1
            else:
                leavers.append(Leaver(price, c, uid, node))
        places = [node for node, count in more.items() for _ in range(count)]
        movers = leavers[: len(places)]
        for one, node in zip(movers, places, strict=False):
            arrivals.append(Arrival(c, one.uid, node, one.node, one.price))
        for uid, node in zip(pod_class.uids, places[len(movers) :], strict=False):
            arrivals.append(Arrival(c, uid, node, -1, 0))
        evicted += leavers[len(movers) :]
    return Changes(tuple(arrivals), tuple(evicted))


def in_order(problem: Problem, found: Changes) -> tuple[Step, ...]:
    """The steps; empty where no running pod leaves its node."""
    return _Sequence(problem, found).steps() if found.moves else ()


class _Sequence:
    """The state after the steps so far, and what is still to come."""

    def __init__(self, problem: Problem, found: Changes) -> None:
        self._problem = problem
        self._now = Packing(problem, problem.start)
        self._steps: list[Step] = []
        self._to_evict = sorted(found.evicted, key=lambda one: (one.price, one.uid))
        groups: dict[str, list[Arrival]] = defaultdict(list)
        for one in found.arrivals:
            groups[problem.classes[one.class_index].pod.gang or f"\0{one.uid}"].append(one)
        self._to_come = sorted(groups.values(), key=self._rank)

    def _rank(self, group: list[Arrival]) -> tuple[int, int, str]:
        """The most important first; of equals those that free a place."""
        first = group[0]
        return (-self._problem.classes[first.class_index].priority, -first.source, first.uid)

    def steps(self) -> tuple[Step, ...]:
        """All of them."""
        while self._to_come:
            blocked = [group for group in self._to_come if not self._arrive(group)]
            if len(blocked) == len(self._to_come):
                blocked = self._make_room(blocked)
            self._to_come = blocked
        return tuple(self._steps)

    def _arrive(self, group: list[Arrival]) -> bool:
        """Let them come in if there is room for all of them now."""
        mark, done = self._now.mark(), len(self._steps)
        for one in group:
            if one.source >= 0:
                self._leave(one.class_index, one.uid, one.source)
            if not self._now.capacity(one.class_index)[one.node]:
                self._now.undo_to(mark)
                del self._steps[done:]
                return False
            self._now.put(one.class_index, one.node, 1)
            self._steps.append(self._step(one.uid, one.node, arrives=True))
        return True

    def _make_room(self, blocked: list[list[Arrival]]) -> list[list[Arrival]]:
        """One pod leaves a node that somebody waits for: an evicted one, else one of a circle."""
        asked = {one.node for group in blocked for one in group}
        for one in self._to_evict:
            if one.node in asked:
                self._to_evict.remove(one)
                self._leave(one.class_index, one.uid, one.node)
                return blocked
        movers = [g for g in blocked if len(g) == 1 and g[0].source in asked]
        cheapest = min(movers, key=lambda group: (group[0].price, group[0].uid))
        mover = cheapest[0]
        self._leave(mover.class_index, mover.uid, mover.source)
        return [[mover._replace(source=-1)] if group is cheapest else group for group in blocked]

    def _leave(self, class_index: int, uid: str, node: int) -> None:
        self._now.put(class_index, node, -1)
        self._steps.append(self._step(uid, node, arrives=False))

    def _step(self, uid: str, node: int, *, arrives: bool) -> Step:
        return Step(uid=uid, node=self._problem.node_names[node], arrives=arrives)


def evicted_by(steps: Iterable[Step]) -> tuple[str, ...]:
    """Pods that leave and do not come back, by uid."""
    last = {step.uid: step.arrives for step in steps}
    return tuple(sorted(uid for uid, arrives in last.items() if not arrives))
