"""How many more nodes who finds no place on those that are there needs, whatever ended there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler_plugin.documents.plan_changes import MAX_ADDED_NODES, AddNodes, Change, RaiseLimit
from scheduler_plugin.explain.trial import Part, Trial
from scheduler_plugin.packing.empty_nodes import EmptyNodes
from scheduler_plugin.packing.problem import IntArray

__all__ = ["more_nodes"]

TRIED_KINDS: Final = 4
"""Different kinds of nodes that may be added, those that hold most first."""


def more_nodes(trial: Trial, wanted: Sequence[tuple[int, int]]) -> list[Part] | None:
    """Nodes like one that is there, for those of the pods that find no place now.

    They come below the same power domains, whose limits are raised where they do not suffice.

    Args:
        trial: As the plan leaves it.
        wanted: Class and count of the members that wait, the largest first.
    """
    if any(trial.minds_others(c) for c, _ in wanted):
        return None  # Where they would be among others on new nodes nobody has worked out.
    mark = trial.mark()
    try:
        raised = [Part(change) for change in trial.raised_quotas(wanted)]
        trial.make_all(raised)
        left = [(c, count - trial.place(c, count)) for c, count in wanted]
        left = [(c, count) for c, count in left if count]
        found = [_like(trial, node, left) for node in _kinds(trial, left)]
    finally:
        trial.undo_to(mark)
    able = [(count, watts, parts) for count, watts, parts in found if count]
    return raised + min(able, key=lambda each: each[:2])[2] if able else None


def _kinds(trial: Trial, wanted: Sequence[tuple[int, int]]) -> list[int]:
    """One node of each kind that would hold one of each of the pods as they ask for it."""
    able = np.ones(len(trial.problem.node_names), dtype=np.bool_)
    for c, _ in wanted:
        costs = trial.costs(c)
        fresh = costs.request + np.maximum(trial.needs(c).of_the_node - _returns(trial), 0) == 0
        margin = np.array(
            [all(trial.margin(d) >= 0 for d in trial.above(n)) for n in range(len(able))],
            dtype=np.bool_,
        )
        able &= ~costs.closed & fresh & margin & (trial.empty_room(c, 1, {}) > 0)
    kinds: dict[tuple[object, ...], int] = {}
    headroom = trial.problem.least_above(wanted[0][0], trial.headroom)
    for n in sorted(np.flatnonzero(able).tolist(), key=lambda n: (-int(headroom[n]), n)):
        node = trial.problem.snapshot.nodes[n]
        kinds.setdefault((node.gpu_model, *trial.problem.total[n].tolist()), n)
    return list(kinds.values())[:TRIED_KINDS]


def _returns(trial: Trial) -> IntArray:
    """Nodes that are down or cordoned: one like them would not be, shape (n,)."""
    nodes = trial.problem.snapshot.nodes
    return np.array([not node.is_open for node in nodes], dtype=np.int64)


def _like(
    trial: Trial, node: int, wanted: Sequence[tuple[int, int]]
) -> tuple[int, int, list[Part]]:
    """How many such nodes, watts by which limits are raised, and both as changes."""
    problem = trial.problem
    rows = min(sum(count for _, count in wanted), MAX_ADDED_NODES)
    fresh = EmptyNodes(problem, (node, rows))
    used = np.zeros(rows, dtype=np.bool_)
    watts = 0
    for c, count in wanted:
        rooms = fresh.room(c, count)
        left = count
        for row in np.flatnonzero(rooms).tolist():
            pods = min(left, int(rooms[row]))
            fresh.put({(c, row): pods})
            used[row], left = True, left - pods
            if not left:
                break
        if left:
            return 0, 0, []
        watts += int(problem.watts[c, node]) * count
    count = int(used.sum())
    watts += count * problem.snapshot.nodes[node].idle_watts if watts else 0
    changes: list[Change] = [AddNodes(like=problem.node_names[node], count=count)]
    headroom = problem.headroom_for(wanted[0][0], trial.headroom)
    short = [(d, watts - int(headroom[d])) for d in trial.above(node)] if watts else []
    names = [domain.name for domain in problem.snapshot.domains]
    changes += [RaiseLimit(domain=names[d], watts=more) for d, more in short if more > 0]
    return count, sum(max(0, more) for _, more in short), [Part(each) for each in changes]
