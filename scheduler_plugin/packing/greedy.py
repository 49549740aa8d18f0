"""What is free while an assignment grows, and greedy placement into it.

A gang goes whole or not at all; each pod goes to the node where it leaves the least stranded for
the pods that are expected to come (node_scores.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.packing.node_scores import STEP
from scheduler_plugin.packing.problem import Assignment, IntArray, Problem
from scheduler_plugin.room.board_states import Boards
from scheduler_plugin.room.resource_columns import GPUS, MEMORY, MILLI_CPU

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Place = Callable[[int, int], int]
"""Books up to so many pods of a class; how many found a place."""

WORTH_FIRST = 1e5
"""Of a score, for a unit of worth or a rank of nodes: more than two nodes differ (assumed)."""
BEFORE_NODES_WITH_GPUS = 1e3
"""Scores of nodes with GPUs never fall so low, and others never reach so high."""


class Packing:
    """Free resources and watts while an assignment grows; every step can be undone.

    A pod that stays where it runs adds no watts: they are counted in what the domain uses. One that
    leaves gives none back, since it may have drawn nothing yet.

    Args:
        problem: What is packed.
        assignment: Where to begin; it is copied. Without one no pod is anywhere that could move.
        peers: False for room alone, whatever pods want of one another.

    Attributes:
        only: The nodes that are looked at, shape (n,); None for all.
        quota_left: By row of the problem's quotas.
    """

    def __init__(
        self, problem: Problem, assignment: Assignment | None = None, *, peers: bool = True
    ) -> None:
        self.problem = problem
        start = problem.start if assignment else {}
        self.states = problem.start_states.copy() if start else problem.states()
        rules = problem.peers if peers else None
        self.peers = None if rules is None else rules.counts()
        self.wishes = None if problem.wishes is None else problem.wishes.counts()
        self.flows = None if problem.linked is None else problem.linked.flows()
        self.only: BoolArray | None = None
        self.headroom: IntArray = problem.headroom.copy()
        nowhere = {} if start else _counts_by_class(problem.start)
        self.quota_left = problem.quotas.left(nowhere)
        self.assignment: Assignment = dict(start)
        #: Whether nodes that the objective prefers come first, before what is stranded there.
        self.by_worth = problem.worth is not None or problem.preferences.has_first
        self._scale = np.maximum(problem.total, 1).astype(np.float64)
        self._log: list[tuple[int, int, int, Boards]] = [(*at, k, ()) for at, k in start.items()]
        self._state: IntArray = np.zeros(len(problem.free), dtype=np.int64)
        self._changed = set(range(len(problem.free)))
        self._stale = True
        #: Least watts above each node, by ``risk_of_class``.
        self._node_headroom: dict[int, IntArray] = {}
        for (class_index, node), count in start.items():
            self._tell_others(class_index, node, count)
        self.become(assignment or {})

    def put(self, class_index: int, node: int, count: int, boards: Boards = ()) -> None:
        """Book ``count`` pods (negative takes them back); one of them on just these boards."""
        problem = self.problem
        demand = problem.demands[class_index]
        if count == -1 and not boards and not demand.mig_profiles:
            # So that undoing it puts the pod back on the board that it had.
            boards = next(reversed(self.states.boards(demand, node)), ())
        if count > 0:
            self.states.put(demand, node, count, boards)
        else:
            self.states.take(demand, node, -count, boards)
        self._tell_others(class_index, node, count)
        problem.quotas.take(self.quota_left, class_index, count)
        if self.flows is not None:
            self.flows.add(class_index, node, count)
        key = (class_index, node)
        before, started = self.assignment.get(key, 0), problem.start.get(key, 0)
        more = max(0, before + count - started) - max(0, before - started)
        watts = int(problem.watts[class_index, node]) * more
        if watts:
            above = problem.counting(class_index, node)
            self.headroom[above[above < len(self.headroom) - 1]] -= watts
            self._stale = True
        self.assignment[key] = before + count
        if not self.assignment[key]:
            del self.assignment[key]
        self._changed.add(node)
        self._log.append((class_index, node, count, boards))

    def _tell_others(self, class_index: int, node: int, count: int) -> None:
        if self.peers is not None:
            self.peers.add(class_index, node, count)
        if self.wishes is not None:
            self.wishes.add(class_index, node, count)

    def become(self, assignment: Assignment) -> None:
        """Take back and book until this is the assignment; it can be undone."""
        keys = sorted(self.assignment.keys() | assignment.keys())
        more = {key: assignment.get(key, 0) - self.assignment.get(key, 0) for key in keys}
        gpu_milli = self.problem.gpu_milli

        def turn(key: tuple[int, int]) -> tuple[bool, int]:
            # A board that another pod is still on would be overbooked; small ones fit into rests.
            return more[key] > 0, -int(gpu_milli[key[0]])

        for key in sorted((key for key in keys if more[key]), key=turn):
            self.put(*key, more[key])

    def mark(self) -> int:
        """A point to return to."""
        return len(self._log)

    def booked_since(self, mark: int) -> list[tuple[int, int, int]]:
        """Class, node and count of everything booked since the mark; below 0 for who left."""
        return [(class_index, node, count) for class_index, node, count, _ in self._log[mark:]]

    def undo_to(self, mark: int) -> None:
        """Take back everything booked since the mark."""
        for class_index, node, count, boards in reversed(self._log[mark:]):
            demand = self.problem.demands[class_index]
            # Others may have been rearranged meanwhile, and then stay so.
            there = count > 0 or not boards or self.states.admits(demand, node, boards)
            self.put(class_index, node, -count, boards if there else ())
        del self._log[mark:]

    def capacity(self, class_index: int) -> IntArray:
        """How many pods of a class, up to all, each node could take alone, shape (n,).

        Whether quotas let in another one is another question (``within_quotas``): a pod that moves
        asks them for nothing.
        """
        return self.states.fits(self.problem.demands[class_index], self._fed(class_index))

    def rooms_of_gang(self, classes: Iterable[int]) -> dict[int, IntArray]:
        """The same of a gang's classes, whomever its members want near them or away, (n,) each.

        Those may be other members: who is where is asked as they are placed.
        """
        demands = self.problem.demands
        return {c: self.states.fits(demands[c], self._fed(c, peers=False)) for c in classes}

    def admits(self, class_index: int, node: int, boards: Boards) -> bool:
        """Whether one more pod of a class has room on a node, and on just these boards if told."""
        if not self.within_quotas(class_index, 1):
            return False
        if not boards:
            return bool(self.capacity(class_index)[node])
        demand = self.problem.demands[class_index]
        return bool(self._fed(class_index)[node]) and self.states.admits(demand, node, boards)

    def within_quotas(self, class_index: int, at_most: int) -> int:
        """How many more pods of a class, up to so many, its quotas let in, wherever they go."""
        return self.problem.quotas.admits(self.quota_left, class_index, at_most)

    def wants_others(self, class_index: int) -> bool:
        """Whether pods that come may open nodes to a class, which affinity or spread keeps off."""
        return self.peers is not None and self.peers.wants_others(class_index)

    def _fed(self, class_index: int, *, peers: bool = True) -> IntArray:
        """What rules beside room leave of a class on each node, shape (n,)."""
        problem = self.problem
        watts = problem.watts[class_index]
        stay = np.zeros(len(self.free), dtype=np.int64)
        for node, count in problem.runs_on[class_index].items():
            stay[node] = max(0, count - self.assignment.get((class_index, node), 0))
        at_most = np.where(problem.eligible[class_index], problem.counts[class_index], stay)
        if self._stale:
            self._node_headroom.clear()
            self._stale = False
        if watts.any():
            fed = stay + self._watts_above(class_index) // np.maximum(watts, 1)
            np.minimum(at_most, fed, out=at_most, where=watts > 0)
        if peers and self.peers is not None and self.peers.binds(class_index):
            at_most = np.where(self.peers.allowed(class_index), at_most, 0)
        return at_most if self.only is None else np.where(self.only, at_most, 0)

    def _watts_above(self, class_index: int) -> IntArray:
        """The least headroom above each node as it was asked for last, shape (n,)."""
        risks = self.problem.risk_of_class
        risk = risks[class_index] if risks else 0
        if risk not in self._node_headroom:
            least = self.problem.least_above(class_index, self.headroom)
            self._node_headroom[risk] = least
        return self._node_headroom[risk]

    @property
    def free(self) -> IntArray:
        """By column, shape (n, r)."""
        return self.states.free

    def place(self, class_index: int, count: int) -> int:
        """Book up to ``count`` pods, each where it strands least; how many found a place.

        Booking on one node changes no other node's score; watts are shared through the domains and
        are checked again at each node. Where others bind a pod, everything is asked again.
        """
        if count > 1 and self.peers is not None and self.peers.binds(class_index):
            return sum(self.place(class_index, 1) for _ in range(count))
        count = self.within_quotas(class_index, count)
        room = self.capacity(class_index)
        nodes = np.flatnonzero(room)
        if not count or not len(nodes):
            return 0
        scores = self._scores(class_index, nodes)
        left = count
        while left:
            wished = self._wished(class_index, nodes)
            at = int((scores if wished is None else scores + wished).argmin())
            if scores[at] == np.inf:
                break
            node = int(nodes[at])
            watts = int(self.problem.watts[class_index, node])
            counting = self.problem.counting(class_index, node)
            if watts and watts > int(self.headroom[counting].min()):
                scores[at] = np.inf
                continue
            self.put(class_index, node, 1)
            left -= 1
            room[node] -= 1
            if left:
                scores[at] = (
                    self._scores(class_index, nodes[at : at + 1])[0] if room[node] else np.inf
                )
        return count - left

    def spread(self, class_index: int, count: int) -> int:
        """Book up to ``count`` pods one by one where most is left in balance; how many found one.

        As the default scheduler scores: least allocated, and CPU and memory allocated alike.
        """
        for done in range(count):
            nodes = np.flatnonzero(self.capacity(class_index))
            if not len(nodes) or not self.within_quotas(class_index, 1):
                return done
            left = self._left(class_index, nodes)
            cpu, memory = left[:, MILLI_CPU], left[:, MEMORY]
            most = left[:, GPUS] + (cpu + memory) / 2.0 - np.abs(cpu - memory) / 2.0
            self.put(class_index, int(nodes[most.argmax()]), 1)
        return count

    def tightest(self, class_index: int, nodes: npt.NDArray[np.intp]) -> int:
        """Of some nodes with room the one where a pod of the class strands least; -1 of none."""
        return int(nodes[self._scores(class_index, nodes).argmin()]) if len(nodes) else -1

    def _scores(self, class_index: int, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """Lower is better; ties fall to the node first by name."""
        problem = self.problem
        first = problem.preferences.first(class_index) if self.by_worth else None
        if problem.gpu_milli[class_index]:
            scores = self._by_what_is_left(class_index, nodes)
            watts = problem.watts[class_index, nodes]
            if watts.any():
                # A domain that is almost full costs as much as stranded GPUs.
                scores = scores + watts / np.maximum(self._watts_above(class_index)[nodes], 1)
            cut: FloatArray = np.floor(scores / STEP)
            if (then := problem.preferences.then(class_index)) is not None:
                cut += then[nodes]
            if first is not None:
                cut += WORTH_FIRST * first[nodes]
            elif self.by_worth and problem.worth is not None:
                cut -= WORTH_FIRST * problem.worth[class_index, nodes]
            return cut
        host = slice(MILLI_CPU, MEMORY + 1)
        left = self.free[nodes, host] - problem.requests[class_index, host]
        cpu, memory = (left / self._scale[nodes, host]).T
        # Pods without GPUs go where no GPU could be stranded by them.
        host_scores: FloatArray = cpu + memory + np.abs(cpu - memory) - BEFORE_NODES_WITH_GPUS
        beside_gpus = problem.total[nodes, GPUS] > 0
        if beside_gpus.any():
            there = self._by_what_is_left(class_index, nodes[beside_gpus])
            host_scores[beside_gpus] = np.floor(there / STEP)
        if first is not None:
            host_scores += WORTH_FIRST * first[nodes]
        return host_scores

    def _wished(self, class_index: int, nodes: npt.NDArray[np.intp]) -> FloatArray | None:
        """What wishes about other pods add to scores: less than any two of these differ."""
        if self.wishes is None or not self.wishes.has_any(class_index):
            return None
        unmet = self.wishes.unmet(class_index)[nodes]
        added: FloatArray = unmet / ((int(unmet.max()) + 1.0) * len(self.free))
        return added

    def _by_what_is_left(self, class_index: int, nodes: npt.NDArray[np.intp]) -> FloatArray:
        problem = self.problem
        self._number_changed()
        return problem.node_scores.of(problem.asks[class_index], self._state[nodes])

    def unusable_milli(self) -> float:
        """Free GPU that pods that are expected to come cannot use, thousandths of boards."""
        if not self.problem.total[:, GPUS].any():
            return 0.0
        self._number_changed()
        return self.problem.node_scores.unusable_milli(self._state)

    def _number_changed(self) -> None:
        """Nodes that were booked on are looked up anew."""
        problem = self.problem
        if self._changed:
            changed = np.array(sorted(self._changed), dtype=np.intp)
            self._state[changed] = problem.node_scores.number(
                changed, self.free[changed], self.states.board_rows(changed)
            )
            self._changed.clear()

    def _left(self, class_index: int, nodes: npt.NDArray[np.intp]) -> FloatArray:
        """Of each resource the part that one more pod would leave, parts of boards too, (k, r)."""
        problem = self.problem
        left: FloatArray = (self.free[nodes] - problem.requests[class_index]) / self._scale[nodes]
        left[:, GPUS] = self._gpus_left(class_index, nodes) / self._scale[nodes, GPUS]
        return left

    def _gpus_left(self, class_index: int, nodes: npt.NDArray[np.intp]) -> FloatArray:
        left = self.states.gpu_milli(nodes) - self.problem.gpu_milli[class_index]
        gpus: FloatArray = left / MILLI_PER_GPU
        return gpus


def _counts_by_class(assignment: Assignment) -> Counter[int]:
    counts: Counter[int] = Counter()
    for (class_index, _), count in assignment.items():
        counts[class_index] += count
    return counts
