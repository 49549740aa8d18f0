"""Which waiting pods a plan would let in if something were different; every change is taken back.

A trial begins where a plan ends: what it placed has its place, everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler_plugin.documents.plan_changes import (
    AllowSlowDown,
    Change,
    DropPeerRules,
    EvictPod,
    FreeOnNode,
    LowerGuarantees,
    MovePod,
    OfThePod,
    RaiseLimit,
    RaiseQuota,
    ReturnNode,
    StatePower,
    WidenUplink,
)
from scheduler_plugin.explain.peer_trial import PeerTrial
from scheduler_plugin.explain.static_needs import ANY, Needs, NodeRules
from scheduler_plugin.packing.domain_rooms import counted_watts
from scheduler_plugin.packing.empty_nodes import EmptyNodes
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import Assignment, BoolArray, IntArray, Problem
from scheduler_plugin.packing.whole_gangs import left_over
from scheduler_plugin.room.board_states import Boards
from scheduler_plugin.room.resource_columns import GPUS

__all__ = ["Costs", "Part", "Trial"]


@dataclass(frozen=True, slots=True)
class Part:
    """One change, and what it means for arrays.

    Attributes:
        change: As it is told.
        class_index: Of the running pod that leaves, or of the waiting ones that it is for.
        node: Where that is.
        target: Where a moved pod goes, -1 for nowhere.
        count: Of pods that a ``free_on_node`` makes room for.
        boards: Of the pod that leaves, where boards are told apart.
    """

    change: Change
    class_index: int = -1
    node: int = -1
    target: int = -1
    count: int = 0
    boards: Boards = ()


@dataclass(frozen=True, slots=True)
class Costs:
    """Of each node, what it would ask for beside room, shape (n,) each.

    Attributes:
        closed: No change that we know would do.
        request: Changes of the pod's request.
        node: Changes of the node.
        watts: By which domains above it are short, added up; guarantees too.
    """

    closed: BoolArray
    request: IntArray
    node: IntArray
    watts: IntArray


class Trial:
    """A state that changes are tried on.

    Args:
        problem: With running pods that may move as classes.
        assignment: Of the plan, with those pods.
        rules: Over the same nodes, where somebody has them.
    """

    def __init__(
        self, problem: Problem, assignment: Assignment, rules: NodeRules | None = None
    ) -> None:
        self.problem = problem
        self.packing = Packing(problem, assignment)
        counts = self.packing.peers
        if counts is not None:
            counts.settle()
        self._peers = None if counts is None else PeerTrial(counts)
        self.rules = rules or NodeRules(problem.snapshot)
        self._empty: EmptyNodes | None = None
        #: Nodes that are looked at, shape (n,); None for all.
        self.only: BoolArray | None = None
        #: Nothing is asked of the waiting pod's owner.
        self.requests_stay = False
        self.index = {name: i for i, name in enumerate(problem.node_names)}
        domains = problem.snapshot.domains
        self.domain = {domain.name: i for i, domain in enumerate(domains)}
        counted = counted_watts(problem.snapshot)
        overdrawn = [min(0, d.limit_watts - counted[d.name]) for d in domains]
        #: Beside the packing's headroom, which is never negative.
        self._more_watts = np.array([*overdrawn, 0], dtype=np.int64)
        quotas = problem.quotas
        # Of named rows: what is held beyond them counts here, so single classes need no rows.
        over = zip(quotas.limits, quotas.used[: len(quotas.rows)], strict=False)
        #: Beside what the packing has left of quotas, which is never negative at first.
        self._more_quota = [min(0, limit - used) for limit, used in over]
        self._margin = np.array([*(d.guaranteed_margin_watts for d in domains), 0], dtype=np.int64)
        last = problem.path.shape[1] - 1
        #: Domains above each node, level by level; the last is above all of them, without limit.
        self._levels = [np.ascontiguousarray(problem.path[:, k]) for k in range(last)]
        self._on_node = np.zeros(len(problem.node_names), dtype=np.int64)
        self._granted: list[OfThePod] = []
        self._room: dict[tuple[int, int], int] = {}
        self._undo: list[Callable[[], None]] = []

    # -- asked -----------------------------------------------------------------------------------

    def needs(self, class_index: int) -> Needs:
        """By the rules that know no amounts."""
        return self.rules.needs(self.problem.classes[class_index].pod)

    @property
    def headroom(self) -> IntArray:
        """Watts that each domain may take now, negative where it is overdrawn, shape (d + 1,)."""
        left: IntArray = self.packing.headroom + self._more_watts
        return left

    def costs(self, class_index: int) -> Costs:
        """Of one more pod of a class."""
        needs = self.needs(class_index)
        asked = needs.asked_of_the_pod
        if self._granted:
            asked = needs.asked_beside(self._granted)
        watts = self.problem.watts[class_index]
        headroom = self.problem.headroom_for(class_index, self.headroom)
        short = np.zeros(len(watts), dtype=np.int64)
        guarantees = np.maximum(-self._margin, 0)
        for above in self._levels:
            if watts.any():
                short += np.maximum(watts - headroom[above], 0)
            if guarantees.any():
                short += guarantees[above]
        if not watts.all():
            unfed = sum(guarantees[above] for above in self._levels)
            short = np.where(watts == 0, unfed, short)
        on_node = np.maximum(needs.of_the_node - self._on_node, 0)
        closed = needs.never if self.only is None else needs.never | ~self.only
        if self._peers is not None and self.minds_others(class_index):
            closed = closed | self._peers.closed(class_index)
            asked = asked + sum(self._peers.broken(class_index).values())
        if self.requests_stay:
            closed = closed | (asked > 0)
        return Costs(closed, asked, on_node, short)

    def asks_of_node(self, class_index: int, node: int) -> bool:
        """Whether a node itself has to change before it takes pods of a class."""
        return bool(self.needs(class_index).of_the_node[node] > self._on_node[node])

    def fits(self, class_index: int, count: int, among: BoolArray) -> IntArray:
        """How many pods some nodes have room for, up to a count, without power, shape (n,)."""
        demand = self.problem.demands[class_index]
        found = self.packing.states.fits(demand, np.where(among, count, 0))
        for (c, node), more in self._room.items() if self._room else ():
            if c == class_index and among[node]:
                found[node] = min(count, int(found[node]) + more)
        return found

    def room(self, class_index: int, count: int) -> IntArray:
        """How many pods each node would take alone, up to a count, shape (n,)."""
        costs = self.costs(class_index)
        open_now = ~costs.closed & (costs.request + costs.node + costs.watts == 0)
        found = self.fits(class_index, count, open_now)
        watts = self.problem.watts[class_index]
        if count > 1 and watts.any():
            left = np.maximum(self.problem.least_above(class_index, self.headroom), 0)
            np.minimum(found, left // np.maximum(watts, 1), out=found, where=watts > 0)
        if self.problem.quotas.rows:
            np.minimum(found, self.within_quotas(class_index, count), out=found)
        return found

    def within_quotas(self, class_index: int, at_most: int) -> int:
        """How many more pods of a class, up to so many, its quotas let in, wherever they go."""
        return self.problem.quotas.admits(self._quota_left(), class_index, at_most)

    def raised_quotas(self, wanted: Iterable[tuple[int, int]]) -> list[RaiseQuota]:
        """By how much quotas would have to be more for so many more pods of some classes."""
        short = self.problem.quotas.lacking(self._quota_left(), wanted)
        return [RaiseQuota(quota=name, resource=what, amount=more) for name, what, more in short]

    def _quota_left(self) -> list[int]:
        both = zip(self.packing.quota_left, self._more_quota, strict=False)
        return [left + more for left, more in both]

    def empty_room(
        self, class_index: int, at_most: int, beside: Mapping[tuple[int, int], int]
    ) -> IntArray:
        """How many pods each node would hold if only some others ran there, shape (n,)."""
        if beside:
            fresh = EmptyNodes(self.problem)
            fresh.put(beside)
            return fresh.room(class_index, at_most)
        self._empty = self._empty or EmptyNodes(self.problem)
        return self._empty.room(class_index, at_most)

    def missing(self, class_index: int, node: int) -> list[OfThePod]:
        """Changes of the pod's request that a node still asks for."""
        granted = set(self._granted)
        found = [c for c in self.needs(class_index).named(node, ANY) if c not in granted]
        if self._peers is not None and self.minds_others(class_index):
            broken = self._peers.broken(class_index)
            kinds = [kind for kind, where in broken.items() if where[node]]
            found += [DropPeerRules(waiting=ANY, rules=kind) for kind in kinds]
        return found

    def minds_others(self, class_index: int) -> bool:
        """Whether other pods matter for the class, by affinity or spread."""
        return self._peers is not None and self._peers.binds(class_index)

    def kept_off(self, class_index: int) -> BoolArray:
        """Nodes that pods there, or what the class wants of them, keep it off, shape (n,)."""
        if self._peers is None or not self.minds_others(class_index):
            return np.zeros(len(self.problem.node_names), dtype=np.bool_)
        broken = self._peers.broken(class_index).values() if self.requests_stay else ()
        found: BoolArray = np.any([self._peers.closed(class_index), *broken], axis=0)
        return found

    def peer_rules(self, classes: Iterable[int]) -> list[Part]:
        """Giving up all that pods of some classes want of others."""
        found: dict[Change, Part] = {}
        for c in classes:
            for rule in self.problem.classes[c].pod.peer_rules:
                change = DropPeerRules(waiting=ANY, rules=rule.kind)
                found.setdefault(change, Part(change, c))
        return list(found.values())

    def above(self, node: int) -> list[int]:
        """Domains above a node, the nearest first."""
        last = len(self._more_watts) - 1
        return [d for d in self.problem.path[node].tolist() if d < last]

    def margin(self, domain: int) -> int:
        """Watts that guaranteed caps leave below a domain (I1)."""
        return int(self._margin[domain])

    # -- changed ---------------------------------------------------------------------------------

    def mark(self) -> int:
        """A point to return to."""
        return len(self._undo)

    def undo_to(self, mark: int) -> None:
        """Take back everything since the mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def put(self, class_index: int, node: int, count: int, boards: Boards = ()) -> None:
        """Book pods, beyond a node's room where a change made some; negative takes them back.

        Args:
            class_index: Of the pods.
            node: Where.
            count: How many.
            boards: Just these; for one pod.
        """
        key, packing = (class_index, node), self.packing
        if count > 0 and (made := self._room.get(key, 0)):
            found = packing.states.fits(
                self.problem.demands[class_index], np.full(len(self._on_node), count)
            )
            self._change_room(key, -min(made, count - min(count, int(found[node]))))
        mark = packing.mark()
        packing.put(class_index, node, count, boards)
        self._undo.append(lambda: packing.undo_to(mark))

    def place(self, class_index: int, count: int) -> int:
        """Book up to a count of pods, on the fullest nodes first; how many found a place."""
        if self.minds_others(class_index):
            return sum(self._place_among_others(class_index) for _ in range(count))
        rooms = self.room(class_index, count)
        nodes = np.flatnonzero(rooms)
        order = np.lexsort((self.problem.watts[class_index, nodes], self.packing.free[nodes, GPUS]))
        left = count = self.within_quotas(class_index, count)
        for node in nodes[order].tolist():
            watts = int(self.problem.watts[class_index, node])
            most = min(left, int(rooms[node]))
            if watts:
                counting = self.problem.counting(class_index, node)
                most = min(most, int(self.headroom[counting].min()) // watts)
            if most > 0:
                self.put(class_index, node, most)
                left -= most
            if not left:
                break
        return count - left

    def _place_among_others(self, class_index: int) -> bool:
        """One pod where a plan would send it: each that arrives changes where the next may go."""
        nodes = np.flatnonzero(self.room(class_index, 1))
        node = self.packing.tightest(class_index, nodes)
        if node >= 0:
            self.put(class_index, node, 1)
        return node >= 0

    def make_all(self, parts: Iterable[Part]) -> None:
        """Make changes in their order."""
        for part in parts:
            self.make(part)

    def make(self, part: Part) -> None:
        """Make one change."""
        if isinstance(part.change, DropPeerRules) and self._peers is not None:
            classes = self._of_the_same_job(part.class_index)
            self._undo.append(self._peers.give_up(classes, part.change.rules))
            return
        if isinstance(part.change, OfThePod):
            self._granted.append(part.change)
            self._undo.append(self._forget)
            return
        match part.change:
            case RaiseLimit(domain=name, watts=watts):
                self._more_watts[self.domain[name]] += watts
                self._undo.append(lambda: self._give_watts([self.domain[name]], -watts))
            case LowerGuarantees(domain=name, watts=watts):
                self._change_margin(self.domain[name], watts)
            case RaiseQuota(quota=name, resource=resource, amount=amount):
                row = self.problem.quotas.rows.index((name, resource))
                self._raise_quota(row, amount)
                self._undo.append(lambda: self._raise_quota(row, -amount))
            case WidenUplink(group=name, megabits=megabits):
                self._widen(name, megabits)
            case MovePod() | EvictPod():
                self.put(part.class_index, part.node, -1, part.boards)
                if part.target >= 0:
                    self.put(part.class_index, part.target, 1)
            case FreeOnNode() | AllowSlowDown():
                self._change_room((part.class_index, part.node), part.count)
            case ReturnNode(node=node) | StatePower(node=node):
                self._change_node(self.index[node], 1)

    def admits(self, wanted: Sequence[tuple[int, int]], parts: Sequence[Part]) -> bool:
        """Whether all wanted pods, as class and count, have a place once the changes are made."""
        mark = self.mark()
        self.make_all(parts)
        try:
            if len(wanted) == 1 and wanted[0][1] == 1:
                return bool(self.room(wanted[0][0], 1).any())
            return not left_over(self.place, dict(wanted), self.packing.wants_others)
        finally:
            self.undo_to(mark)

    def _of_the_same_job(self, class_index: int) -> list[int]:
        classes = self.problem.classes
        gang = classes[class_index].pod.gang
        same = [c for c, one in enumerate(classes) if gang and one.pod.gang == gang]
        return same or [class_index]

    def _give_watts(self, domains: Sequence[int], watts: int) -> None:
        self._more_watts[list(domains)] += watts

    def _raise_quota(self, row: int, amount: int) -> None:
        self._more_quota[row] += amount

    def _change_margin(self, domain: int, watts: int) -> None:
        self._margin[domain] += watts
        self._undo.append(lambda: self._margin.__setitem__(domain, self._margin[domain] - watts))

    def _widen(self, name: str, megabits: int) -> None:
        flows = self.packing.flows
        assert flows is not None
        room, group = flows.room, flows.gangs.links.names.index(name)
        room[group] += megabits
        self._undo.append(lambda: room.__setitem__(group, room[group] - megabits))

    def _change_node(self, node: int, more: int) -> None:
        self._on_node[node] += more
        self._undo.append(lambda: self._on_node.__setitem__(node, self._on_node[node] - more))

    def _change_room(self, key: tuple[int, int], more: int) -> None:
        self._room[key] = self._room.get(key, 0) + more
        self._undo.append(lambda: self._room.__setitem__(key, self._room[key] - more))

    def _forget(self) -> None:
        self._granted.pop()
