"""From where pods are to where a plan wants them: one step at a time, each prefix a good state.

A pod arrives only where there is room for it at that moment, so that the list may be cut anywhere.
A pod that moves leaves and arrives in two steps next to one another. Pods that wait for one
another's places in a circle have no such order: the cheapest of them then leaves first and arrives
when its place is free, and is nowhere meanwhile. The members of a gang arrive together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from scheduler_plugin.documents.mig_placement import MigPlacement
from scheduler_plugin.documents.plan_document import Step
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import Assignment, Problem
from scheduler_plugin.room.board_states import Boards, board_of, start_of
from scheduler_plugin.room.pod_demand import Demand

__all__ = ["Changes", "changes", "in_order"]


class Leaver(NamedTuple):
    """A running pod that does not stay."""

    price: int
    class_index: int
    uid: str
    node: int
    boards: Boards = ()


class Arrival(NamedTuple):
    """A pod that gets a place; ``source`` is -1 for one that waits.

    Boards are those that it gets and those that it leaves, where boards are told apart.
    """

    class_index: int
    uid: str
    node: int
    source: int
    price: int
    boards: Boards = ()
    left_boards: Boards = ()


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
    expected = _Expected(problem, assignment)
    arrivals: list[Arrival] = []
    evicted: list[Leaver] = []
    for c, pod_class in enumerate(problem.classes):
        more = dict(wanted[c])
        leavers: list[Leaver] = []
        seen: Counter[int] = Counter()
        # The dearest stay, as many as the plan wants there.
        for price, uid, node in reversed(pod_class.running):
            homes = problem.homes.get((node, problem.demands[c]), ())
            if more.get(node, 0) > 0:
                more[node] -= 1
            else:
                boards = homes[seen[node]] if homes else ()
                leavers.append(Leaver(price, c, uid, node, boards))
            seen[node] += 1
        places = [
            (node, boards)
            for node, count in more.items()
            for boards in expected.boards(c, node, count)
        ]
        movers = leavers[: len(places)]
        for one, (node, boards) in zip(movers, places, strict=False):
            arrivals.append(Arrival(c, one.uid, node, one.node, one.price, boards, one.boards))
        for uid, (node, boards) in zip(pod_class.uids, places[len(movers) :], strict=False):
            arrivals.append(Arrival(c, uid, node, -1, 0, boards))
        evicted += leavers[len(movers) :]
    return Changes(tuple(arrivals), tuple(evicted))


class _Expected:
    """Boards of those that come to a node, where boards are told apart.

    Classes that ask for the same are one demand, of which each class gets other boards.
    """

    def __init__(self, problem: Problem, assignment: Assignment) -> None:
        self._problem = problem
        told = problem.boards is not None
        self._states = Packing(problem, assignment).states if told else None
        self._given: Counter[tuple[Demand, int]] = Counter()

    def boards(self, class_index: int, node: int, count: int) -> tuple[Boards, ...]:
        """Of so many more of a class; those that stay are first among those of their demand."""
        demand = self._problem.demands[class_index]
        if self._states is None or not demand.asks_for_boards:
            return ((),) * count
        self._given[demand, node] += count
        held = self._states.boards(demand, node)
        last = len(held) - self._given[demand, node]
        return held[last : last + count]


def told(demand: Demand, places: Boards) -> dict[str, Any]:
    """Places on boards in the fields of a plan."""
    if not demand.mig_profiles:
        return {"boards": places}
    cuts = (
        MigPlacement(profile=name, board=board_of(name, place), start=start_of(place))
        for name, place in zip(demand.mig_profiles, places, strict=False)
    )
    return {"mig": tuple(cuts)}


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
                self._leave(one.class_index, one.uid, one.source, one.left_boards)
            if not self._now.admits(one.class_index, one.node, one.boards):
                self._now.undo_to(mark)
                del self._steps[done:]
                return False
            self._now.put(one.class_index, one.node, 1, one.boards)
            demand = self._problem.demands[one.class_index]
            self._steps.append(self._step(one.uid, one.node, one.boards, demand, arrives=True))
        return True

    def _make_room(self, blocked: list[list[Arrival]]) -> list[list[Arrival]]:
        """One pod leaves a node that somebody waits for: an evicted one, else one of a circle."""
        asked = {one.node for group in blocked for one in group}
        for one in self._to_evict:
            if one.node in asked:
                self._to_evict.remove(one)
                self._leave(one.class_index, one.uid, one.node, one.boards)
                return blocked
        movers = [g for g in blocked if len(g) == 1 and g[0].source in asked]
        if not movers:
            # Who comes waits for what another one of its quota holds, wherever that is.
            one = self._to_evict.pop(0)
            self._leave(one.class_index, one.uid, one.node, one.boards)
            return blocked
        cheapest = min(movers, key=lambda group: (group[0].price, group[0].uid))
        mover = cheapest[0]
        self._leave(mover.class_index, mover.uid, mover.source, mover.left_boards)
        return [[mover._replace(source=-1)] if group is cheapest else group for group in blocked]

    def _leave(self, class_index: int, uid: str, node: int, boards: Boards) -> None:
        self._now.put(class_index, node, -1, boards)
        self._steps.append(
            self._step(uid, node, (), self._problem.demands[class_index], arrives=False)
        )

    def _step(self, uid: str, node: int, boards: Boards, demand: Demand, *, arrives: bool) -> Step:
        name = self._problem.node_names[node]
        return Step(uid=uid, node=name, arrives=arrives, **told(demand, boards))


def evicted_by(steps: Iterable[Step]) -> tuple[str, ...]:
    """Pods that leave and do not come back, by uid."""
    last = {step.uid: step.arrives for step in steps}
    return tuple(sorted(uid for uid, arrives in last.items() if not arrives))
