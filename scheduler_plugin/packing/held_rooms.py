"""Room that is held for overdue work, as nobody else's room in the arrays of a problem (ADR 41).

Pods of the held work's priority and below may not use the held nodes, and each domain that the work
needs watts of is counted once more for them, with so many watts less. More important pods, and the
held work itself, are not concerned; so a place that it could have now is taken by nobody before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.hold import Hold
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.pod_classes import PodClass
from scheduler_plugin.packing.power_rows import UNLIMITED_WATTS, PowerRows
from scheduler_plugin.packing.problem import Problem

__all__ = ["concerns", "counted_holds", "with_holds"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


def counted_holds(snapshot: Snapshot) -> tuple[Hold, ...]:
    """Holds for work of which the snapshot has a pod; others hold nothing."""
    if not snapshot.holds:
        return ()
    works = {pod.gang or pod.uid for pod in snapshot.pods}
    return tuple(hold for hold in snapshot.holds if hold.work in works)


def concerns(hold: Hold, pod_class: PodClass) -> bool:
    """Whether the pods of a class leave the held room alone."""
    return pod_class.priority <= hold.priority and not any(
        hold.is_for(uid, pod_class.pod.gang) for uid in pod_class.uids
    )


def with_holds(problem: Problem) -> Problem:
    """The problem as those see it who leave held room alone; the same one where none is held."""
    holds = counted_holds(problem.snapshot)
    if not holds or not problem.classes:
        return problem
    concerned = np.array([[concerns(hold, k) for k in problem.classes] for hold in holds])
    index = {name: i for i, name in enumerate(problem.node_names)}
    eligible = problem.eligible.copy()
    for hold, classes in zip(holds, concerned, strict=True):
        nodes = [index[name] for name in hold.nodes if name in index]
        eligible[np.ix_(classes, nodes)] = False
    power = _with_rows(problem, holds, concerned)
    return replace(
        problem,
        eligible=eligible,
        headroom=power.headroom,
        spared=power.spared,
        domain=power.domain,
        above=power.above,
        unheld=problem,
    )


def _with_rows(problem: Problem, holds: Sequence[Hold], concerned: BoolArray) -> PowerRows:
    """The power tree with one more row for each domain that a hold keeps watts of.

    Args:
        problem: Without holds.
        holds: Of the snapshot, those that count.
        concerned: By whom each hold is kept, shape (h, c).
    """
    number = {domain.name: i for i, domain in enumerate(problem.snapshot.domains)}
    held = [
        (number[name], watts, classes)
        for hold, classes in zip(holds, concerned, strict=True)
        for name, watts in hold.watts.items()
        if name in number
    ]
    before, last = len(number), len(number) + len(held)
    spared = problem.spared
    if spared is None:
        spared = np.zeros((len(problem.classes), before + 1), dtype=np.bool_)
    columns = [spared[:, d] | ~classes for d, _, classes in held]
    left = [max(0, int(problem.headroom[d]) - watts) for d, watts, _ in held]
    depth = problem.above.shape[1] + len(held)
    above = np.full((last + 1, depth), last, dtype=np.int64)
    for row in range(before + 1):
        path = [d for d in problem.above[row].tolist() if d < before]
        path += [before + i for i, (d, _, _) in enumerate(held) if d in path]
        above[row if row < before else last, : len(path)] = path
    for row in range(before, last):
        above[row, 0] = row
    return PowerRows(
        headroom=np.array([*problem.headroom[:before], *left, UNLIMITED_WATTS], dtype=np.int64),
        spared=np.column_stack([spared[:, :before], *columns, spared[:, before]]),
        domain=np.where(problem.domain == before, last, problem.domain),
        above=above,
    )
