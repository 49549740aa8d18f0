"""By how much more pods on shared boards would have to bear so that a waiting one may join them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scheduler_plugin.documents.plan_changes import AllowSlowDown
from scheduler_plugin.explain.trial import Costs, Part, Trial

__all__ = ["slower"]

MOST_MILLI = 100_000


def slower(trial: Trial, class_index: int, costs: Costs) -> Part | None:
    """The limit of the node whose neighbours suffer least, raised just enough; None without one.

    Nodes where a pair was never measured are left out: there sums of shares decide.
    """
    problem, states = trial.problem, trial.packing.states
    rule, sharer = problem.neighbours, problem.sharers[class_index]
    if rule is None or sharer is None:
        return None
    demand = problem.demands[class_index]
    judged = problem.share_columns
    kept = tuple(0 if r in judged else amount for r, amount in enumerate(demand.amounts))
    open_to = np.where(costs.closed, 0, 1)
    rooms = states.fits(replace(demand, amounts=kept, sharer=None), open_to)
    found: list[tuple[int, int]] = []
    for node in np.flatnonzero(rooms).tolist():
        together = states.crowd(node).plus(sharer, 1)
        if rule.is_limited(node) and rule.is_decided_by_pairs(node, together):
            found.append((rule.worst_milli(node, together), node))
    if not found or min(found)[0] > MOST_MILLI:
        return None
    slow, node = min(found)
    change = AllowSlowDown(node=problem.node_names[node], slow_down_milli=slow)
    return Part(change, class_index, node, count=1)
